"""The jobs of a lake: the amount of work of each, and the status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.errors import LakeError, LakeStoppedError, ReportError
from analytics.lake.jobs import Done, LakeJobs
from analytics.lake.maintenance import maintain
from analytics.lake.repair import rebuild
from analytics.lake.status import EXPIRES_NEXT, STATUS_FILE
from analytics.lake.writer import ARROW, SPARK, ArrowWriter
from analytics.spark_writer import SparkWriter
from broker_core.isolation import FAILURES
from tests.analytics.lake.lakes import Lake, put_offsets, traffic_of
from tests.analytics.lake.sample_lake import Hours
from tests.analytics.store_builder import FILE_BYTES, StoreBuilder
from tests.support.sample_files import HOUR, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from analytics.lake.writer import Writer

BATCH_BYTES = 4000


class SmallBatches(ArrowWriter):
    """An ArrowWriter whose batches a test fills quickly."""

    batch_bytes = BATCH_BYTES


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store").put_many(5)
    builder.write()
    return builder


@pytest.fixture
def lake(builder: StoreBuilder, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", builder.root)


@pytest.fixture(params=[ARROW, pytest.param(SPARK, marks=pytest.mark.spark)])
def writer(request: pytest.FixtureRequest) -> Writer:
    """The writer of each engine."""
    if request.param == ARROW:
        return ArrowWriter()
    return SparkWriter(request.getfixturevalue("running_spark"))


def jobs_of(lake: Lake, **more: Any) -> LakeJobs:
    return LakeJobs(lake.place, SmallBatches, **more)


def status_of(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lake.directory / STATUS_FILE).read_text())
    return found


def has_news(lake: Lake) -> bool:
    """Check for new data without our code for the format."""
    for path, position in status_of(lake)["brokers"][lake.source.broker]["next"]:
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                file.seek(position)
                if any(file.read(4)):
                    return True
        except FileNotFoundError:
            continue
    return False


def test_a_job_processes_and_counts_new_data(lake: Lake, builder: StoreBuilder) -> None:
    done = jobs_of(lake).ingest(lake.source)

    assert (done.rows, done.batches, done.is_all) == (5, 1, True)
    assert lake.offsets() == put_offsets(builder)
    assert lake.traffic() == traffic_of(builder.stored)


def test_a_job_that_runs_out_of_time_leaves_the_rest_to_the_next(
    lake: Lake, builder: StoreBuilder
) -> None:
    builder.put_many(200).write()
    jobs = jobs_of(lake, seconds=0.0)

    batches: list[Done] = []
    while not batches or not batches[-1].is_all:
        batches.append(jobs.ingest(lake.source))

    assert all(done.batches == 1 for done in batches)
    assert len(batches) > 2
    assert lake.offsets() == put_offsets(builder)


def test_a_job_ends_although_messages_keep_arriving(lake: Lake, builder: StoreBuilder) -> None:
    def on_step(step: str) -> None:
        if step == "committed":
            builder.put_many(1).write()

    done = jobs_of(lake, observer=on_step).ingest(lake.source)

    assert (done.rows, done.batches, done.is_all) == (5, 1, True)


def test_a_job_continues_after_damage(lake: Lake, builder: StoreBuilder) -> None:
    damaged = builder.put("orders")
    builder.put_many(5)
    builder.overwrite(damaged.commit_log_offset, b"\xff" * 8)
    builder.write()

    done = jobs_of(lake).ingest(lake.source)

    assert (done.rows, done.is_all) == (10, True)
    assert [gap[0] for gap in lake.gaps()] == [damaged.commit_log_offset]


def test_gold_and_status_follow_each_batch_and_not_the_last(
    lake: Lake, builder: StoreBuilder
) -> None:
    builder.put_many(100).write()
    seen = []

    def on_step(step: str) -> None:
        if step == "opened" and (lake.directory / STATUS_FILE).exists():
            watermark = status_of(lake)["brokers"]["broker-a"]["watermark"]
            counted = sum(messages for messages, *_ in lake.traffic().values())
            seen.append((watermark, counted))

    jobs_of(lake, observer=on_step).ingest(lake.source)

    assert len(seen) > 2
    for watermark, counted in seen:
        assert counted == sum(at < watermark for at in put_offsets(builder))


def test_a_status_shows_the_positions_of_lake_and_log(lake: Lake, builder: StoreBuilder) -> None:
    jobs_of(lake).ingest(lake.source)

    found = status_of(lake)
    broker = found["brokers"]["broker-a"]
    assert (broker["watermark"], broker["log_to"]) == (builder.position, builder.position)
    assert broker["batch"]["rows"] == 5
    assert (found["engine"], found["error"], broker["warning"]) == (ARROW, "", "")
    assert found["checked_ms"] > 0


@pytest.mark.parametrize("count", [1, 2 * FILE_BYTES // 130])
def test_a_caller_without_the_format_can_detect_new_data(
    lake: Lake, builder: StoreBuilder, count: int
) -> None:
    jobs_of(lake).ingest(lake.source)
    before = has_news(lake)
    builder.put_many(count).write()
    news = has_news(lake)
    jobs_of(lake).ingest(lake.source)

    assert (before, news, has_news(lake)) == (False, True, False)


def test_an_unwritten_store_has_no_news_before_its_first_message(
    tmp_path: Path,
) -> None:
    (tmp_path / "store").mkdir()
    lake = Lake(tmp_path / "lake", tmp_path / "store")
    jobs_of(lake).ingest(lake.source)
    before = has_news(lake)
    StoreBuilder(tmp_path / "store").put_many(1).write()

    assert (before, has_news(lake)) == (False, True)


def test_a_stopped_lake_explains_why_until_it_is_repaired(
    lake: Lake, builder: StoreBuilder
) -> None:
    jobs_of(lake).ingest(lake.source)
    other = StoreBuilder(builder.root)
    other.put_many(40, ("other",)).write()

    with pytest.raises(LakeStoppedError):
        jobs_of(lake).ingest(lake.source)
    stopped = status_of(lake)
    rebuild(lake.place, lake.source)
    jobs_of(lake).ingest(lake.source)

    assert "manage.py lake rebuild --broker broker-a" in stopped["error"]
    assert stopped["error_ms"] > 0
    assert status_of(lake)["error"] == ""
    assert lake.offsets() == put_offsets(other)


def test_a_missing_store_is_an_error_until_it_returns(lake: Lake) -> None:
    jobs_of(lake).ingest(lake.source)
    store = lake.source.store
    away = store.rename(store.with_name("away"))

    with pytest.raises(ReportError, match="No store at"):
        jobs_of(lake).ingest(lake.source)
    gone = status_of(lake)["error"]
    away.rename(store)
    jobs_of(lake).ingest(lake.source)

    assert "No store at" in gone
    assert status_of(lake)["error"] == ""


def test_a_lake_warns_when_the_next_file_to_expire_is_unread(
    lake: Lake, builder: StoreBuilder
) -> None:
    builder.put_many(2 * FILE_BYTES // 130).write()
    warnings = []

    def on_step(step: str) -> None:
        if step == "opened" and (lake.directory / STATUS_FILE).exists():
            warnings.append(status_of(lake)["brokers"]["broker-a"]["warning"])

    jobs_of(lake, observer=on_step).ingest(lake.source)

    assert warnings[0] == EXPIRES_NEXT
    assert status_of(lake)["brokers"]["broker-a"]["warning"] == ""


def test_maintenance_deletes_once_an_hour_and_merges_each_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletes = []

    def counted(*given: Any, **more: Any) -> Any:
        deletes.append(more["deletes"])
        return maintain(*given, **more)

    monkeypatch.setattr("analytics.lake.jobs.maintain", counted)
    jobs = jobs_of(lake)
    jobs.ingest(lake.source)

    assert jobs.maintain().is_all
    assert jobs.maintain().is_all
    assert deletes == [True, False]


def test_an_unexpected_error_is_reported_and_the_next_job_succeeds(
    lake: Lake, builder: StoreBuilder, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(FAILURES, "report", lambda *given: reported.append(given))

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    jobs = LakeJobs(lake.place, lambda: writer)
    errors = []
    failing: list[tuple[Callable[[], Done], str]] = [
        (lambda: jobs.ingest(lake.source), "parts"),
        (jobs.maintain, "rows"),
    ]
    for job, step in failing:
        with monkeypatch.context() as patch:
            patch.setattr(type(writer), step, fail)
            with pytest.raises(LakeError, match="ZeroDivisionError"):
                job()
        errors.append(status_of(lake)["error"])
        jobs.ingest(lake.source)
        errors.append(status_of(lake)["error"])
        # Maintenance counts this batch in gold, with `rows`.
        builder.put_many(1).write()
        lake.take_all()

    assert len(reported) == 2
    assert ["ZeroDivisionError" in error for error in errors] == [True, False, True, False]
    assert lake.offsets() == put_offsets(builder)


def test_no_message_value_keeps_later_messages_out_of_the_lake(
    writer: Writer, tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "odd")
    most, least = (1 << 31) - 1, -(1 << 31)
    topics = ("orders", "%RETRY%g", "%DLQ%", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    for topic in (*topics, "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"):
        for born_timestamp in ((1 << 63) - 1, -(1 << 63), 0, -1, 253_402_300_800_000):
            builder.put(topic, born_timestamp=born_timestamp)
        for count in (most, least, -1):
            builder.put(topic, reconsume_times=count, queue_id=max(count, 0))
        for properties in (
            b"\xff\xfe\x01\xff\x02",
            b"KEYS\x01a\x02KEYS\x01b\x02",
            b"\x01\x02",
            b"TRANSACTION_CHECK_TIMES\x01" + b"9" * 40,
            b"REAL_TOPIC\x01\xff\x02REAL_QID\x01" + b"9" * 40,
        ):
            builder.put(topic, properties=properties, body=b"\xff,,1," + b"9" * 30 + b",-5")
        builder.put(topic, flag=least, sys_flag=1, body=b"not compressed")
    last = builder.put("orders")
    builder.write(queues=False)
    lake = Lake(tmp_path / "lake", builder.root)
    jobs = LakeJobs(lake.place, lambda: writer)

    assert jobs.ingest(lake.source).is_all
    assert jobs.maintain().is_all

    assert status_of(lake)["error"] == ""
    assert last.commit_log_offset in lake.offsets()
    levels = lake.query("SELECT max(delay_level) FROM bronze.events WHERE event = 'delay'")
    assert levels == [(most,)]


def test_an_unreadable_log_does_not_hold_back_the_samples(tmp_path: Path) -> None:
    hours = Hours(tmp_path)
    hours.write(HOUR, put("orders", m0=5))
    store = hours.lake.source.store
    store.rename(store.with_name("away"))
    jobs = LakeJobs(hours.lake.place, ArrowWriter, samples=hours.taking)

    with pytest.raises(ReportError, match="No store at"):
        jobs.ingest(hours.lake.source)

    assert [row[3] for row in hours.rows()] == [5]
