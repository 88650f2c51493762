"""Stores with diverging logs, on in-memory disks."""

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
    """Return a running store of the directory after adding `count` messages."""
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


async def after_kill(store: MessageStore, storage: FaultyStorage) -> FaultyStorage:
    """Return the files that remain after killing a running store."""
    left = storage.crash()
    await store.shutdown()
    return left


def range_of(store: MessageStore, *epochs: tuple[int, int]) -> LogRange:
    return LogRange(
        tuple(Epoch(epoch=epoch, start_offset=start) for epoch, start in epochs),
        store.min_commit_log_offset,
        store.max_commit_log_offset,
    )


async def diverged_stores(
    shared: int, own: int, other: int
) -> tuple[MessageStore, MessageStore, int]:
    """Return two stores that diverge after the given messages, and the offset where they do."""
    storage = FaultyStorage()
    store = await filled(storage, shared)
    end = store.max_commit_log_offset
    left = await after_kill(store, storage)
    return (
        await filled(left.crash(), own, "own"),
        await filled(left.crash(), other, "other"),
        end,
    )


async def small_log(*sizes: int) -> MessageStore:
    """Return a store with one record for each body size."""
    store = await filled(FaultyStorage(), 0)
    for number, size in enumerate(sizes):
        put(store, body=b"%d" % number * size, keys=f"key-{number}")
    return store
