"""Putting messages: offsets, limits, bytes."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from broker_core.errors import PropertiesError
from broker_core.formats import record
from broker_core.formats.cq_unit import UNIT
from broker_core.message import properties as message_properties
from broker_core.message.ids import host_bytes
from broker_core.steps import run_to_end
from broker_core.store import put as store_put
from broker_core.store.results import PutMessageStatus, RefusedPutError
from tests.support.builders import (
    HOST,
    LOG_FILE_SIZE,
    UNITS_PER_FILE,
    a_store,
    batch_item,
    get,
    messages_of,
    put,
    read_all,
    store_config,
)
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from pathlib import Path


async def test_offsets_follow_each_other(store):
    first, second = put(store), put(store)

    assert (first.commit_log_offset, first.queue_offset) == (0, 0)
    assert (second.commit_log_offset, second.queue_offset) == (first.wrote_size, 1)


async def test_queues_are_counted_separately(store):
    put(store, queue_id=0)

    assert put(store, queue_id=1).queue_offset == 0
    assert put(store, "Other").queue_offset == 0
    assert put(store, queue_id=1).queue_offset == 1


async def test_stored_messages_are_read_back(store, clock):
    put(store, body=b"\x00\xff", tags="TagA", keys="k1 k2", uniq_key="U1", more={"flag_": "x"})

    (message,) = read_all(store)

    assert message.body == b"\x00\xff"
    assert message.properties == {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U1", "flag_": "x"}
    assert message.store_timestamp == clock.now_ms()
    assert message.born_host == message.store_host == "127.0.0.1:10911"


async def test_the_put_path_writes_the_bytes_of_the_encoder(store, clock):
    result = put(store, body=b"body", tags="d", born_host=host_bytes("::1", 7), sys_flag=0x301)
    expected = bytearray(1024)
    size = record.encode_into(
        expected,
        0,
        topic=b"TopicTest",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0,
        body=b"body",
        properties=b"TAGS\x01d",
        flag=0,
        sys_flag=0x301,
        born_timestamp=1_795_251_442_181,
        born_host=host_bytes("::1", 7),
        store_timestamp=clock.now_ms(),
        store_host=HOST,
    )

    assert result.wrote_size == size
    assert bytes(store.look_message(0)) == bytes(expected[:size])


async def test_a_full_file_ends_in_a_blank_record(store, storage):
    body = b"x" * 10_000
    while put(store, body=body).commit_log_offset < LOG_FILE_SIZE:
        pass

    files = [path for path in storage.files if path.parent.name == "commitlog"]
    view = memoryview(storage.files[min(files)].data)
    position = 0
    while not (
        head := record.examine(view, position, len(view), position, check_crc=True)
    ).is_blank:
        position += head.size
    assert position + head.size == LOG_FILE_SIZE
    assert store.look_message(position) is None


@pytest.mark.parametrize("room", range(6, 12))
async def test_a_record_needs_8_spare_bytes_in_its_file(store, room):
    one = put(store, body=b"").wrote_size
    left = LOG_FILE_SIZE - one
    while left > 20_000:
        left -= put(store, body=b"x" * 8000).wrote_size
    put(store, body=b"x" * (left - one - one - room))

    result = put(store, body=b"")

    if room < 8:
        assert result.commit_log_offset == LOG_FILE_SIZE
    else:
        assert result.commit_log_offset == LOG_FILE_SIZE - one - room


async def test_a_record_larger_than_a_file_is_illegal(store):
    result = put(store, body=b"x" * LOG_FILE_SIZE)

    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert put(store).commit_log_offset == 0


async def test_a_body_beyond_the_maximum_is_illegal(clock, storage):
    store = a_store(clock, storage, store_config(max_message_size=100))
    store.load()
    await store.start()

    assert put(store, body=b"x" * 100).status is PutMessageStatus.PUT_OK
    assert put(store, body=b"x" * 101).status is PutMessageStatus.MESSAGE_ILLEGAL
    await store.shutdown()


async def test_properties_may_have_32767_bytes(store):
    overhead = len("long\x01")

    assert put(store, more={"long": "v" * (32767 - overhead)}).status is PutMessageStatus.PUT_OK
    too_long = put(store, more={"long": "v" * (32768 - overhead)})
    too_wide = put(store, more={"long": "é" * 16384})

    assert too_long.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert too_wide.status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED


async def test_zeros_in_properties_are_illegal(store):
    assert put(store, more={"a": "\0"}).status is PutMessageStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("topic", ["", "../x", "a/b", "t" * 128])
async def test_an_invalid_topic_name_is_illegal(store, storage, topic):
    assert put(store, topic).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.topics() == []


async def test_a_negative_queue_id_is_illegal(store):
    assert put(store, queue_id=-1).status is PutMessageStatus.MESSAGE_ILLEGAL


async def test_store_timestamps_never_go_back(store, clock):
    first = put(store)
    clock.step_wall_clock_ms(-60_000)

    assert put(store).store_timestamp == first.store_timestamp


async def test_a_unit_has_the_hash_of_the_tags(store, storage):
    put(store, tags="TagA")

    data = storage.files[_unit_file(storage)].data
    assert UNIT.unpack_from(data) == (0, store.max_commit_log_offset, 2598919)


async def test_a_unit_of_the_schedule_topic_has_the_delivery_time(store, storage, clock):
    put(store, "SCHEDULE_TOPIC_XXXX", queue_id=2, tags="TagA", more={"DELAY": "3"})

    data = storage.files[_unit_file(storage)].data
    assert UNIT.unpack_from(data)[2] == clock.now_ms() + 10_000


@pytest.mark.parametrize(("sys_flag", "places"), [(0, 1), (4, 0), (8, 1), (12, 0)])
async def test_prepared_and_rolled_back_messages_have_no_offset_in_the_queue(
    store, sys_flag, places
):
    put(store, sys_flag=sys_flag)

    assert store.max_offset_in_queue("TopicTest", 0) == places


async def test_an_arrival_is_reported_with_the_new_end(store, arrived):
    put(store, queue_id=3)
    put(store, queue_id=3)

    assert arrived == [("TopicTest", 3, 1), ("TopicTest", 3, 2)]


async def test_a_queue_continues_in_its_next_file(store):
    for n in range(UNITS_PER_FILE * 2 + 1):
        put(store, body=b"%d" % n)

    assert [m.body for m in read_all(store)] == [b"%d" % n for n in range(UNITS_PER_FILE * 2 + 1)]


def put_batch(
    store, *items: bytes, properties: str = "CLUSTER\x01c", sys_flag: int = 0, **read: Any
):
    return store.put_batch(
        "TopicTest",
        0,
        b"".join(items),
        properties,
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=HOST,
        **read,
    )


async def test_a_batch_is_stored_as_separate_messages(store):
    put(store)

    result = put_batch(store, batch_item(b"a", b"TAGS\x01t", flag=7), batch_item(b"b"))

    messages = read_all(store)[1:]
    assert result.queue_offset == 1
    assert result.commit_log_offsets == [m.commit_log_offset for m in messages]
    assert [(m.body, m.flag, m.queue_offset) for m in messages] == [(b"a", 7, 1), (b"b", 0, 2)]
    assert messages[0].properties == {"TAGS": "t", "CLUSTER": "c"}
    assert {message.reconsume_times for message in messages} == {0}


async def test_a_rejected_message_has_no_offset(store):
    one, many = put(store, topic="T" * 300), put_batch(store)

    for refused in (one, many):
        assert refused.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert (refused.commit_log_offset, refused.queue_offset) == (-1, -1)
        assert (refused.store_timestamp, refused.wrote_size) == (0, 0)


async def test_a_batch_never_spans_two_files(store):
    put(store, body=b"x" * (LOG_FILE_SIZE - 2000))

    result = put_batch(store, *[batch_item(b"y" * 900) for _ in range(3)])

    assert result.commit_log_offset == LOG_FILE_SIZE


class Recorded(bytearray):
    """Memory that records whether the head's size field was set when a slice was written."""

    def __init__(self) -> None:
        super().__init__(LOG_FILE_SIZE)
        self.heads: list[bytes] = []

    def __setitem__(self, place, data) -> None:
        super().__setitem__(place, data)
        self.heads.append(bytes(self[:4]))


