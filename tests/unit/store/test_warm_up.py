"""Warming up files of the log, and locking them in memory."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.store.results import PutMessageStatus
from tests.support.builders import LOG_FILE_SIZE, a_store, put, read_all, store_config
from tests.support.gate import until

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.storage import Storage
    from broker_core.store.message_store import MessageStore

PAGE = 4096
STEP_PAGES = 4


async def started(clock: Clock, storage: Storage, **changes: Any) -> MessageStore:
    config = store_config(
        warm_maped_file_enable=True,
        flush_least_pages_when_warm_maped_file=STEP_PAGES,
        **changes,
    )
    store = a_store(clock, storage, config)
    store.load()
    await store.start()
    return store


def pieces(storage, file_from_offset: int) -> list[tuple[int, int]]:
    """Return the parts of a file that the warm-up populated."""
    name = f"{file_from_offset:020}"
    return [
        (offset, length)
        for path, offset, length in storage.populated
        if path.name == name and length == STEP_PAGES * PAGE
    ]


WHOLE = [(start, STEP_PAGES * PAGE) for start in range(0, LOG_FILE_SIZE, STEP_PAGES * PAGE)]


def is_locked(storage, name: str) -> bool:
    data = storage.files[Path("/store/commitlog") / name].data
    return any(buffer is data for buffer in storage.locked)


async def test_without_the_key_no_file_is_locked(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    for _ in range(20):
        put(store, body=b"x" * 5000)
    await store.shutdown()

    assert storage.calls["lock_memory"] == 0


async def test_a_file_is_warmed_page_by_page_and_locked(clock, storage):
    store = await started(clock, storage)
    put(store)
    await until(lambda: is_locked(storage, f"{0:020}"))

    assert pieces(storage, 0) == WHOLE
    await store.shutdown()


async def test_the_next_file_is_warm_before_it_is_needed(clock, storage):
    store = await started(clock, storage)
    while store.max_commit_log_offset <= LOG_FILE_SIZE // 2:
        put(store, body=b"x" * 1000)
    name = f"{LOG_FILE_SIZE:020}"
    await until(lambda: Path("/store/commitlog") / name in storage.files)
    await until(lambda: is_locked(storage, name))

    assert pieces(storage, LOG_FILE_SIZE) == WHOLE
    await store.shutdown()


async def test_a_full_file_is_unlocked(clock, storage):
    store = await started(clock, storage)
    put(store)
    await until(lambda: is_locked(storage, f"{0:020}"))

    while store.max_commit_log_offset <= LOG_FILE_SIZE:
        put(store, body=b"x" * 1000)

    await until(lambda: not is_locked(storage, f"{0:020}"))
    await until(lambda: is_locked(storage, f"{LOG_FILE_SIZE:020}"))
    await store.shutdown()


@pytest.mark.parametrize(
    ("flush_disk_type", "flushes"), [("SYNC_FLUSH", len(WHOLE)), ("ASYNC_FLUSH", 0)]
)
async def test_synchronous_flush_makes_warmed_pages_durable(
    clock, storage, flush_disk_type, flushes
):
    # Only the warm-up reopens files of the log.
    store = await started(clock, storage, flush_disk_type=flush_disk_type)
    before = storage.calls["open"]
    store.files.log.make_room(100)
    await until(lambda: is_locked(storage, f"{0:020}"))

    assert storage.calls["open"] - before == flushes + 1
    await store.shutdown()


async def test_a_file_that_cannot_be_locked_is_still_warmed(clock, storage, caplog):
    storage.fail("lock_memory", error=errno.EPERM)
    store = await started(clock, storage)
    for _ in range(40):
        assert put(store, body=b"x" * 5000).status is PutMessageStatus.PUT_OK
    await until(lambda: storage.calls["lock_memory"] > 0)

    assert len(read_all(store)) == 40
    assert sum("memory not locked" in entry.message for entry in caplog.records) == 1
    await store.shutdown()


async def test_a_flush_that_fails_while_warming_stops_the_warming(clock, storage, caplog):
    store = await started(clock, storage, flush_disk_type="SYNC_FLUSH")
    storage.fail("fdatasync")
    store.files.log.make_room(100)
    await until(lambda: any("warm-up stopped" in entry.message for entry in caplog.records))

    assert pieces(storage, 0) == WHOLE[:1]
    assert storage.locked == []
    storage.heal("fdatasync")
    await store.shutdown()


async def test_closing_a_store_ends_its_warming(clock, storage):
    store = await started(clock, storage)
    while store.max_commit_log_offset <= LOG_FILE_SIZE // 2:
        put(store, body=b"x" * 1000)

    await store.shutdown()

    again = a_store(clock, storage)
    again.load()
    assert len(read_all(again)) == 30
    again.close()
