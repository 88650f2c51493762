"""Stores whose logs part, on disks in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.ha.epochs import Epoch, LogRange
from tests.support.builders import a_store, put, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from broker_core.store.message_store import MessageStore


async def filled(
    storage: FaultyStorage, count: int, what: str = "shared", size: int = 900, **changes: Any
) -> MessageStore:
    """Return a running store of the directory with so many more messages."""
    store = a_store(ManualClock(), storage, store_config(**changes))
    store.load()
    await store.start()
    for number in range(count):
        put(
            store,
            queue_id=number % 2,
            body=f"{what}-{number}".encode().ljust(size, b"."),
            keys=f"{what}-{number}",
            uniq_key=f"id-{what}-{number}",
            tags="T",
        )
    return store


async def left_by(store: MessageStore, storage: FaultyStorage) -> FaultyStorage:
    """Return what a kill leaves of a running store, which is ended."""
    left = storage.crash()
    await store.shutdown()
    return left


def range_of(store: MessageStore, *epochs: tuple[int, int]) -> LogRange:
    return LogRange(
        tuple(Epoch(epoch=epoch, start_offset=start) for epoch, start in epochs),
        store.min_commit_log_offset,
        store.max_commit_log_offset,
    )


async def parted(shared: int, own: int, other: int) -> tuple[MessageStore, MessageStore, int]:
    """Return two stores that part behind so many messages, and where."""
    storage = FaultyStorage()
    store = await filled(storage, shared)
    end = store.max_commit_log_offset
    left = await left_by(store, storage)
    return (
        await filled(left.crash(), own, "own"),
        await filled(left.crash(), other, "other"),
        end,
    )


async def small_log(*sizes: int) -> MessageStore:
    """Return a store with a record of each of these sizes of body."""
    store = await filled(FaultyStorage(), 0)
    for number, size in enumerate(sizes):
        put(store, body=b"%d" % number * size, keys=f"key-{number}")
    return store
