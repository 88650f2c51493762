"""A report from the lake: equal to Spark's over the log, or refused with a sentence."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from analytics import report_from_lake
from analytics.lake.gaps import note_gaps
from analytics.lake.parts import Unread
from analytics.progress import ProgressLines
from analytics.report_from_lake import answer
from analytics.reports.catalog import REPORTS
from analytics.request import Request
from tests.analytics import run_report
from tests.analytics.lake.lakes import BROKER, Lake
from tests.analytics.reports.making import outcome_of, said_by
from tests.analytics.store_builder import START_MS, V4_HOST, V6_HOST, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.session import Spark

MINUTE_MS = 60_000
FROM_MS = START_MS // MINUTE_MS * MINUTE_MS
TO_MS = FROM_MS + 600 * MINUTE_MS
NAMES = sorted(name for name, report in REPORTS.items() if report.lake is not None)


def ask(lake: Lake, name: str = "traffic", **changed: Any) -> dict[str, Any] | None:
    """Return why the lake refuses, None where the result is in `out`."""
    values: dict[str, Any] = {
        "report": REPORTS[name],
        "store": lake.source.store,
        "out": out_of(lake),
        "from_ms": FROM_MS,
        "to_ms": TO_MS,
        "lake": str(lake.directory),
    }
    return answer(Request(**values | changed), ProgressLines(io.StringIO()))


def out_of(lake: Lake) -> Path:
    return lake.directory.parent / "out"


def result_of(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out_of(lake) / "result.json").read_text())
    return found


def filled(root: Path) -> StoreBuilder:
    """Messages of several topics, keys, hosts, sizes and latencies, over ten minutes."""
    builder = StoreBuilder(root, file_bytes=1 << 20)
    for number in range(300):
        stored = START_MS + 2000 * number
        keys = b"KEYS\x01key-%d key-%d" % (number % 7, number % 3) if number % 4 else b"TAGS\x01a"
        builder.put(
            ("orders", "bills", "logs")[number % 3],
            queue_id=number % 2,
            body=b"x" * (number * 37 % 5000),
            properties=keys,
            store_timestamp=stored,
            born_timestamp=stored - (number * 13 % 1500) + 20,
            born_host=(V4_HOST, V6_HOST)[number % 2],
        )
    return builder


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and a lake that has counted all of it in several batches."""
    root = tmp_path_factory.mktemp("counted")
    lake = Lake(root / "lake", filled(root / "store").write(), batch_bytes=300_000)
    assert len(lake.take_all()) > 1
    lake.bring_up()
    return root


@pytest.fixture
def builder(counted: Path, tmp_path: Path) -> StoreBuilder:
    shutil.copytree(counted, tmp_path, dirs_exist_ok=True)
    return filled(tmp_path / "store")


@pytest.fixture
def lake(builder: StoreBuilder, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", builder.root)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "parameters"), [*((name, {}) for name in NAMES), ("origins", {"by": "host"})]
)
def test_each_report_says_from_the_lake_what_spark_says_over_the_log(
    running_spark: Spark,
    lake: Lake,
    builder: StoreBuilder,
    name: str,
    parameters: dict[str, str],
) -> None:
    # And of what the lake does not have yet.
    for number in range(40):
        builder.put("orders", store_timestamp=START_MS + 601_000 + number, body=b"new" * number)
    builder.write()

    refused = ask(lake, name, parameters=parameters)

    assert refused is None
    by_spark = outcome_of(
        running_spark, lake.source.store, name, from_ms=FROM_MS, to_ms=TO_MS, **parameters
    )
    table = pq.read_table(out_of(lake) / "result.parquet")
    assert table.to_pylist() == by_spark.table.to_pylist()
    assert table.schema.equals(by_spark.table.schema)
    result = result_of(lake)
    assert {key: result[key] for key in said_by(name, by_spark)} == said_by(name, by_spark)
    assert result["engine"] == {"name": "duckdb", "because": None}


