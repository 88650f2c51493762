from __future__ import annotations

import json
import os
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from analytics.arguments import EXIT_BAD_ARGUMENTS, EXIT_FAILED, parse_arguments
from analytics.reports import traffic
from analytics.reports.describe import description
from tests.analytics import run_report
from tests.analytics.run_report import RUN_SECONDS_MAX
from tests.analytics.store_builder import START_MS, StoreBuilder, Stored

if TYPE_CHECKING:
    import subprocess


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "the following arguments are required: REPORT"),
        ("nonsense", "invalid choice: 'nonsense'"),
        ("traffic --store a", "the following arguments are required: --out"),
        (
            "traffic --store a --out b --from yesterday",
            "expected milliseconds since 1970, got 'yesterday'",
        ),
        ("traffic --store a --out b --from -1", "--from"),
        ("traffic --store a --out b --from 9 --to 9", "--from 9 must be before --to 9"),
        ("traffic --store a --out b --topic ../etc", "'../etc' isn't a valid topic"),
        (
            "traffic --store a --out b --master sc://spark-1:15002/;token=s3cret",
            "the address of a Spark Connect server must not contain a token; ",
        ),
        (
            "traffic --store a --out b --master mesos://a",
            "'mesos://a' isn't a Spark master; use local[N]",
        ),
        ("traffic --store a --out b,c", "can't have a comma"),
        ("traffic --store a --out b --hours 0", "expected a whole number from 1 to 8784, got '0'"),
        ("traffic --store a --out b --hours 8785", "from 1 to 8784, got '8785'"),
        ("traffic --store a --out b --hours 2.5", "from 1 to 8784, got '2.5'"),
        ("origins --store a --out b --by colour", "expected one of tag, group, host"),
        ("traffic --store a --out b --hours 1 --from 5", "--hours and --from can't be combined"),
    ],
)
def test_invalid_arguments_are_reported_in_one_sentence_with_code_2(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(arguments.split())

    output = capsys.readouterr()
    assert ended.value.code == EXIT_BAD_ARGUMENTS
    assert sentence in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["traffic", "--help"])

    output = capsys.readouterr().out
    assert ended.value.code == 0
    assert {"--store", "--out", "--from", "--to", "--hours", "--topic", "--master"} <= set(
        output.replace("[", " ").split()
    )


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[2]", "spark://127.0.0.1:7077", "yarn", "k8s://https://api:6443"],
)
def test_valid_masters_are_accepted(master: str) -> None:
    request = parse_arguments(["traffic", "--store", "a", "--out", "b", "--master", master])

    assert request is not None
    assert request.master == master


@pytest.mark.parametrize("hours", [1, 8784])
def test_hours_count_back_from_now_to_a_whole_minute(hours: int) -> None:
    request = parse_arguments(["traffic", "--store", "a", "--out", "b", "--hours", str(hours)])

    assert request is not None
    assert request.from_ms is not None
    assert request.parameters == {"hours": hours}
    age_ms = datetime.now(UTC).timestamp() * 1000 - request.from_ms
    assert request.from_ms % 60_000 == 0
    assert hours * 3_600_000 <= age_ms < hours * 3_600_000 + 62_000


def test_a_missing_store_fails_with_an_explanation_before_spark_starts(tmp_path: Path) -> None:
    code, events, _ = run_report.run(
        "traffic", "--store", tmp_path / "gone", "--out", tmp_path / "out"
    )

    assert code == EXIT_FAILED
    assert events[-1] == {
        "event": "failed",
        "message": f"No store at {tmp_path / 'gone'}. The directory doesn't exist; check the path.",
    }
    assert not (tmp_path / "out").exists()


