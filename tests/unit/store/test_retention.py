"""Expiry, and the effect of a full disk."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from datetime import UTC, datetime, timedelta

import pytest

from broker_core.storage import FileStorage
from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.results import GetMessageStatus, PutMessageStatus
from tests.support.builders import LOG_FILE_SIZE, a_store, get, put, read_all, store_config
from tests.support.clock import ManualClock

HOUR_MS = 3_600_000


def at_hour(hour: int) -> int:
    """Return a wall time in this local hour."""
    local = datetime(2026, 6, 15, 12, 30, tzinfo=UTC).astimezone()
    return int((local + timedelta(hours=hour - local.hour)).timestamp() * 1000)


async def run(task, clock) -> None:
    """Run a task that pauses between files."""
    running = asyncio.ensure_future(task)  # noqa: TID251  the test owns the task
    while not running.done():
        clock.advance_ms(100)
        await asyncio.sleep(0)
    await running


async def filled(storage, hour: int = 4, **changes: object):
    clock = ManualClock(now_ms=at_hour(hour))
    store = a_store(clock, storage, store_config(**changes))
    store.load()
    await store.start()
    for n in range(700):
        put(store, body=b"x" * 300, keys=f"k{n}")
    store.files.log.flushed_where = store.max_commit_log_offset
    for path, inode in storage.files.items():
        if path.parent.name == "commitlog":
            inode.modified_ms = clock.now_ms()
    return store, clock


async def test_files_are_deleted_after_their_time_at_the_configured_hour(storage):
    store, clock = await filled(storage, file_reserved_time=24)
    before = len(store.files.log.files)
    await run(store.retention.clean(), clock)
    assert len(store.files.log.files) == before

    clock.advance_ms(24 * HOUR_MS)
    await run(store.retention.clean(), clock)

    assert before > 3
    assert len(store.files.log.files) == 1
    assert [path for path in storage.unclosed_files() if path not in storage.files] == []
    await store.shutdown()


async def test_listeners_learn_which_messages_of_a_queue_expired(storage):
    store, clock = await filled(storage, file_reserved_time=24)
    reports = []
    store.retention.on_expired = lambda *queue: reports.append(queue)

    clock.advance_ms(24 * HOUR_MS)
    await run(store.retention.clean(), clock)

    ((topic, queue_id, first, end),) = reports
    assert (topic, queue_id, first) == ("TopicTest", 0, 0)
    assert end == store.min_offset_in_queue("TopicTest", 0) > 0
    await store.shutdown()


async def test_nothing_is_deleted_at_another_hour(storage):
    store, clock = await filled(storage, hour=11, file_reserved_time=24)
    before = len(store.files.log.files)
    clock.advance_ms(24 * HOUR_MS)

    await run(store.retention.clean(), clock)

    assert len(store.files.log.files) == before
    store.delete_expired_files_soon()
    await run(store.retention.clean(), clock)
    assert len(store.files.log.files) == 1
    await store.shutdown()


async def test_readers_of_a_deleted_file_continue(storage):
    store, clock = await filled(storage, file_reserved_time=1)
    held = get(store, 0).buffers[0]
    text = bytes(held)
    clock.advance_ms(24 * HOUR_MS)

    await run(store.retention.clean(), clock)

    assert bytes(held) == text
    await store.shutdown()


async def test_the_loop_does_not_wait_for_the_kernel_to_free_a_deleted_files_pages(tmp_path):
    clock = ManualClock(now_ms=at_hour(4))
    store = a_store(clock, FileStorage(), store_config(store_path_root_dir=str(tmp_path)))
    store.load()
    await store.start()
    for _ in range(700):
        put(store, body=b"x" * 300)
    store.files.log.flushed_where = store.max_commit_log_offset
    gone_in: list[str] = []
    watches = [
        weakref.ref(mapped.buffer, lambda _: gone_in.append(threading.current_thread().name))
        for mapped in store.files.log.files[:-1]
    ]
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (0, 0))

    await run(store.retention.clean(), clock)
    await store.shutdown()

    assert len(watches) > 2
    assert [name.partition("_")[0] for name in gone_in] == ["allocate"] * len(watches)


async def test_queues_and_index_follow_the_log(storage):
    store, clock = await filled(storage, file_reserved_time=1)
    clock.advance_ms(24 * HOUR_MS)
    await run(store.retention.clean(), clock)

    low = store.min_offset_in_queue("TopicTest", 0)

    assert low > 100
    assert store.min_commit_log_offset % LOG_FILE_SIZE == 0
    assert [m.queue_offset for m in read_all(store)] == list(range(low, 700))
    assert get(store, low - 1).status is GetMessageStatus.OFFSET_TOO_SMALL
    units = [path for path in storage.files if "consumequeue" in path.parts]
    assert len(units) == 7 - low // 100
    assert store.query_message("TopicTest", "k0", 32, 0, 1 << 60) == []
    assert len(store.query_message("TopicTest", "k699", 32, 0, 1 << 60)) == 1
    await store.shutdown()


async def test_a_wall_clock_step_expires_nothing(storage):
    store, clock = await filled(storage, file_reserved_time=24)
    before = len(store.files.log.files)

    clock.step_wall_clock_ms(365 * 24 * HOUR_MS)
    await run(store.retention.clean(), clock)

    assert len(store.files.log.files) == before
    await store.shutdown()


@pytest.mark.parametrize(
    ("used", "expired", "gone"),
    [
        (70, True, False),
        (75, True, False),
        (80, True, True),
        (80, False, False),
        (85, False, False),
        (88, False, True),
    ],
)
async def test_disk_usage_decides_which_files_are_deleted(storage, used, expired, gone):
    store, clock = await filled(storage, hour=11, file_reserved_time=24)
    if expired:
        clock.advance_ms(24 * HOUR_MS)
    storage.used_bytes, storage.free_bytes = used << 30, (100 - used) << 30

    await run(store.retention.clean(), clock)

    assert (store.min_commit_log_offset > 0) is gone
    await store.shutdown()


async def test_beyond_90_percent_writes_are_rejected_and_reads_continue(storage):
    store, clock = await filled(storage)
    storage.used_bytes, storage.free_bytes = 91 << 30, 9 << 30
    await asyncio.sleep(0)
    clock.advance_ms(10_000)
    await asyncio.sleep(0)

    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert get(store, 0).status is GetMessageStatus.FOUND
    assert store.runtime_info()["storeState"] == "read-only: the disk is full"

    storage.used_bytes, storage.free_bytes = 60 << 30, 40 << 30
    clock.advance_ms(10_000)
    await asyncio.sleep(0)
    assert put(store).status is PutMessageStatus.PUT_OK
    await store.shutdown()


async def test_writes_continue_at_up_to_90_percent(storage):
    store, _ = await filled(storage)
    storage.used_bytes, storage.free_bytes = 90 << 30, 10 << 30

    store.retention.check_disk()

    assert put(store).status is PutMessageStatus.PUT_OK
    await store.shutdown()


async def test_the_last_file_is_never_deleted(storage):
    store, clock = await filled(storage, file_reserved_time=1)
    storage.used_bytes, storage.free_bytes = 88 << 30, 12 << 30

    for _ in range(3):
        await run(store.retention.clean(), clock)

    assert len(store.files.log.files) == 1
    await store.shutdown()


async def test_a_store_that_starts_on_a_full_disk_accepts_no_puts(clock, storage):
    store = a_store(clock, storage)
    store.load()
    storage.used_bytes, storage.free_bytes = 91 << 30, 9 << 30

    await store.start()

    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    await store.shutdown()


@pytest.mark.parametrize("error", [OSError(5, "cannot be deleted"), KeyError("of a bug")])
async def test_a_queue_that_cannot_expire_does_not_keep_others_from_expiring(
    storage, monkeypatch, error
):
    store, clock = await filled(storage, file_reserved_time=24)
    for topic in ("Bad", "Z"):
        put(store, topic=topic)
    queues = list(store.files.queues)
    bad, *others = queues
    clock.advance_ms(24 * HOUR_MS)
    delete_before = ConsumeQueue.delete_before

    def fail_for_one(self, commit_log_offset):
        if self is bad:
            raise error
        return delete_before(self, commit_log_offset)

    monkeypatch.setattr(ConsumeQueue, "delete_before", fail_for_one)
    await run(store.retention.clean(), clock)
    log_from = store.files.log.min_offset

    assert len(store.files.log.files) == 1
    assert all(queue.unit(queue.min_offset)[0] >= log_from for queue in others if queue.max_offset)


async def test_an_undeletable_log_file_stays_readable_and_is_deleted_later(storage, monkeypatch):
    store, clock = await filled(storage, file_reserved_time=24)
    clock.advance_ms(24 * HOUR_MS)
    unlink, before = storage.unlink, len(store.files.log.files)

    def refuse(path):
        raise OSError(30, "read-only")

    monkeypatch.setattr(storage, "unlink", refuse)
    await run(store.retention.clean(), clock)
    assert len(store.files.log.files) == before
    assert len(read_all(store)) == 700

    monkeypatch.setattr(storage, "unlink", unlink)
    await run(store.retention.clean(), clock)

    assert len(store.files.log.files) == 1
