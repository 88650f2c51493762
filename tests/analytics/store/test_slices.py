"""A topic read through its ConsumeQueues: the same rows, with less of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.errors import DataLossError
from analytics.store import plan as plan_module
from analytics.store.decode import FILE_GONE, RowFilter
from analytics.store.reader import StoreReader
from analytics.store.slices import NO_RECORD, UnitSlice
from broker_core.formats import cq_unit, record
from tests.analytics.store.store_reads import OFFSETS
from tests.analytics.store_builder import FILE_BYTES, START_MS, StoreBuilder, Stored

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.store.plan import ReadPlan

RARE = frozenset({"rare"})


@pytest.fixture(autouse=True)
def cheap_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "UNIT_COST_BYTES", 0)
    monkeypatch.setattr(plan_module, "SPLIT_BYTES_MIN", 1)


def mixed(root: Path, count: int = 600) -> StoreBuilder:
    builder = StoreBuilder(root)
    for number in range(count):
        topic = "rare" if number % 20 == 7 else "orders"
        builder.put(topic, queue_id=number % 3, body=b"%d" % number)
    return builder


def rare(builder: StoreBuilder) -> list[Stored]:
    return [one for one in builder.stored if one.topic == "rare"]


def read(reader: StoreReader, plan: ReadPlan, rows: RowFilter, *, fail: bool = True) -> list[int]:
    return sorted(
        at
        for part in plan.parts
        for batch in reader.read(part, OFFSETS, rows, fail_on_data_loss=fail)
        for at in batch["commit_log_offset"].to_pylist()
    )


@pytest.mark.parametrize("split_bytes", [100, 10**9])
@pytest.mark.parametrize("queue_ids", [None, frozenset({0, 2})])
def test_a_rare_topic_is_read_through_its_queues(
    tmp_path: Path, split_bytes: int, queue_ids: frozenset[int] | None
) -> None:
    builder = mixed(tmp_path)
    reader = StoreReader(builder.write(), split_bytes=split_bytes)
    rows = RowFilter(topics=RARE, queue_ids=queue_ids)

    plan = reader.plan(topics=RARE, queue_ids=queue_ids)

    expected = [
        one.commit_log_offset
        for number, one in enumerate(builder.stored)
        if one.topic == "rare" and (queue_ids is None or number % 3 in queue_ids)
    ]
    assert read(reader, plan, rows) == expected
    assert not plan.splits
    assert plan.split_bytes < builder.position / 10
    assert plan.skipped_bytes > builder.position * 9 // 10


def test_a_topic_that_fills_most_of_the_log_is_read_from_the_log(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    reader = StoreReader(builder.write())
    orders = frozenset({"orders"})

    plan = reader.plan(topics=orders)

    assert not plan.slices
    assert read(reader, plan, RowFilter(topics=orders)) == [
        one.commit_log_offset for one in builder.stored if one.topic == "orders"
    ]


def test_several_topics_are_read_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    builder.put("rarest", queue_id=5)
    reader = StoreReader(builder.write())
    topics = frozenset({"rare", "rarest", "unknown"})

    plan = reader.plan(topics=topics)

    assert {part.topic for part in plan.slices} == {"rare", "rarest"}
    assert read(reader, plan, RowFilter(topics=topics)) == [
        one.commit_log_offset for one in builder.stored if one.topic in topics
    ]


def test_undispatched_messages_are_read_from_the_log(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    dispatched = {key: bytes(units) for key, units in builder.units.items()}
    dispatched_to = builder.position
    for number in range(40):
        builder.put(("rare", "orders")[number % 2])
    builder.units = {key: bytearray(units) for key, units in dispatched.items()}
    reader = StoreReader(builder.write())

    plan = reader.plan(topics=RARE)

    assert [split.commit_log_from for split in plan.splits] == [dispatched_to]
    assert plan.slices
    assert read(reader, plan, RowFilter(topics=RARE)) == [
        one.commit_log_offset for one in rare(builder)
    ]


def test_a_store_without_queues_is_read_from_the_log(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    reader = StoreReader(builder.write(queues=False))

    plan = reader.plan(topics=RARE)

    assert not plan.slices
    assert len(read(reader, plan, RowFilter(topics=RARE))) == len(rare(builder))


def test_time_and_offsets_narrow_the_slices(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    reader = StoreReader(builder.write())
    first, last = rare(builder)[3], rare(builder)[9]

    by_offset = reader.plan(
        topics=RARE, from_offset=first.commit_log_offset, to_offset=last.commit_log_offset
    )
    bounds = RowFilter(topics=RARE, from_ms=first.store_timestamp, to_ms=last.store_timestamp)
    by_time = reader.plan(topics=RARE, from_ms=bounds.from_ms, to_ms=bounds.to_ms)

    expected = [one.commit_log_offset for one in rare(builder)[3:9]]
    assert read(reader, by_offset, RowFilter(topics=RARE)) == expected
    assert read(reader, by_time, bounds) == expected
    assert first.store_timestamp > START_MS


def test_a_unit_without_its_record_is_damage(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    spoiled, elsewhere = rare(builder)[2], rare(builder)[5]
    builder.overwrite(spoiled.commit_log_offset, bytes(8))
    reader = StoreReader(builder.write())
    plan = reader.plan(topics=RARE)

    found = read(reader, plan, RowFilter(topics=RARE))
    damages = [damage for part in plan.slices for damage in reader.damages(part)]

    assert spoiled.commit_log_offset not in found
    assert elsewhere.commit_log_offset in found
    assert len(found) == len(rare(builder)) - 1
    assert [(one.commit_log_from, one.commit_log_to, one.reason) for one in damages] == [
        (spoiled.commit_log_offset, spoiled.commit_log_offset + spoiled.size, NO_RECORD)
    ]


def test_a_unit_smaller_than_any_record_is_damage(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    # Bytes that look like a record's start, so near the end that its fields would be beyond it.
    at = max(builder.files) + FILE_BYTES - 20
    builder.overwrite(at, record.BLANK.pack(20, record.MESSAGE_MAGIC))
    builder.units["rare", 0] += cq_unit.UNIT.pack(at, 20, 0)
    reader = StoreReader(builder.write())
    part = UnitSlice("rare", 0, 0, len(builder.units["rare", 0]) // cq_unit.UNIT_SIZE, 1)

    found = [
        offset
        for batch in reader.read(part, OFFSETS, RowFilter(topics=RARE))
        for offset in batch["commit_log_offset"].to_pylist()
    ]

    assert at not in found
    assert found
    assert [(one.commit_log_from, one.reason) for one in reader.damages(part)] == [(at, NO_RECORD)]


def test_a_unit_that_points_to_another_topic_adds_no_row(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    other = builder.stored[0]
    units = builder.units["rare", 1]
    units[: cq_unit.UNIT_SIZE] = cq_unit.UNIT.pack(other.commit_log_offset, other.size, 0)
    reader = StoreReader(builder.write())
    plan = reader.plan(topics=frozenset({"rare"}))

    found = read(reader, plan, RowFilter(topics=frozenset({"rare", "orders"})))

    assert other.commit_log_offset not in found


def test_an_expired_file_is_loss_or_counted(tmp_path: Path) -> None:
    builder = mixed(tmp_path)
    reader = StoreReader(builder.write())
    plan = reader.plan(topics=RARE)
    builder.path_of(0).unlink()

    with pytest.raises(DataLossError, match="failOnDataLoss"):
        read(reader, plan, RowFilter(topics=RARE))
    found = read(reader, plan, RowFilter(topics=RARE), fail=False)
    damages = [damage for part in plan.slices for damage in reader.damages(part)]

    lost = [one for one in rare(builder) if one.commit_log_offset < FILE_BYTES]
    assert len(found) == len(rare(builder)) - len(lost)
    assert sorted((one.commit_log_from, one.reason) for one in damages) == [
        (one.commit_log_offset, FILE_GONE) for one in lost
    ]