def test_missing_java_fails_with_the_installation_command(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": "/nowhere"}
    environment.pop("JAVA_HOME", None)

    code, events, _ = run_report.run(
        "traffic", "--store", tmp_path, "--out", tmp_path / "out", environment=environment
    )

    assert code == EXIT_FAILED
    assert events[-1]["event"] == "failed"
    assert "apt-get install openjdk-17-jre-headless" in events[-1]["message"]
    assert "JAVA_HOME" in events[-1]["message"]


@pytest.mark.spark
@pytest.mark.usefixtures("java_17")
def test_the_traffic_report_equals_a_manual_count(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(500)
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"):
        builder.put(topic)
    spoiled = builder.stored[20]
    builder.overwrite(spoiled.commit_log_offset, bytes(8))
    builder.add_zero_file()
    store, out = builder.write(), tmp_path / "out"
    shown = [one for one in builder.stored[:500] if one is not spoiled]
    # The time step follows from the range: up to now, it would change each year.
    bounds = ("--to", START_MS + 600_000, "--master", "local[1]", "--lake", tmp_path / "lake")

    code, events, errors = run_report.run("traffic", "--store", store, "--out", out, *bounds)

    assert code == 0, errors
    result = json.loads((out / "result.json").read_text())
    assert result["rows"] == _by_hand(shown)
    assert result["engine"]["name"] == "spark"
    assert "everything in the log" in result["engine"]["because"]["text"]
    assert result["report"] == json.loads(json.dumps(description(traffic.REPORT)))
    totals = {
        "messages": "499",
        "bytes": str(sum(one.size for one in shown)),
        "topics": "2",
        "rows": str(len(result["rows"])),
    }
    assert result["totals"] == totals
    assert [row["sums"][0] for row in result["breakdown"]["rows"]] == ["250", "249"]
    assert sum(sum(each["values"]) for each in result["chart"]["series"]) == 499
    assert (result["step_seconds"], result["chart"]["stepSeconds"]) == (60, 60)
    assert (result["log_from"], result["log_to"]) == ("0", str(builder.position))
    assert result["damaged"] == [
        {
            "file": str(builder.path_of(0)),
            "from": str(spoiled.commit_log_offset),
            "to": str(spoiled.commit_log_offset + spoiled.size),
            "reason": "zeros where a record should be",
        }
    ]
    table = pq.read_table(out / "result.parquet")
    assert sum(table["messages"].to_pylist()) == 499
    assert sorted(path.name for path in out.iterdir()) == ["result.json", "result.parquet"]
    reading = [event for event in events if event.get("stage") == "reading"]
    assert reading[-1]["done"] == reading[-1]["total"]
    assert reading[-1]["bytes"] == builder.position
    assert events[-2] == {
        "event": "progress",
        "stage": "writing",
        "done": 1,
        "total": 1,
        "rows": 499,
        "bytes": builder.position,
    }
    assert events[-1] == {
        "event": "done",
        "rows": len(result["rows"]),
        "totals": totals,
        "seconds": events[-1]["seconds"],
    }


@pytest.mark.spark
@pytest.mark.usefixtures("java_17")
def test_a_report_of_one_topic_and_time_counts_only_those(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(500)
    from_ms, to_ms = START_MS + 100_000, START_MS + 400_000
    shown = [
        one
        for one in builder.stored
        if one.topic == "bills" and from_ms <= one.store_timestamp < to_ms
    ]
    bounds = ("--from", from_ms, "--to", to_ms, "--topic", "bills", "--master", "local[1]")

    code, _, errors = run_report.run(
        "traffic", "--store", builder.write(), "--out", tmp_path / "out", *bounds
    )

    assert code == 0, errors
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["rows"] == _by_hand(shown)
    assert (result["from"], result["to"]) == (str(from_ms), str(to_ms))


@pytest.mark.spark
@pytest.mark.usefixtures("java_17")
@pytest.mark.parametrize("whole_group", [False, True], ids=["process", "process group"])
def test_a_terminated_report_exits_with_143_and_leaves_nothing(
    tmp_path: Path, whole_group: bool
) -> None:
    store, out = StoreBuilder(tmp_path / "store").put_many(300).write(), tmp_path / "out"
    process = _started_reading(store, out)

    if whole_group:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=RUN_SECONDS_MAX)

    assert process.returncode == 128 + signal.SIGTERM, errors
    assert '"event":"done"' not in rest
    assert not out.exists()


@pytest.mark.spark
@pytest.mark.usefixtures("java_17")
def test_a_report_whose_java_is_killed_fails_with_an_explanation(tmp_path: Path) -> None:
    store, out = StoreBuilder(tmp_path / "store").put_many(300).write(), tmp_path / "out"
    process = _started_reading(store, out)

    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    rest, errors = process.communicate(timeout=RUN_SECONDS_MAX)

    assert process.returncode == EXIT_FAILED, errors
    assert json.loads(rest.splitlines()[-1]) == {
        "event": "failed",
        "message": "Spark's Java process ended during the run. See the log for the reason.",
    }
    assert not out.exists()


def _started_reading(store: Path, out: Path) -> subprocess.Popen[str]:
    process = run_report.start("traffic", "--store", store, "--out", out, "--master", "local[1]")
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line).get("stage") == "reading":
            return process
    raise AssertionError("the report ended before it read anything")


def _by_hand(stored: list[Stored]) -> list[dict[str, Any]]:
    messages: Counter[tuple[int, str]] = Counter()
    sizes: Counter[tuple[int, str]] = Counter()
    for one in stored:
        key = (one.store_timestamp // 60_000, one.topic)
        messages[key] += 1
        sizes[key] += one.size
    return [
        {
            "topic": topic,
            "time": _minute_text(minute),
            "messages": str(messages[minute, topic]),
            "bytes": str(sizes[minute, topic]),
        }
        for minute, topic in sorted(messages)
    ]


def _minute_text(minute: int) -> str:
    days, rest = divmod(minute - START_MS // 60_000 // 1440 * 1440, 1440)
    assert days == 0, "the test's messages lie on one day"
    return f"2026-11-21T{rest // 60:02d}:{rest % 60:02d}:00Z"