@pytest.mark.parametrize("many", [False, True])
async def test_the_head_of_a_record_is_written_last(store, many):
    put(store)
    state = store.files.put_state
    state.buffer, state.position = Recorded(), 0

    result = put_batch(store, *[batch_item(b"a" * 50)] * 3) if many else put(store, body=b"a" * 50)

    assert result.status is PutMessageStatus.PUT_OK
    assert set(state.buffer.heads) == {bytes(4)}
    assert state.buffer[:4] != bytes(4)


@pytest.mark.parametrize(
    ("items", "sys_flag"),
    [([b"xxxx"], 0), ([], 0), ([batch_item(b"a")], 4)],
)
async def test_an_invalid_batch_is_illegal(store, items, sys_flag):
    result = put_batch(store, *items, sys_flag=sys_flag)

    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.max_commit_log_offset == 0


@pytest.mark.parametrize("text", [b"a\x01\0", b"a\x01b\x01c", b"a\x01b\x02c", b"\x01b"])
async def test_a_batch_with_ambiguous_properties_is_rejected(store, text):
    with pytest.raises(PropertiesError):
        put_batch(store, batch_item(b"a", b"a\x01b"), batch_item(b"a", text))

    assert store.max_commit_log_offset == 0


async def test_before_the_start_nothing_is_accepted(clock, storage):
    store = a_store(clock, storage)
    store.load()

    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.close()