def test_a_topic_and_a_time_narrow_the_answer_and_the_period_before_is_counted(
    lake: Lake, builder: StoreBuilder
) -> None:
    middle = FROM_MS + 5 * MINUTE_MS
    wanted = [
        one
        for one in builder.stored
        if one.topic == "bills" and middle <= one.store_timestamp < middle + 3 * MINUTE_MS
    ]
    before = [
        one
        for one in builder.stored
        if one.topic == "bills" and middle - 3 * MINUTE_MS <= one.store_timestamp < middle
    ]

    refused = ask(
        lake,
        from_ms=middle,
        to_ms=middle + 3 * MINUTE_MS,
        parameters={"topic": "bills", "compare": 1},
    )

    assert refused is None
    result = result_of(lake)
    assert result["totals"]["messages"] == str(len(wanted))
    assert result["totals"]["bytes"] == str(sum(one.size for one in wanted))
    assert result["before"]["totals"]["messages"] == str(len(before))
    assert result["before"]["totals"]["bytes"] == str(sum(one.size for one in before))


def test_what_only_bronze_has_yet_is_counted_once(lake: Lake, builder: StoreBuilder) -> None:
    builder.put("orders", store_timestamp=START_MS + 601_000)
    builder.write()
    assert lake.take_all()
    # Gold is brought up behind the batches, and has not been yet.

    assert ask(lake) is None

    assert result_of(lake)["totals"]["messages"] == "301"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"report": REPORTS["lag"]}, "does not have what this report needs"),
        ({"from_ms": None}, "Everything in the log was asked for"),
        ({"from_ms": FROM_MS + 1}, "by whole minutes"),
        ({"to_ms": TO_MS + 1}, "by whole minutes"),
    ],
)
def test_what_the_lake_cannot_say_exactly_is_refused(
    lake: Lake, changed: dict[str, Any], sentence: str
) -> None:
    refused = ask(lake, **changed)

    assert refused is not None
    assert sentence in refused["text"]
    assert not out_of(lake).exists()


def test_a_lake_without_messages_refuses(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").put_many(3).write()

    refused = ask(Lake(tmp_path / "lake", store))

    assert refused is not None
    assert "no message yet" in refused["text"]


def test_a_gap_that_may_be_in_the_time_is_refused(lake: Lake) -> None:
    note_gaps(lake.place, BROKER, [Unread(0, 100, "expired before the lake read it")])

    refused = ask(lake)

    assert refused is not None
    assert "gaps" in refused["text"]


def test_another_log_than_the_lake_knows_is_refused(lake: Lake, tmp_path: Path) -> None:
    other = StoreBuilder(tmp_path / "other", file_bytes=1 << 21)
    for _ in range(1000):
        other.put("orders", body=b"y" * 1000, properties=b"")

    refused = ask(lake, store=other.write())

    assert refused is not None
    assert "not the one that the lake has read" in refused["text"]


def test_more_than_is_decoded_at_once_behind_the_lake_is_refused(
    lake: Lake, builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = builder.put("orders", store_timestamp=START_MS + 601_000)
    builder.write()
    monkeypatch.setattr(report_from_lake, "TAIL_BYTES_MAX", added.size - 1)

    refused = ask(lake)

    assert refused is not None
    assert refused["figures"]["bytes"]["unit"] == "bytes"
    assert int(refused["figures"]["bytes"]["value"]) >= added.size


def test_an_unreadable_file_of_the_lake_is_refused_with_its_reason(lake: Lake) -> None:
    for file in (lake.directory / "gold" / "traffic_minute").rglob("*.parquet"):
        file.unlink()

    refused = ask(lake)

    assert refused is not None
    assert refused["text"] == "The lake cannot be read: %(reason)s."


def test_the_program_answers_from_the_lake_without_java(lake: Lake) -> None:
    out = out_of(lake)

    code, events, errors = run_report.run(
        *("traffic", "--store", lake.source.store, "--out", out, "--lake", lake.directory),
        *("--from", FROM_MS, "--to", TO_MS),
        environment={"PATH": "/nowhere"},
    )

    assert code == 0, errors
    assert [event["event"] for event in events] == ["progress", "progress", "done"]
    assert events[-1]["totals"]["messages"] == "300"
    assert sorted(path.name for path in out.iterdir()) == ["result.json", "result.parquet"]
