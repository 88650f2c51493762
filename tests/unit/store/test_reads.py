"""Reading: each status, limits, filters, lookups."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest

from broker_core.formats import record
from broker_core.store.reads import FRESH_BYTES, FRESH_UNITS
from broker_core.store.results import FILTERED_UNITS_MAX, GetMessageResult, GetMessageStatus
from tests.support.builders import (
    LOG_FILE_SIZE,
    UNITS_PER_FILE,
    a_store,
    durable,
    get,
    messages_of,
    put,
    read_all,
    store_config,
)
from tests.support.faulty_storage import PAGE

if TYPE_CHECKING:
    from broker_core.formats.cq_ext_unit import CqExtUnit
    from broker_core.store.message_store import MessageStore


class TagFilter:
    units_max = FILTERED_UNITS_MAX

    def __init__(self, *codes: int, bodies: tuple[bytes, ...] = ()) -> None:
        self.codes = codes
        self.bodies = bodies

    def by_tags_code(self, tags_code: int) -> bool:
        return not self.codes or tags_code in self.codes

    def by_ext_unit(self, unit: CqExtUnit) -> bool:
        return self.by_tags_code(unit.tags_code)

    def by_record(self, view: memoryview) -> bool:
        return not self.bodies or record.decode(view).body in self.bodies


async def cold(store: MessageStore, message_filter: TagFilter) -> GetMessageResult:
    answer = store.get_message("TopicTest", 0, 0, 32, message_filter)
    assert inspect.isawaitable(answer)
    return await answer


async def test_an_unknown_queue_has_no_message_and_is_not_created(store):
    result = get(store, 0)

    assert result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
    assert result.next_begin_offset == 0
    assert store.topics() == []


@pytest.mark.parametrize(
    ("queue_offset", "status", "following"),
    [
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
        (0, GetMessageStatus.FOUND, 3),
        (2, GetMessageStatus.FOUND, 3),
        (3, GetMessageStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
async def test_the_start_of_a_get_decides_its_status(store, queue_offset, status, following):
    for _ in range(3):
        put(store)

    result = get(store, queue_offset)

    assert result.status is status
    assert result.next_begin_offset == following
    assert (result.min_offset, result.max_offset) == (0, 3)


async def test_gets_without_a_result_are_counted_as_misses(store):
    get(store, 0, topic="Unknown")
    for _ in range(3):
        put(store)

    for queue_offset in (-1, 3, 4):
        get(store, queue_offset)
    get(store, 0)

    assert (store.own_reads.get_miss_times, store.own_reads.get_found_times) == (4, 1)


async def test_adjacent_records_are_returned_in_one_buffer(store):
    for n in range(3):
        put(store, body=b"%d" % n)

    result = get(store, 0)

    assert len(result.buffers) == 1
    assert result.message_count == 3
    assert result.byte_count == len(result.buffers[0])
    assert [m.body for m in messages_of(result)] == [b"0", b"1", b"2"]


async def test_records_of_other_queues_are_left_out(store):
    for n in range(6):
        put(store, queue_id=n % 2, body=b"%d" % n)

    result = get(store, 0, queue_id=1)

    assert len(result.buffers) == 3
    assert [m.body for m in messages_of(result)] == [b"1", b"3", b"5"]


async def test_a_get_returns_at_most_the_requested_number(store):
    for _ in range(5):
        put(store)

    assert get(store, 0, num=2).message_count == 2
    assert get(store, 0, num=2).next_begin_offset == 2


async def test_a_get_returns_at_most_32_messages(store):
    for _ in range(40):
        put(store)

    assert get(store, 0, num=64).message_count == 32


async def test_a_get_stops_at_the_transfer_limit_but_returns_one_message(clock, storage):
    store = a_store(clock, storage, store_config(max_transfer_bytes_on_message_in_memory=500))
    store.load()
    await store.start()
    put(store, body=b"x" * 1000)
    put(store, body=b"y" * 100)
    put(store, body=b"z" * 400)

    assert get(store, 0).message_count == 1
    assert get(store, 1).message_count == 1
    await store.shutdown()


async def test_a_get_reads_at_most_one_queue_file(store):
    for _ in range(UNITS_PER_FILE + 5):
        put(store, body=b"")

    assert get(store, UNITS_PER_FILE - 3).next_begin_offset == UNITS_PER_FILE


async def test_messages_with_other_tags_are_skipped(store):
    for tags in ("TagA", "TagB", "TagA"):
        put(store, tags=tags)

    result = store.get_message("TopicTest", 0, 0, 32, TagFilter(2598920))

    assert result.status is GetMessageStatus.FOUND
    assert [m.tags for m in messages_of(result)] == ["TagB"]
    assert result.next_begin_offset == 3


async def test_a_get_without_a_match_continues_after_it(store):
    for _ in range(1000):
        put(store, tags="TagA", body=b"")

    result = store.get_message("TopicTest", 0, 0, 32, TagFilter(1))

    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert result.next_begin_offset == UNITS_PER_FILE


async def test_a_filter_may_decide_by_the_record(store):
    for n in range(3):
        put(store, body=b"%d" % n)

    result = store.get_message("TopicTest", 0, 0, 32, TagFilter(bodies=(b"1",)))

    assert [m.body for m in messages_of(result)] == [b"1"]


async def test_cold_messages_are_awaited_and_unchanged(clock, storage):
    config = store_config(access_message_in_memory_max_ratio=0)
    store = a_store(clock, storage, config)
    store.load()
    await store.start()
    for n in range(20):
        put(store, body=b"%d" % n)

    answer = store.get_message("TopicTest", 0, 0, 32, None)
    assert inspect.isawaitable(answer)
    result = await answer

    assert result.status is GetMessageStatus.FOUND
    assert result.message_count == config.max_transfer_count_on_message_in_disk
    assert [m.body for m in messages_of(result)] == [b"%d" % n for n in range(8)]
    assert result.next_begin_offset == 8
    assert store.is_in_memory("TopicTest", 0, 0) is False
    await store.shutdown()


async def test_old_messages_still_in_memory_are_not_waited_for(clock, storage):
    store = a_store(clock, storage, store_config(access_message_in_memory_max_ratio=0))
    store.load()
    await store.start()
    for n in range(20):
        put(store, body=b"%d" % n)
    from_disk = await cold(store, TagFilter())

    storage.is_resident = True
    at_once = store.get_message("TopicTest", 0, 0, 32, None)
    filtered = store.get_message("TopicTest", 0, 0, 32, TagFilter(bodies=(b"2",)))

    assert isinstance(at_once, GetMessageResult)
    assert isinstance(filtered, GetMessageResult)
    assert messages_of(at_once) == messages_of(from_disk)
    assert at_once.next_begin_offset == from_disk.next_begin_offset == 8
    assert at_once.suggest_pulling_from_slave
    assert [m.body for m in messages_of(filtered)] == [b"2"]
    assert filtered.next_begin_offset == 8
    await store.shutdown()


async def test_messages_evicted_by_the_kernel_are_read_by_another_thread(store, storage):
    places = [put(store, body=b"%d" % n * 500).commit_log_offset for n in range(40)]
    in_memory = store.get_message("TopicTest", 0, 8, 32, None)
    assert isinstance(in_memory, GetMessageResult)
    store.own_reads.fresh_bytes = 0
    calls = storage.calls["pread"]
    # A page of the log in the middle of these.
    storage.is_absent = lambda page: page == places[20] // PAGE

    answer = store.get_message("TopicTest", 0, 8, 32, None)
    filtered = store.get_message("TopicTest", 0, 8, 32, TagFilter(bodies=(b"12" * 500,)))
    before = store.get_message("TopicTest", 0, 0, 3, None)
    assert store.glance(places[20]) is None
    assert store.glance(places[19] - (places[19] - places[0]) // 2) is None

    assert isinstance(answer, Awaitable)
    assert isinstance(filtered, Awaitable)
    assert isinstance(before, GetMessageResult)
    assert messages_of(await answer) == messages_of(in_memory)
    assert [m.queue_offset for m in messages_of(await filtered)] == [12]
    assert storage.calls["pread"] > calls
    store.own_reads.fresh_bytes = FRESH_BYTES
    assert isinstance(store.get_message("TopicTest", 0, 8, 32, None), GetMessageResult)
    assert store.glance(places[20]) is not None


async def test_units_evicted_by_the_kernel_are_read_by_another_thread(store, storage):
    for _ in range(2 * FRESH_UNITS + 50):
        put(store, body=b"")
    in_memory = store.get_message("TopicTest", 0, 3, 32, None)
    assert isinstance(in_memory, GetMessageResult)
    storage.is_absent = lambda page: True

    answer = store.get_message("TopicTest", 0, 3, 32, None)
    at_the_end = store.get_message("TopicTest", 0, 2 * FRESH_UNITS + 40, 32, None)

    assert isinstance(answer, Awaitable)
    assert isinstance(at_the_end, GetMessageResult)
    assert messages_of(await answer) == messages_of(in_memory)
    assert storage.calls["read_ahead"] == 1


async def test_a_queue_deleted_during_a_read_has_no_messages(store, storage):
    for _ in range(FRESH_UNITS + 50):
        put(store, body=b"")
    storage.is_absent = lambda page: True

    answer = store.get_message("TopicTest", 0, 3, 32, None)
    assert isinstance(answer, Awaitable)
    store.delete_topic("TopicTest")

    assert (await answer).status is GetMessageStatus.NO_MESSAGE_IN_QUEUE


async def test_unreadable_units_only_fail_that_get(store, storage):
    for _ in range(FRESH_UNITS + 50):
        put(store, body=b"")
    storage.is_absent = lambda page: True
    storage.fail("read_ahead")

    answer = store.get_message("TopicTest", 0, 3, 32, None)
    assert isinstance(answer, Awaitable)
    with pytest.raises(OSError, match="Input"):
        await answer

    storage.is_absent = None
    assert isinstance(store.get_message("TopicTest", 0, 3, 32, None), GetMessageResult)


async def test_cold_messages_are_filtered_by_record(clock, storage):
    store = a_store(clock, storage, store_config(access_message_in_memory_max_ratio=0))
    store.load()
    await store.start()
    for n in range(4):
        put(store, body=b"%d" % n)

    expected = await cold(store, TagFilter(bodies=(b"2",)))
    nothing = await cold(store, TagFilter(bodies=(b"9",)))

    assert [m.body for m in messages_of(expected)] == [b"2"]
    assert nothing.status is GetMessageStatus.NO_MATCHED_MESSAGE
    await store.shutdown()


async def test_only_the_start_of_a_record_is_a_message(store):
    put(store)
    second = put(store).commit_log_offset

    assert store.look_message(second) is not None
    for offset in (-1, 1, second - 1, second + 1, store.max_commit_log_offset, 1 << 50):
        assert store.look_message(offset) is None


async def test_a_glance_finds_data_likely_in_memory_and_readable(store):
    first, second = put(store, body=b"first"), put(store, body=b"second")

    glanced = store.glance(second.commit_log_offset)

    assert glanced is not None
    view, head = glanced
    assert bytes(view) == bytes(store.look_message(second.commit_log_offset))
    assert head.size == second.wrote_size
    for offset in (-1, 1, second.commit_log_offset + 1, store.max_commit_log_offset, 1 << 50):
        assert store.glance(offset) is None
    assert store.own_reads is not None
    store.own_reads.memory_bytes = second.wrote_size
    assert store.glance(second.commit_log_offset) is not None
    assert store.glance(first.commit_log_offset) is None


async def test_a_glance_into_a_later_file_finds_its_records(store):
    last = put(store, body=b"x" * 4000)
    while store.max_commit_log_offset <= LOG_FILE_SIZE:
        last = put(store, body=b"x" * 4000)

    glanced = store.glance(last.commit_log_offset)
    assert glanced is not None
    assert bytes(glanced[0]) == bytes(store.look_message(last.commit_log_offset))
    # The filler of the first file isn't a message.
    end = max(
        message.commit_log_offset + message.store_size
        for message in read_all(store)
        if message.commit_log_offset < LOG_FILE_SIZE
    )
    assert store.glance(end) is None


async def test_a_glance_finds_no_unflushed_message(sync_store):
    result = put(sync_store)
    assert sync_store.glance(result.commit_log_offset) is None

    await durable(sync_store, result)

    assert sync_store.glance(result.commit_log_offset) is not None


async def test_offset_by_time_is_the_first_from_a_time_on(store: MessageStore, clock):
    times = []
    for _ in range(5):
        clock.advance_ms(1000)
        times.append(put(store).store_timestamp)

    def lower(time: int) -> int:
        return store.offset_in_queue_by_time("TopicTest", 0, time)

    assert lower(0) == 0
    assert [lower(time) for time in times] == [0, 1, 2, 3, 4]
    assert lower(times[1] + 1) == 2
    assert lower(times[4] + 1) == 5


async def test_offset_by_time_upper_is_the_last_up_to_a_time(store: MessageStore, clock):
    times = []
    for _ in range(3):
        clock.advance_ms(1000)
        times.append(put(store).store_timestamp)

    def upper(time: int) -> int:
        return store.offset_in_queue_by_time("TopicTest", 0, time, upper=True)

    assert upper(0) == 0
    assert [upper(time) for time in times] == [0, 1, 2]
    assert upper(times[1] + 1) == 1
    assert upper(times[2] + 9) == 2


async def test_the_store_timestamp_of_a_missing_message_is_minus_1(store, clock):
    put(store)

    assert store.store_timestamp("TopicTest", 0, 0) == clock.now_ms()
    assert store.store_timestamp("TopicTest", 0, 1) == -1
    assert store.store_timestamp("Unknown", 0, 0) == -1


async def test_it_is_unknown_whether_a_missing_message_is_in_memory(store):
    put(store)

    assert store.is_in_memory("TopicTest", 0, 0) is True
    assert store.is_in_memory("TopicTest", 0, 1) is None
    assert store.is_in_memory("Unknown", 0, 0) is None


async def test_the_earliest_time_is_the_first_records(store, clock):
    assert store.earliest_message_timestamp == -1
    first = put(store).store_timestamp
    clock.advance_ms(10)
    put(store)

    assert store.earliest_message_timestamp == first


async def test_a_unit_that_points_at_another_record_is_skipped(store, storage):
    put(store, body=b"x" * 50)
    put(store)
    units = next(inode for path, inode in storage.files.items() if "consumequeue" in path.parts)
    units.data[8:12] = (60).to_bytes(4, "big")

    result = get(store, 0)

    assert [m.queue_offset for m in messages_of(result)] == [1]


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (0, (1 << 55).to_bytes(8, "big")),
        (0, (-1).to_bytes(8, "big", signed=True)),
        (8, (-60).to_bytes(4, "big", signed=True)),
        (8, (0x4000_0000).to_bytes(4, "big")),
    ],
    ids=["an offset behind the log", "a negative offset", "a negative size", "a vast size"],
)
@pytest.mark.parametrize("ratio", [40, 0], ids=["in memory", "on disk"])
async def test_a_damaged_unit_does_not_stop_the_readers_of_its_queue(
    clock, storage, at, content, ratio
):
    config = store_config(access_message_in_memory_max_ratio=ratio, flush_disk_type="SYNC_FLUSH")
    store = a_store(clock, storage, config)
    store.load()
    await store.start()
    for _ in range(3):
        put(store)
    await store.flush()
    units = next(inode for path, inode in storage.files.items() if "consumequeue" in path.parts)
    units.data[20 + at : 20 + at + len(content)] = content

    found, queue_offset = [], 0
    while queue_offset < 3:
        result = store.get_message("TopicTest", 0, queue_offset, 1, None)
        if inspect.isawaitable(result):
            result = await result
        assert result.next_begin_offset > queue_offset
        queue_offset = result.next_begin_offset
        found += [message.queue_offset for message in messages_of(result)]

    assert found == [0, 2]
    await store.shutdown()


async def test_a_deleted_topic_starts_over(store):
    for _ in range(UNITS_PER_FILE + 1):
        put(store)
    put(store, "Other")

    store.delete_topic("TopicTest")

    assert store.topics() == ["Other"]
    assert store.max_offset_in_queue("TopicTest", 0) == 0
    assert put(store).queue_offset == 0
    assert len(messages_of(get(store, 0))) == 1


async def test_queues_are_listed(store):
    put(store, queue_id=3)
    put(store, queue_id=1)

    assert store.queue_ids("TopicTest") == [1, 3]
    assert store.queue_ids("Unknown") == []


async def test_more_queues_than_mappings_can_be_read_and_written(clock, storage):
    store = a_store(clock, storage)
    store.files.queues.mapped_files_max = 3
    store.load()
    await store.start()
    for n in range(30):
        put(store, queue_id=n % 10, body=b"%d" % n)
        store.files.queues.take_files_to_flush(0)

    for queue_id in range(10):
        bodies = [m.body for m in messages_of(get(store, 0, queue_id=queue_id))]
        assert bodies == [b"%d" % n for n in range(queue_id, 30, 10)]
    assert store.files.queues.mapped_files <= 4
    await store.shutdown()


async def test_runtime_info_names_what_mqadmin_shows(store, clock):
    for _ in range(10):
        put(store)
    clock.advance_ms(1000)
    store.stats.sample()

    info = store.runtime_info()

    assert info["putMessageTimesTotal"] == "10"
    assert info["putTps"].split()[0] == "10.0"
    assert info["commitLogMaxOffset"] == str(store.max_commit_log_offset)
    assert info["dispatchBehindBytes"] == "0"
    assert info["storeState"] == "running"
    assert all(isinstance(value, str) for value in info.values())
    assert store.max_commit_log_offset < LOG_FILE_SIZE


async def test_a_full_queue_file_that_waits_for_its_flush_stays_mapped(clock, storage):
    store = a_store(clock, storage)
    store.files.queues.mapped_files_max = 1
    store.load()
    await store.start()
    for n in range(UNITS_PER_FILE + 1):
        put(store, body=b"%d" % n)
    put(store, queue_id=1)
    left = storage
    await store.shutdown()

    again = a_store(clock, left.cut_power())
    again.load()
    assert again.max_offset_in_queue("TopicTest", 0) == UNITS_PER_FILE + 1
    units = [p for p in left.durable if "consumequeue" in p.parts and p.parent.name == "0"]
    assert all(any(left.durable[path].durable) for path in units)
    again.close()
