"""Stores and messages for tests, with defaults for irrelevant details."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker_core.config.store import StoreConfig
from broker_core.formats import record
from broker_core.message import properties as message_properties
from broker_core.message.ids import host_bytes
from broker_core.message.message import MessageExt
from broker_core.store.consume_queue import no_bit_map
from broker_core.store.message_store import MessageStore
from broker_core.store.results import (
    GetMessageResult,
    GetMessageStatus,
    PutMessageResult,
    PutMessageStatus,
)

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.storage import Storage
    from broker_core.store.consume_queue import BitMapOf
    from broker_core.store.results import RecoveryReport
    from broker_core.store.visibility import Arrival

HOST = host_bytes("127.0.0.1", 10911)
LOG_FILE_SIZE = 64 * 1024
UNITS_PER_FILE = 100


def batch_item(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """Return one message of a batch's body."""
    size = 4 * 5 + len(body) + 2 + len(properties)
    head = b"".join(value.to_bytes(4, "big") for value in (size, 0, 0, flag, len(body)))
    return head + body + len(properties).to_bytes(2, "big") + properties


def store_config(**changes: Any) -> StoreConfig:
    """Return a configuration with small files."""
    config = StoreConfig(
        store_path_root_dir="/store",
        mapped_file_size_commit_log=LOG_FILE_SIZE,
        mapped_file_size_consume_queue=UNITS_PER_FILE * 20,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    return replace(config, **changes)


def a_store(
    clock: Clock,
    storage: Storage,
    config: StoreConfig | None = None,
    bit_map_of: BitMapOf = no_bit_map,
    on_arrival: Arrival | None = None,
) -> MessageStore:
    return MessageStore(config or store_config(), clock, storage, HOST, bit_map_of, on_arrival)


def recover(config: StoreConfig, clock: Clock, storage: Storage) -> RecoveryReport:
    """Recover a store directory that no broker uses, then close it."""
    store = a_store(clock, storage, config)
    report = store.load()
    store.close()
    return report


def put(
    store: MessageStore,
    topic: str = "TopicTest",
    queue_id: int = 0,
    body: bytes = b"hello",
    *,
    tags: str | None = None,
    keys: str | None = None,
    uniq_key: str | None = None,
    sys_flag: int = 0,
    born_host: bytes = HOST,
    more: dict[str, str] | None = None,
) -> PutMessageResult:
    """Put a message with the given properties."""
    properties = {"TAGS": tags, "KEYS": keys, "UNIQ_KEY": uniq_key, **(more or {})}
    return store.put_message(
        topic,
        queue_id,
        body,
        message_properties.encode({key: value for key, value in properties.items() if value}),
        tags=tags,
        keys=keys,
        uniq_key=uniq_key,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp=1_795_251_442_181,
        born_host=born_host,
    )


async def durable(store: MessageStore, result: PutMessageResult) -> PutMessageStatus:
    """Wait for a put's acknowledgement or failure."""
    waiting = store.acknowledge.until_acknowledged(result)
    return result.status if waiting is None else await waiting


def get(
    store: MessageStore,
    queue_offset: int,
    topic: str = "TopicTest",
    queue_id: int = 0,
    num: int = 32,
) -> GetMessageResult:
    """Get messages that are in memory."""
    result = store.get_message(topic, queue_id, queue_offset, num, None)
    assert not inspect.isawaitable(result)
    return result


def a_message_ext(topic: str, **changes: Any) -> MessageExt:
    """Return a message as a store returns it: the first one, empty except for `changes`."""
    message = MessageExt(
        topic=topic,
        queue_id=0,
        flag=0,
        queue_offset=0,
        commit_log_offset=0,
        sys_flag=0,
        born_timestamp=0,
        born_host="127.0.0.1:1",
        store_timestamp=0,
        store_host="127.0.0.1:1",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"",
        body_crc=0,
        properties={},
        store_size=0,
    )
    return replace(message, **changes)


def messages_of(result: GetMessageResult) -> list[MessageExt]:
    return list(record.decode_all(b"".join(result.buffers)))


def read_all(store: MessageStore, topic: str = "TopicTest", queue_id: int = 0) -> list[MessageExt]:
    """Read a queue from its first message to its end, as a consumer does."""
    messages: list[MessageExt] = []
    queue_offset = store.min_offset_in_queue(topic, queue_id)
    while True:
        result = get(store, queue_offset, topic, queue_id)
        if result.status in {
            GetMessageStatus.OFFSET_OVERFLOW_ONE,
            GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        }:
            return messages
        assert result.next_begin_offset > queue_offset
        queue_offset = result.next_begin_offset
        messages += messages_of(result)


def log_bytes(store: MessageStore, begin: int = 0) -> bytes:
    """Return the log from an offset on."""
    data = b""
    while (view := store.files.log.committed_view(begin + len(data))) is not None:
        data += bytes(view)
    return data


def put_bodies(store: MessageStore, count: int, size: int = 300) -> None:
    """Put `count` messages of one size into one queue."""
    for _ in range(count):
        put(store, body=b"x" * size)
