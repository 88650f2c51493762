"""A report from the lake equals one from the log, or says why the lake isn't used."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from analytics.errors import ReportError
from analytics.inputs import LOG, input_of
from analytics.lake.gaps import note_gaps
from analytics.lake.maintenance import maintain
from analytics.lake.parts import Unread
from analytics.lake.repair import forget
from analytics.lake.samples import HOUR_MS
from analytics.lake.writer import ArrowWriter
from analytics.progress import ProgressLines
from analytics.reports.catalog import REPORTS
from analytics.request import Request
from analytics.run import ReportRun
from broker_core.message.names import dlq_topic, retry_topic
from tests.analytics.lake.lakes import BROKER, Lake
from tests.analytics.lake.sample_lake import Hours
from tests.analytics.reports.report_outcomes import outcome_of, result_of
from tests.analytics.store_builder import START_MS, V4_HOST, V6_HOST, StoreBuilder
from tests.support.sample_files import HOUR, Line, put

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.session import Spark

MINUTE_MS, DAY_MS = 60_000, 86_400_000
FROM_MS = START_MS // MINUTE_MS * MINUTE_MS
TO_MS = FROM_MS + 600 * MINUTE_MS
FROM_LAKE = {
    *("traffic", "origins", "retries", "latency", "keys", "senders", "sizes", "duplicates"),
    *("ordering", "owners", "anomalies", "changes"),
}
MINUTES = range(60)


def request_of(lake: Lake, name: str = "traffic", /, **changed: Any) -> Request:
    parameters = changed.pop("parameters", {})
    values: dict[str, Any] = {
        "report": REPORTS[name].with_parameters(parameters),
        "store": lake.source.store,
        "out": lake.directory.parent / "out",
        "from_ms": FROM_MS,
        "to_ms": TO_MS,
        "lake": str(lake.directory),
        "parameters": parameters,
    }
    return Request(**values | changed)


def made(spark: Spark, request: Request) -> dict[str, Any]:
    """Make a report as the pipeline does, and return its result.json."""
    ReportRun(request, ProgressLines(io.StringIO()), lambda: spark).execute()
    found: dict[str, Any] = json.loads((request.out / "result.json").read_text())
    return found


def reason_for_log(lake: Lake, name: str = "traffic", /, **changed: Any) -> str:
    """Return why the log is read instead of the lake, "" if the lake is."""
    given = input_of(request_of(lake, name, **changed))
    assert (given.reads == LOG) == (given.because is not None)
    return "" if given.because is None else str(given.because["text"])


def filled(root: Path) -> StoreBuilder:
    """Messages of several topics, keys, hosts, sizes, latencies and outcomes, over ten minutes."""
    builder = StoreBuilder(root, file_bytes=1 << 20)
    for number in range(300):
        stored = START_MS + 2000 * number
        keys = b"KEYS\x01key-%d key-%d" % (number % 7, number % 3) if number % 4 else b"TAGS\x01a"
        unique = b"\x02UNIQ_KEY\x01U%d\x02__SHARDINGKEY\x01s%d" % (number % 290, number % 5)
        retried = b"\x02RETRY_TOPIC\x01orders" if number % 10 == 9 else b""
        topic = ("orders", "bills", "logs")[number % 3]
        if retried:
            topic = (retry_topic("shop"), dlq_topic("shop"))[number % 20 == 19]
        builder.put(
            topic,
            queue_id=number % 2,
            body=b"x" * (number * 37 % 5000),
            properties=keys + unique + retried,
            store_timestamp=stored,
            born_timestamp=stored - (number * 13 % 1500) + 20,
            born_host=(V4_HOST, V6_HOST)[number % 2],
        )
    return builder


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and a lake that has counted it completely in several batches."""
    root = tmp_path_factory.mktemp("counted")
    lake = Lake(root / "lake", filled(root / "store").write(), batch_bytes=300_000)
    assert len(lake.take_all()) > 1
    lake.catch_up()
    return root


