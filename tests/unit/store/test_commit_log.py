"""Which files make a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import StoreError
from broker_core.formats.paths import offset_file_name
from tests.support.builders import LOG_FILE_SIZE, a_store, log_bytes, put, read_all
from tests.support.gate import until

if TYPE_CHECKING:
    from tests.support.faulty_storage import FaultyStorage

DIRECTORY = Path("/store/commitlog")


async def two_files(clock, storage: FaultyStorage) -> int:
    """Leave a log of two files; return the number of its messages."""
    store = a_store(clock, storage)
    store.load()
    await store.start()
    while store.max_commit_log_offset <= LOG_FILE_SIZE:
        put(store, body=b"x" * 4000)
    count = len(read_all(store))
    await store.shutdown()
    # The preallocated file.
    for path in [path for path in storage.files if path.parent == DIRECTORY]:
        if int(path.name) > LOG_FILE_SIZE:
            storage.unlink(path)
    return count


def make(storage: FaultyStorage, name: str, size: int) -> Path:
    file = storage.open(DIRECTORY / name, create=True)
    if size:
        file.set_size(size)
    file.close()
    return DIRECTORY / name


async def test_a_created_but_unsized_file_is_removed(clock, storage):
    count = await two_files(clock, storage)
    empty = make(storage, offset_file_name(2 * LOG_FILE_SIZE), 0)

    store = a_store(clock, storage)
    store.load()

    assert empty not in storage.files
    assert len(read_all(store)) == count
    store.close()


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        (offset_file_name(2 * LOG_FILE_SIZE), LOG_FILE_SIZE - 1, f"has {LOG_FILE_SIZE - 1} bytes"),
        (offset_file_name(3 * LOG_FILE_SIZE), LOG_FILE_SIZE, "a file is missing before"),
        (f"{offset_file_name(2 * LOG_FILE_SIZE)}.gz", 9, "may be a renamed file of the store"),
    ],
)
async def test_a_file_of_no_log_keeps_a_store_from_starting(clock, storage, name, size, reason):
    await two_files(clock, storage)
    make(storage, name, size)
    store = a_store(clock, storage)

    with pytest.raises(StoreError, match=reason):
        store.load()
    assert storage.unclosed_files() == []


async def test_an_empty_file_between_others_is_not_a_log_file(clock, storage):
    await two_files(clock, storage)
    first = DIRECTORY / offset_file_name(0)
    storage.unlink(first)
    make(storage, first.name, 0)

    with pytest.raises(StoreError, match="has 0 bytes"):
        a_store(clock, storage).load()


async def test_after_a_put_with_read_ahead_the_next_ones_need_none(store):
    put(store)

    state = store.files.put_state
    assert state.limit - state.position > LOG_FILE_SIZE // 3


async def test_pages_are_touched_at_least_half_a_piece_ahead_of_the_puts(
    clock, storage, monkeypatch
):
    ahead = 16 * 1024
    monkeypatch.setattr("broker_core.store.commit_log.POPULATE_AHEAD", ahead)
    store = a_store(clock, storage)
    store.load()
    await store.start()

    def is_touched_ahead() -> bool:
        target = min(store.max_commit_log_offset + ahead // 2, LOG_FILE_SIZE)
        return any(
            int(path.name) + start + length >= target for path, start, length in storage.populated
        )

    while store.max_commit_log_offset < LOG_FILE_SIZE - 2_000:
        put(store, body=b"x" * 900)
        await until(is_touched_ahead)
    await store.shutdown()


async def test_no_read_crosses_a_log_file(store):
    log = store.files.log
    assert log.committed_view(0) is None
    while log.max_offset <= LOG_FILE_SIZE:
        put(store, body=b"x" * 4000)
    end = log.max_offset

    view = log.read(end - 10, 10)

    assert view is not None
    assert bytes(view) == log_bytes(store, end - 10)
    for offset, size in [(end - 10, 11), (LOG_FILE_SIZE - 5, 10), (0, 0), (end + LOG_FILE_SIZE, 1)]:
        assert log.read(offset, size) is None
    assert log.committed_view(end) is None
    assert log.written_view(end) is None
    assert log.committed_view(end + LOG_FILE_SIZE) is None


async def test_an_empty_log_may_start_with_any_file(store):
    log = store.files.log
    with pytest.raises(StoreError, match="the log cannot begin at offset 5"):
        log.begin_at(5)

    log.begin_at(3 * LOG_FILE_SIZE)

    assert put(store).commit_log_offset == log.min_offset == 3 * LOG_FILE_SIZE
    with pytest.raises(StoreError, match="the log cannot begin at offset 0"):
        log.begin_at(0)


async def test_a_record_across_the_end_of_a_file_is_not_appended(store):
    log = store.files.log
    log.append_data(memoryview(b"x" * (LOG_FILE_SIZE - 10)))

    with pytest.raises(ValueError, match="11 bytes cross the end of a file"):
        log.append_data(memoryview(b"y" * 11))

    assert log.max_offset == LOG_FILE_SIZE - 10
    log.append_data(memoryview(b"y" * 10))
    log.append_data(memoryview(b"z"))
    assert log_bytes(store, LOG_FILE_SIZE - 10) == b"y" * 10 + b"z"
    log.continue_at(0)


async def test_log_watchers_are_notified_once_of_its_growth(store):
    reports = []
    log = store.files.log
    log.on_growth = lambda: reports.append(log.max_offset)
    put(store)
    assert reports == []

    log.watch_growth()
    assert reports == []
    put(store)
    put(store)

    assert len(reports) == 1
