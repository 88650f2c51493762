"""Records whose last property is a checksum of the whole record (enabledAppendPropCRC)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from broker_core.formats import record
from broker_core.message import properties as message_properties
from broker_core.message.ids import host_bytes
from broker_core.store.results import PutMessageStatus
from tests.support.builders import HOST, a_store, put, read_all, store_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.store.message_store import MessageStore

LOG = "/store/commitlog/00000000000000000000"
GUARDED = store_config(enabled_append_prop_crc=True)


@pytest.fixture
async def guarded(clock, storage):
    store = a_store(clock, storage, GUARDED)
    store.load()
    await store.start()
    yield store
    await store.shutdown()


def records(store: MessageStore) -> Iterator[bytes]:
    offset = 0
    while (view := store.look_message(offset)) is not None:
        yield bytes(view)
        offset += len(view)


def item(body: bytes, properties: bytes) -> bytes:
    return (
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )


def is_whole(data: bytes) -> bool:
    assert data[-record.CRC_ROOM_SIZE :].startswith(b"__CRC32#\x01")
    return record.is_guard_right(memoryview(data), 0, len(data))


@pytest.mark.parametrize("born_host", [HOST, host_bytes("::1", 7)])
async def test_a_message_ends_in_its_checksum(guarded, born_host):
    put(guarded, body=b"body", tags="d", keys="k", born_host=born_host)
    put(guarded, body=b"")

    first, second = records(guarded)

    assert is_whole(first)
    assert is_whole(second)
    assert first[:-20].endswith(b"TAGS\x01d\x02KEYS\x01k\x02")
    assert second[:-20].endswith(b"\x00\x14")


async def test_each_message_of_a_batch_ends_in_its_checksum(guarded):
    body = item(b"one", b"TAGS\x01a") + item(b"two", b"TAGS\x01b\x02") + item(b"three", b"")
    result = guarded.put_batch(
        "TopicTest", 0, body, "CLUSTER\x01c", sys_flag=0, born_timestamp=0, born_host=HOST
    )
    bare = guarded.put_batch("TopicTest", 0, body, "", sys_flag=0, born_timestamp=0, born_host=HOST)

    assert (result.status, bare.status) == (PutMessageStatus.PUT_OK, PutMessageStatus.PUT_OK)
    assert all(map(is_whole, records(guarded)))
    assert [message.properties.get("TAGS") for message in read_all(guarded)] == ["a", "b", None] * 2


async def test_a_checksum_sent_by_a_client_is_not_stored(guarded):
    put(guarded, more={"__CRC32#": "1234567890", "mine": "1"})

    (message,) = read_all(guarded)

    assert list(message.properties) == ["mine", "__CRC32#"]
    assert message.properties["__CRC32#"] != "1234567890"


async def test_a_copied_message_has_its_own_checksum(guarded):
    put(guarded, body=b"half", tags="t")
    (message,) = read_all(guarded)

    guarded.put_copy(message, "Other", 0, message.properties)

    first, second = records(guarded)
    assert is_whole(second)
    assert first[-20:] != second[-20:]
    assert second.count(b"__CRC32#") == 1


async def test_the_checksum_counts_as_properties(guarded):
    longest = 32_767 - record.CRC_ROOM_SIZE - len("long\x01\x02")

    assert put(guarded, more={"long": "v" * longest}).status is PutMessageStatus.PUT_OK
    too_long = put(guarded, more={"long": "v" * (longest + 1)})
    assert too_long.status is not PutMessageStatus.PUT_OK


@pytest.mark.parametrize("messages", [3, 100])
async def test_recovery_detects_errors_that_only_the_checksum_shows(
    guarded, storage, clock, messages
):
    results = [put(guarded, more={"color": "blue"}) for _ in range(messages)]
    hurt = storage.crash()
    path = next(path for path in hurt.files if str(path) == LOG)
    second = results[1]
    at = hurt.files[path].data.index(b"blue", second.commit_log_offset)
    hurt.files[path].data[at : at + 4] = b"glue"

    plain = a_store(clock, hurt.crash())
    assert plain.load().damaged == []
    plain.close()
    again = a_store(clock, hurt, GUARDED)
    (damage,) = again.load().damaged

    assert damage.offset_from == second.commit_log_offset
    assert "checksum of the whole" in damage.reason
    assert [message.queue_offset for message in read_all(again)] == [
        0,
        *range(2, messages),
    ]
    again.close()


async def test_older_records_need_no_checksum(store, storage, clock):
    for _ in range(50):
        put(store, tags="t", more={"__CRC32#": "1234567890", "after": "1"})
    again = a_store(clock, storage.crash(), GUARDED)

    assert again.load().damaged == []
    assert len(read_all(again)) == 50
    again.close()


def test_the_guarding_text_is_an_ordinary_property() -> None:
    text = record.with_crc_room("a\x011").decode()

    assert message_properties.decode(text) == {"a": "1", "__CRC32#": "0000000000"}