@pytest.fixture
def builder(counted: Path, tmp_path: Path) -> StoreBuilder:
    shutil.copytree(counted, tmp_path, dirs_exist_ok=True)
    return filled(tmp_path / "store")


@pytest.fixture
def lake(builder: StoreBuilder, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", builder.root)


def test_reports_that_a_lake_can_answer_are_known(lake: Lake) -> None:
    of_messages = [name for name, report in REPORTS.items() if not report.samples]

    assert {name for name in of_messages if not reason_for_log(lake, name)} == FROM_LAKE


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "parameters"),
    [*((name, {}) for name in sorted(FROM_LAKE)), ("origins", {"by": "host"})],
)
def test_each_report_from_the_lake_equals_the_one_from_the_log(
    running_spark: Spark,
    lake: Lake,
    builder: StoreBuilder,
    name: str,
    parameters: dict[str, str],
) -> None:
    # Also messages that the lake doesn't have yet.
    for number in range(40):
        builder.put("orders", store_timestamp=START_MS + 601_000 + number, body=b"new" * number)
    builder.write()

    result = made(running_spark, request_of(lake, name, parameters=parameters))

    over_log = outcome_of(
        running_spark, lake.source.store, name, from_ms=FROM_MS, to_ms=TO_MS, **parameters
    )
    table = pq.read_table(lake.directory.parent / "out" / "result.parquet")
    assert table.to_pylist() == over_log.table.to_pylist()
    assert table.schema.equals(over_log.table.schema)
    assert {key: result[key] for key in result_of(name, over_log)} == result_of(name, over_log)
    engine = result["engine"]
    assert engine["reads"] == ("gold.traffic_minute" if name == "traffic" else "bronze.messages")
    assert (engine["name"], engine["because"], engine["rows"]) == ("spark", None, "340")
    assert engine["application_id"].startswith("local-")
    assert int(engine["stages"]) > 0


@pytest.mark.spark
def test_a_topic_and_a_time_narrow_it_and_the_previous_period_is_counted(
    running_spark: Spark, lake: Lake, builder: StoreBuilder
) -> None:
    middle = FROM_MS + 5 * MINUTE_MS
    expected = [
        one
        for one in builder.stored
        if one.topic == "bills" and middle <= one.store_timestamp < middle + 3 * MINUTE_MS
    ]
    before = [
        one
        for one in builder.stored
        if one.topic == "bills" and middle - 3 * MINUTE_MS <= one.store_timestamp < middle
    ]

    result = made(
        running_spark,
        request_of(
            lake,
            from_ms=middle,
            to_ms=middle + 3 * MINUTE_MS,
            parameters={"topic": "bills", "compare": 1},
        ),
    )

    assert result["totals"]["messages"] == str(len(expected))
    assert result["totals"]["bytes"] == str(sum(one.size for one in expected))
    assert result["before"]["totals"]["messages"] == str(len(before))
    assert result["before"]["totals"]["bytes"] == str(sum(one.size for one in before))


@pytest.mark.spark
def test_data_only_in_bronze_is_counted_once(
    running_spark: Spark, lake: Lake, builder: StoreBuilder
) -> None:
    builder.put("orders", store_timestamp=START_MS + 601_000)
    builder.write()
    assert lake.take_all()
    # Gold is updated after the batches, and hasn't been yet.

    result = made(running_spark, request_of(lake))

    assert result["totals"]["messages"] == "301"


@pytest.mark.spark
def test_an_erasure_keeps_anonymous_numbers_and_the_result_says_so(
    running_spark: Spark, lake: Lake
) -> None:
    numbers = ("traffic", "senders", "origins", "sizes", "latency", "owners", "changes")
    before = {name: made(running_spark, request_of(lake, name)) for name in numbers}
    retries = made(running_spark, request_of(lake, "retries"))

    erased = forget(lake.place, "key-3")

    assert erased > 0
    for name in numbers:
        after = made(running_spark, request_of(lake, name))
        assert after["rows"] == before[name]["rows"], name
        assert after["engine"]["reads"] != LOG
    assert made(running_spark, request_of(lake))["erased"] == "0"
    without = made(running_spark, request_of(lake, "retries"))
    # Retries can no longer be assigned to their messages, and the page says so.
    assert without["erased"] == str(erased)
    for one in (retries, without):
        assert [row.pop("retried_messages") for row in one["rows"]]
    assert without["rows"] == retries["rows"]
    keys = made(running_spark, request_of(lake, "keys"))
    assert "key-3" not in {row["key"] for row in keys["rows"]}
    assert keys["erased"] == str(erased)