async def test_a_full_disk_rejects_writes_until_there_is_room(clock):
    storage = FaultyStorage(free_bytes=5 * LOG_FILE_SIZE)
    store = a_store(clock, storage)
    store.load()
    await store.start()
    last = result = put(store, body=b"x" * 5000)
    while result.status is PutMessageStatus.PUT_OK:
        last, result = result, put(store, body=b"x" * 5000)

    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert not store.is_writable
    assert messages_of(get(store, last.queue_offset))[0].body == b"x" * 5000
    storage.free_bytes = 1 << 40
    store.retention.check_disk()
    assert put(store).queue_offset == last.queue_offset + 1
    await store.shutdown()


async def test_a_batch_whose_second_queue_file_has_no_blocks_is_not_stored_at_all(store, storage):
    for _ in range(UNITS_PER_FILE - 1):
        put(store)
    end = store.max_commit_log_offset
    storage.fail("allocate", error=errno.ENOSPC)

    result = put_batch(store, *[batch_item(b"a")] * 3)

    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.max_commit_log_offset == end
    storage.heal("allocate")
    store.retention.check_disk()
    assert put_batch(store, *[batch_item(b"a")] * 3).queue_offset == UNITS_PER_FILE - 1
    assert len(read_all(store)) == UNITS_PER_FILE + 2


async def test_a_file_that_cannot_be_created_has_its_own_status(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    storage.fail("allocate", error=errno.EIO)

    assert put(store).status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
    storage.heal("allocate")
    assert put(store).commit_log_offset == 0
    await store.shutdown()


async def test_a_queue_that_cannot_be_created_is_a_different_failure(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    put(store)
    storage.fail("allocate", error=errno.EIO)

    assert put(store, "Other").status is PutMessageStatus.UNKNOWN_ERROR
    storage.heal("allocate")
    assert put(store, "Other").queue_offset == 0
    assert len(read_all(store)) == 1
    await store.shutdown()


async def test_properties_survive_as_a_map(store):
    properties = {f"k{n}": f"v{n}" for n in range(50)}

    put(store, more=properties)

    text = bytes(store.look_message(0))
    assert message_properties.encode(properties).encode() in text


def _unit_file(storage: FaultyStorage) -> Path:
    return min(path for path in storage.files if "consumequeue" in path.parts)


@pytest.mark.parametrize("place", ["pack_text_size", "crc32", "pack_unit_into", "tags_code_of"])
async def test_no_message_is_stored_after_a_put_ran_out_of_memory_until_a_restart(
    clock, storage, place
):
    """Otherwise the next one would reuse its queue offset, or follow half a record."""
    store = a_store(clock, storage)
    store.load()
    await store.start()
    kept = [put(store, body=b"kept", tags="t") for _ in range(3)]
    with (
        mock.patch.object(store_put, place, side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        put(store, body=b"broken off", tags="t")

    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert [one.body for one in read_all(store)] == [b"kept"] * 3
    await store.shutdown()
    again = a_store(clock, storage.crash())
    again.load()
    await again.start()
    put(again, body=b"after")
    bodies = [one.body for one in read_all(again)]
    assert bodies[: len(kept)] == [b"kept"] * 3
    assert bodies[len(kept) :] in ([b"after"], [b"broken off", b"after"])
    await again.shutdown()


async def test_no_message_is_stored_after_a_batch_ran_out_of_memory_until_a_restart(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    put(store, body=b"kept")
    with (
        mock.patch.object(store_put, "pack_unit", side_effect=[UNIT.pack(0, 0, 0), MemoryError()]),
        pytest.raises(MemoryError),
    ):
        put_batch(store, batch_item(b"first"), batch_item(b"second"))

    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    await store.shutdown()


async def test_a_batch_read_in_steps_is_stored_like_any_other(store):
    items = [batch_item(b"%d" % number, b"TAGS\x01a\x02KEYS\x01k") for number in range(5)]
    put_batch(store, *items)

    steps = store.own_puts.batch_steps(
        "TopicTest", 0, b"".join(items), "CLUSTER\x01c", born_host=HOST
    )
    result = put_batch(store, *items, parts=run_to_end(steps))

    assert result.queue_offset == 5
    stored = [(one.body, one.properties, one.body_crc) for one in read_all(store)]
    assert stored[:5] == stored[5:]


@pytest.mark.parametrize("body", [b"no batch", b"", b"x" * 100])
async def test_steps_reject_the_same_as_a_put(store, body: bytes):
    with pytest.raises(RefusedPutError):
        run_to_end(store.own_puts.batch_steps("TopicTest", 0, body, "", born_host=HOST))

    assert store.own_puts.state.put_failed_times == 1
