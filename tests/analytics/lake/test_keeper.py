"""The keeper: when it takes a batch, and what it says of itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.lake.keeper import BATCH_SECONDS, MAINTAIN_SECONDS, Keeper
from analytics.lake.maintenance import maintain
from analytics.lake.repair import rebuild
from analytics.lake.status import NEAR_ITS_END, STATUS_FILE
from tests.analytics.lake.lakes import Lake, put_offsets
from tests.analytics.store_builder import FILE_BYTES, StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path

BATCH_BYTES = 4000


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store").put_many(5)
    builder.write()
    return builder


@pytest.fixture
def lake(builder: StoreBuilder, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", builder.root, batch_bytes=BATCH_BYTES)


@pytest.fixture
def keeper(lake: Lake) -> Keeper:
    return Keeper(lake.place, lake.source, lake.ingest, batch_bytes=BATCH_BYTES)


def said(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lake.directory / STATUS_FILE).read_text())
    return found


def test_what_is_new_is_taken_after_a_minute(
    keeper: Keeper, lake: Lake, builder: StoreBuilder
) -> None:
    keeper.step(0.0)
    builder.put_many(3).write()

    early = keeper.step(BATCH_SECONDS - 1)
    due = keeper.step(BATCH_SECONDS)

    assert early == []
    assert [batch.rows for batch in due] == [3]
    assert lake.offsets() == put_offsets(builder)


def test_much_that_is_new_is_taken_at_once(
    keeper: Keeper, lake: Lake, builder: StoreBuilder
) -> None:
    keeper.step(0.0)
    builder.put_many(100).write()

    keeper.step(1.0)

    left = builder.position - lake.ingest.look().watermark
    assert left < BATCH_BYTES
    assert said(lake)["watermark"] == builder.position - left


def test_a_status_says_where_lake_and_log_stand(
    keeper: Keeper, lake: Lake, builder: StoreBuilder
) -> None:
    keeper.step(0.0)

    found = said(lake)

    assert (found["watermark"], found["log_to"]) == (builder.position, builder.position)
    assert found["batch"]["rows"] == 5
    assert found["error"] == found["warning"] == ""
    assert found["checked_ms"] > 0


def test_a_lake_that_stops_says_why_until_it_is_repaired(
    keeper: Keeper, lake: Lake, builder: StoreBuilder
) -> None:
    keeper.step(0.0)
    other = StoreBuilder(builder.root)
    other.put_many(40, ("other",)).write()

    keeper.step(BATCH_SECONDS)
    stopped = said(lake)
    rebuild(lake.place, lake.source)
    keeper.step(2 * BATCH_SECONDS)
    keeper.step(3 * BATCH_SECONDS)

    assert "manage.py lake rebuild --broker broker-a" in stopped["error"]
    assert stopped["error_ms"] > 0
    assert said(lake)["error"] == ""
    assert lake.offsets() == put_offsets(other)


def test_a_store_that_is_gone_is_an_error_and_no_end(keeper: Keeper, lake: Lake) -> None:
    keeper.step(0.0)
    store = lake.source.store
    away = store.rename(store.with_name("away"))

    keeper.step(BATCH_SECONDS)
    gone = said(lake)["error"]
    away.rename(store)
    keeper.step(2 * BATCH_SECONDS)

    assert "There is no store" in gone
    assert said(lake)["error"] == ""


def test_a_lake_warns_when_the_next_file_to_expire_is_unread(
    lake: Lake, builder: StoreBuilder
) -> None:
    builder.put_many(2 * FILE_BYTES // 130).write()
    keeper = Keeper(lake.place, lake.source, lake.ingest, batch_bytes=1 << 40)

    with lake.place.locked():
        # Somebody else works on the lake: no batch can be taken.
        keeper.look()
    behind = keeper.status.warning
    lake.take_all()
    keeper.step(0.0)

    assert behind == NEAR_ITS_END
    assert said(lake)["warning"] == ""


def test_maintenance_is_done_when_idle_once_an_hour(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []

    def counted(*given: Any, **more: Any) -> Any:
        done.append(given)
        return maintain(*given, **more)

    monkeypatch.setattr("analytics.lake.keeper.maintain", counted)
    times = [0.0, 10.0, MAINTAIN_SECONDS - 1, MAINTAIN_SECONDS, MAINTAIN_SECONDS + 10]

    counts = []
    for now in times:
        keeper.step(now)
        counts.append(len(done))

    assert counts == [0, 0, 0, 1, 1]


def test_what_nobody_expects_is_said_and_tried_again(
    keeper: Keeper, lake: Lake, builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("of a bug")

    with monkeypatch.context() as patch:
        patch.setattr(lake.ingest, "batch", fail)
        keeper.step(0.0)
    assert "ZeroDivisionError" in said(lake)["error"]

    keeper.step(BATCH_SECONDS)

    assert said(lake)["error"] == ""
    assert lake.offsets() == put_offsets(builder)


def test_no_value_of_a_message_keeps_those_behind_it_out_of_the_lake(tmp_path: Path) -> None:
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
    keeper = Keeper(lake.place, lake.source, lake.ingest)

    for now in (0.0, BATCH_SECONDS, MAINTAIN_SECONDS + 1):
        keeper.step(now)

    assert said(lake)["error"] == ""
    assert last.commit_log_offset in lake.offsets()