@pytest.mark.spark
def test_a_lake_with_unreadable_files_leaves_the_report_to_the_log(
    running_spark: Spark, lake: Lake
) -> None:
    for file in (lake.directory / "gold" / "traffic_minute").rglob("*.parquet"):
        file.unlink()

    result = made(running_spark, request_of(lake))

    assert result["totals"]["messages"] == "300"
    assert result["engine"]["reads"] == LOG
    assert result["engine"]["because"]["text"] == "The lake can't be read: %(reason)s."


def test_files_without_messages_of_the_time_range_are_not_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for number in range(300):
        at = START_MS + DAY_MS * (number // 100) + number
        builder.put("orders", store_timestamp=at)
    lake = Lake(tmp_path / "lake", builder.write(), batch_bytes=4000)
    lake.take_all()
    lake.catch_up()
    maintain(lake.place, lake.rows("day")[-1][0], ArrowWriter())
    day = START_MS // DAY_MS * DAY_MS + DAY_MS

    given = input_of(request_of(lake, "sizes", from_ms=day, to_ms=day + DAY_MS))

    files = [file for reading in given.readings for file in reading.files]  # type: ignore[attr-defined]
    assert {file.day for file in files} == {lake.rows("day")[100][0]}
    assert sum(file.rows for file in files) == 100
    assert given.plan.split_bytes == 0


@pytest.mark.parametrize(
    ("name", "changed", "sentence"),
    [
        ("lag", {}, "contain the data this report needs"),
        ("origins", {"parameters": {"by": "group"}}, "contain the data this report needs"),
        ("traffic", {"from_ms": None}, "The report covers everything in the log"),
    ],
)
def test_data_missing_in_the_lake_is_read_from_the_log(
    lake: Lake, name: str, changed: dict[str, Any], sentence: str
) -> None:
    assert sentence in reason_for_log(lake, name, **changed)


@pytest.mark.parametrize("changed", [{"from_ms": FROM_MS + 1}, {"to_ms": TO_MS + 1}])
def test_a_time_that_is_not_a_whole_minute_is_not_read_from_gold(
    lake: Lake, changed: dict[str, int]
) -> None:
    assert input_of(request_of(lake, **changed)).reads == "bronze.messages"


def test_a_lake_without_messages_is_not_read(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").put_many(3).write()

    assert "no messages yet" in reason_for_log(Lake(tmp_path / "lake", store))


def test_a_possible_gap_in_the_time_is_left_to_the_log(lake: Lake) -> None:
    note_gaps(lake.place, BROKER, [Unread(0, 100, "expired before the lake read it")])

    assert "gaps" in reason_for_log(lake)


def test_a_log_unknown_to_the_lake_is_read_directly(lake: Lake, tmp_path: Path) -> None:
    other = StoreBuilder(tmp_path / "other", file_bytes=1 << 21)
    for _ in range(1000):
        other.put("orders", body=b"y" * 1000, properties=b"")

    assert "the one the lake was filled from" in reason_for_log(lake, store=other.write())


def arrivals(hour: int, minute: int) -> int:
    return 100 + (hour * 60 + minute) * 7 % 13


def went(hour: int, minute: int) -> int:
    return 90 + (hour * 60 + minute) * 11 % 37


def line(metric: str, totals: list[int], **others: Any) -> Line:
    """Return an hour of billing's progress in orders."""
    found: Line = put("orders", **{f"m{minute}": total for minute, total in enumerate(totals)})
    if metric == "put":
        return found
    progress: Line = {"kind": "progress", "group": "billing", "metric": metric}
    return found | progress | others


def lag(totals: list[int]) -> Line:
    readings = {"is_counter": False, "weights": [6] * 60, "maxima": totals}
    return line("lag", [6 * total for total in totals], **readings)


def backlogs() -> list[int]:
    found, behind = [], 5_000
    for at in range(180):
        behind += arrivals(*divmod(at, 60)) - went(*divmod(at, 60))
        found.append(behind)
    return found


@pytest.fixture
def hours(tmp_path: Path) -> Hours:
    """Three hours of a group that falls behind and catches up."""
    found = Hours(tmp_path)
    for hour in range(3):
        found.write(
            HOUR + hour,
            line("put", [arrivals(hour, minute) for minute in MINUTES]),
            line("consumed", [went(hour, minute) for minute in MINUTES]),
            lag(backlogs()[hour * 60 : hour * 60 + 60]),
        )
    found.take()
    return found


def of_samples(hours: Hours, **changed: Any) -> Request:
    times = {"from_ms": (HOUR + 1) * HOUR_MS, "to_ms": (HOUR + 2) * HOUR_MS}
    return request_of(hours.lake, "drain", **times | changed)


@pytest.mark.spark
def test_a_report_of_samples_has_the_numbers_of_the_collectors_files(
    running_spark: Spark, hours: Hours
) -> None:
    result = made(running_spark, of_samples(hours, parameters={"compare": 1}))

    every = backlogs()
    step = result["step_seconds"] // 60
    assert step == 5
    assert len(result["rows"]) == 60 // step
    for row, first in zip(result["rows"], range(60, 120, step), strict=True):
        minutes = [divmod(at, 60) for at in range(first, first + step)]
        arrived, read = (sum(of(*each) for each in minutes) for of in (arrivals, went))
        left = every[first + step - 1]
        found = (int(row["backlog"]), int(row["consumed"]), int(row["arrived"]))
        assert found == (left, read, arrived)
        assert int(row["highest"]) == max(every[first : first + step])
        if read > arrived:
            assert abs(int(row["drain_ms"]) - left * step * 60_000 / (read - arrived)) <= 1
        else:
            assert row["drain_ms"] is None
    assert result["totals"]["consumed"] == str(sum(went(1, minute) for minute in MINUTES))
    before = result["before"]["totals"]
    assert before["consumed"] == str(sum(went(0, minute) for minute in MINUTES))
    assert result["engine"]["reads"] == "bronze.samples"
    assert result["sampled_from"] == str(HOUR * HOUR_MS)


@pytest.mark.spark
def test_later_samples_are_not_compared_and_all_are_present_without_a_range(
    running_spark: Spark, hours: Hours
) -> None:
    early = of_samples(hours, parameters={"compare": 1}, from_ms=HOUR * HOUR_MS)

    assert "totals" not in made(running_spark, early)["before"]
    result = made(running_spark, of_samples(hours, from_ms=None, to_ms=None))
    arrived = sum(arrivals(hour, minute) for hour in range(3) for minute in MINUTES)
    assert result["totals"]["arrived"] == str(arrived)


def test_without_a_lake_the_setting_is_explained(hours: Hours) -> None:
    with pytest.raises(ReportError, match="Remove TREBUCHET_LAKE=false and start deploy/up again"):
        input_of(of_samples(hours, lake=None))


def test_a_lake_without_samples_explains_when_they_arrive(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"has no samples yet\. The console's collector writes"):
        input_of(of_samples(Hours(tmp_path)))


@pytest.mark.parametrize(
    ("from_hour", "to_hour"), [(HOUR + 3, HOUR + 4), (HOUR - 2, HOUR), (HOUR + 3, None)]
)
def test_a_time_without_samples_names_one_with_samples(
    hours: Hours, from_hour: int, to_hour: int | None
) -> None:
    to_ms = None if to_hour is None else to_hour * HOUR_MS
    with pytest.raises(ReportError, match="from 2026-11-21 09:00 to 2026-11-21 11:59 UTC"):
        input_of(of_samples(hours, from_ms=from_hour * HOUR_MS, to_ms=to_ms))
