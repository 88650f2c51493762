"""Reading a broker's store while it's open and being written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest_asyncio

from analytics.store.reader import StoreReader
from broker_core.clock import SystemClock
from broker_core.config.store import StoreConfig
from broker_core.message.ids import host_bytes
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FILE_BYTES = 64 * 1024
HOST = host_bytes("127.0.0.1", 10911)
SCHEMA = pa.schema([("commit_log_offset", pa.int64()), ("body", pa.binary())])


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    config = StoreConfig(
        store_path_root_dir=str(tmp_path),
        store_path_commit_log=str(tmp_path / "commitlog"),
        mapped_file_size_commit_log=FILE_BYTES,
        mapped_file_size_consume_queue=20 * 300,
        message_index_enable=False,
    )
    one = MessageStore(config, SystemClock(), FileStorage(), HOST)
    one.load()
    await one.start()
    yield one
    await one.shutdown()


def put(store: MessageStore, body: bytes) -> None:
    result = store.put_message(
        "orders",
        0,
        body,
        "TAGS\x01t",
        tags="t",
        keys=None,
        uniq_key=None,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=HOST,
    )
    assert result.status is PutMessageStatus.PUT_OK


def bodies(root: Path) -> list[bytes]:
    reader = StoreReader(root)
    plan = reader.plan()
    assert plan.tail is None
    assert not [damage for split in plan.splits for damage in reader.damages(split)]
    return [
        body
        for split in plan.splits
        for batch in reader.read(split, SCHEMA)
        for body in batch["body"].to_pylist()
    ]


async def test_stored_messages_are_read_while_the_store_is_open(
    store: MessageStore, tmp_path: Path
) -> None:
    sent: list[bytes] = []
    for number in range(20):
        for _ in range(37):
            sent.append(b"%d" % number * (1 + len(sent) % 50))
            put(store, sent[-1])

        assert bodies(tmp_path) == sent

    assert store.max_commit_log_offset == StoreReader(tmp_path).plan().log_to


async def test_a_store_that_was_only_opened_is_empty(store: MessageStore, tmp_path: Path) -> None:
    assert bodies(tmp_path) == []
