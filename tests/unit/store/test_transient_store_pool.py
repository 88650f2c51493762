"""Buffered messages: visibility, loss by a kill, and exhausted buffers."""

from __future__ import annotations

import asyncio
import errno
import os
from resource import RLIM_INFINITY
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import StoreError
from broker_core.formats import checkpoint, record
from broker_core.store.flush_thread import FlushThread
from broker_core.store.results import GetMessageStatus, PutMessageStatus
from tests.support.builders import (
    LOG_FILE_SIZE,
    a_store,
    durable,
    get,
    messages_of,
    put,
    read_all,
    store_config,
)
from tests.support.faulty_storage import PAGE
from tests.support.gate import Gate, until

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.storage import Storage
    from broker_core.store.message_store import MessageStore
    from broker_core.store.visibility import Arrival


def pooled(**changes: Any) -> StoreConfig:
    return store_config(transient_store_pool_enable=True, **changes)


async def started(
    clock: Clock, storage: Storage, on_arrival: Arrival | None = None, **changes: Any
) -> MessageStore:
    store = a_store(clock, storage, pooled(**changes), on_arrival=on_arrival)
    store.load()
    await store.start()
    return store


@pytest.fixture
async def store(clock, storage, arrived):
    store = await started(clock, storage, lambda *place: arrived.append(place))
    yield store
    await store.shutdown()


def log_bytes(storage) -> list[bytes]:
    return [
        bytes(storage.files[path].data)
        for path in sorted(storage.files)
        if path.parent.name == "commitlog"
    ]


async def until_committed(store: MessageStore) -> None:
    await until(lambda: store.runtime_info()["remainHowManyDataToCommit"] == "0.0 B")


async def test_nothing_is_read_before_it_is_committed(store, storage, arrived):
    gate = Gate(storage, "pwrite")
    for n in range(3):
        put(store, body=b"x" * 10_000, keys=f"k{n}")
    await gate.until_entered()

    assert get(store, 0).status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
    assert store.max_offset_in_queue("TopicTest", 0) == 0
    assert store.query_message("TopicTest", "k0", 32, 0, 1 << 60) == []
    assert arrived == []
    assert store.runtime_info()["remainHowManyDataToCommit"] != "0.0 B"

    gate.open.set()
    await until_committed(store)
    assert len(messages_of(get(store, 0))) == 3
    assert arrived == [("TopicTest", 0, 3)]


async def test_a_waiting_message_is_found_by_its_log_offset(store):
    result = put(store, body=b"half")

    view = store.look_message(result.commit_log_offset)

    assert view is not None
    assert record.decode(view).body == b"half"
    assert store.look_message(result.commit_log_offset + result.wrote_size) is None


async def test_a_time_is_searched_among_readable_messages(store, storage, clock):
    first = put(store, body=b"x" * 20_000)
    await until_committed(store)
    gate = Gate(storage, "pwrite")
    for _ in range(5):
        clock.advance_ms(10)
        put(store, body=b"x" * 10_000)
    await gate.until_entered()

    assert store.offset_in_queue_by_time("TopicTest", 0, first.store_timestamp) == 0
    assert store.offset_in_queue_by_time("TopicTest", 0, first.store_timestamp + 5) == 1
    gate.open.set()


async def test_a_few_bytes_wait_for_the_interval(store, storage, clock):
    before = storage.calls["pwrite"]
    put(store)
    for _ in range(5):
        await asyncio.sleep(0)
    assert storage.calls["pwrite"] == before

    clock.advance_ms(200)
    await until_committed(store)
    assert len(read_all(store)) == 1


async def test_the_minimum_pages_are_committed_immediately(store):
    put(store, body=b"x" * 4 * PAGE)

    await until_committed(store)
    assert len(read_all(store)) == 1


async def test_a_kill_loses_only_waiting_data(store, storage, clock):
    for n in range(40):
        put(store, queue_id=n % 2, body=b"%d" % n + b"." * 1000, keys=f"k{n}", tags="T")
    await store.flush()
    for n in range(40, 60):
        put(store, queue_id=n % 2, body=b"%d" % n, keys=f"k{n}", tags="T")
    killed = storage.crash()

    again = a_store(clock, killed, pooled())
    report = again.load()

    assert report.damaged == []
    for queue_id in range(2):
        bodies = [message.body.rstrip(b".") for message in read_all(again, queue_id=queue_id)]
        assert bodies == [b"%d" % n for n in range(queue_id, 40, 2)]
        assert again.max_offset_in_queue("TopicTest", queue_id) == 20
    assert len(again.query_message("TopicTest", "k39", 32, 0, 1 << 60)) == 1
    assert again.query_message("TopicTest", "k40", 32, 0, 1 << 60) == []
    await again.start()
    assert put(again).queue_offset == 20
    await again.shutdown()


async def test_a_kill_during_a_commit_of_the_buffer_is_not_damage(store, storage, clock):
    await asyncio.sleep(0)
    bodies = [b"%d" % n + b"." * (n * 3371 % 9000) for n in range(10)]
    for body in bodies:
        put(store, body=body)
    nothing = storage.crash()
    await store.flush()
    path = next(path for path in storage.files if path.parent.name == "commitlog")
    whole = bytes(storage.files[path].data)
    found = set()
    # The kernel writes page by page, and a process may be killed between two pages.
    for written in range(0, store.max_commit_log_offset + PAGE, PAGE):
        killed = nothing.crash()
        killed.files[path].data[:written] = whole[:written]
        again = a_store(clock, killed)
        report = again.load()
        messages = read_all(again)
        assert report.damaged == []
        assert [message.body for message in messages] == bodies[: len(messages)]
        assert again.max_offset_in_queue("TopicTest", 0) == len(messages)
        found.add(len(messages))
        again.close()
    assert {0, len(bodies)} < found


async def test_data_is_committed_before_it_is_flushed(store, storage, clock):
    for _ in range(10):
        put(store)

    assert await store.flush()

    again = a_store(clock, storage.cut_power())
    again.load()
    assert len(read_all(again)) == 10
    again.close()


@pytest.mark.parametrize(("is_timed", "is_flushed"), [(False, True), (True, False)])
async def test_committed_data_is_flushed_immediately_unless_flushes_are_timed(
    clock, storage, monkeypatch, is_timed, is_flushed
):
    store = await started(clock, storage, flush_commit_log_timed=is_timed)
    hand, handed = FlushThread.submit, []

    def note(thread, files, done):
        handed.append(files)
        hand(thread, files, done)

    monkeypatch.setattr(FlushThread, "submit", note)
    put(store, body=b"x" * 4 * PAGE)
    assert handed == []

    await until_committed(store)
    for _ in range(5):
        await asyncio.sleep(0)

    assert bool(handed) is is_flushed
    await store.shutdown()


async def test_a_flush_covers_only_committed_data(store, storage, clock):
    first = put(store, body=b"x" * 20_000)
    await until_committed(store)
    await store.flush()
    clock.advance_ms(1)
    put(store)
    await store.queue_flusher.flush()

    page = checkpoint.decode(storage.read(store.files.paths.checkpoint))

    assert page.physic_msg_timestamp == first.store_timestamp
    assert page.logics_msg_timestamp > first.store_timestamp


async def test_a_shutdown_commits_and_flushes_everything_and_is_clean(clock, storage):
    store = await started(clock, storage)
    for _ in range(10):
        put(store)
    await store.shutdown()

    again = a_store(clock, storage.cut_power())
    assert again.load().clean_exit
    assert len(read_all(again)) == 10
    again.close()


async def test_returned_buffers_leave_nothing_in_the_next_file(clock, storage):
    store = await started(clock, storage, transient_store_pool_size=2)
    sizes = [(n * 7919) % 9000 for n in range(100)]
    for size in sizes:
        while put(store, body=b"y" * size).status is not PutMessageStatus.PUT_OK:
            await until_committed(store)
    await store.flush()

    assert store.max_commit_log_offset > 5 * LOG_FILE_SIZE
    assert [len(message.body) for message in read_all(store)] == sizes
    assert storage.calls["buffer"] == 2
    await store.shutdown()
    for data in log_bytes(storage):
        view, position = memoryview(data), 0
        while position < len(data) and data[position : position + 4] != bytes(4):
            head = record.examine(view, position, len(data), None, check_crc=True)
            position += record.BLANK_SIZE_MIN if head.is_blank else head.size
            if head.is_blank:
                break
        assert data.count(0, position) == len(data) - position


@pytest.mark.parametrize(
    ("fast_fail", "status"),
    [
        (False, PutMessageStatus.OS_PAGE_CACHE_BUSY),
        (True, PutMessageStatus.CREATE_MAPEDFILE_FAILED),
    ],
)
async def test_without_a_buffer_no_file_is_started(clock, storage, fast_fail, status):
    store = await started(
        clock,
        storage,
        transient_store_pool_size=2,
        fast_fail_if_no_buffer_in_store_pool=fast_fail,
    )
    gate = Gate(storage, "pwrite")
    last = result = put(store, body=b"x" * 5000)
    while result.status is PutMessageStatus.PUT_OK:
        last, result = result, put(store, body=b"x" * 5000)

    assert result.status is status
    assert store.is_transient_store_pool_deficient
    assert store.runtime_info()["remainTransientStoreBufferNumbs"] == "0"
    assert store.is_writable

    gate.open.set()
    await until(lambda: not store.is_transient_store_pool_deficient)
    assert put(store, body=b"x" * 5000).queue_offset == last.queue_offset + 1
    await store.shutdown()


async def test_after_a_failed_commit_nothing_is_accepted_and_it_is_not_retried(
    clock, storage, caplog
):
    store = await started(clock, storage)
    put(store, body=b"x" * 20_000)
    await until_committed(store)
    await store.flush()
    storage.fail("pwrite", error=errno.EIO)
    put(store, body=b"y" * 20_000)
    await until(lambda: not store.is_writable)
    calls = storage.calls["pwrite"]
    storage.heal("pwrite")

    clock.advance_ms(1_000)
    for _ in range(10):
        await asyncio.sleep(0)

    assert storage.calls["pwrite"] == calls
    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert [message.body[:1] for message in read_all(store)] == [b"x"]
    assert not await store.flush()
    await store.shutdown()
    again = a_store(clock, storage)
    assert not again.load().clean_exit
    again.close()


async def test_the_last_starts_file_is_written_without_a_buffer(clock, storage):
    store = await started(clock, storage)
    put(store)
    await store.shutdown()
    store = await started(clock, storage)
    before = storage.calls["pwrite"]

    put(store)
    await until(lambda: len(read_all(store)) == 2)

    assert storage.calls["pwrite"] == before
    await store.shutdown()


async def test_synchronous_flush_has_no_pool(clock, storage):
    store = await started(clock, storage, flush_disk_type="SYNC_FLUSH")
    await durable(store, put(store))

    assert storage.calls["buffer"] == 0
    assert not store.is_transient_store_pool_deficient
    info = store.runtime_info()
    assert info["remainTransientStoreBufferNumbs"] == "2147483647"
    assert "remainHowManyDataToCommit" not in info
    await store.shutdown()


async def test_a_batch_waits_like_a_message(store):
    item = b"\0\0\0\x1b" + bytes(8) + b"\0\0\0\x07" + b"\0\0\0\x05" + b"hello" + b"\0\0"
    result = store.put_batch(
        "TopicTest", 0, item * 2, "CLUSTER\x01c", sys_flag=0, born_timestamp=0, born_host=bytes(8)
    )
    assert result.status is PutMessageStatus.PUT_OK
    assert store.max_offset_in_queue("TopicTest", 0) == 0

    await store.flush()

    assert [message.body for message in read_all(store)] == [b"hello", b"hello"]


async def test_the_buffers_are_locked_in_memory(store, storage):
    await until(lambda: len(storage.locked) == 5)

    assert {len(buffer) for buffer in storage.locked} == {LOG_FILE_SIZE}


@pytest.mark.parametrize(("limit", "said_limit"), [(65_536, "65536"), (RLIM_INFINITY, "any")])
async def test_unlockable_memory_is_reported_once_and_used(
    clock, storage, caplog, monkeypatch, limit, said_limit
):
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    storage.fail("lock_memory", error=errno.ENOMEM)
    store = await started(clock, storage)
    put(store)
    await store.shutdown()

    report = [entry for entry in caplog.records if "memory not locked" in entry.message]
    assert len(report) == 1
    assert f"limit_bytes={said_limit}" in report[0].message


async def test_a_pool_larger_than_memory_is_reported_in_one_sentence(clock, storage):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    store = a_store(clock, storage, pooled(transient_store_pool_size=memory // LOG_FILE_SIZE + 1))

    with pytest.raises(StoreError, match=r"need \d+ bytes of memory"):
        store.load()


async def test_memory_that_stays_locked_does_not_prevent_a_shutdown(clock, storage, caplog):
    store = await started(clock, storage)
    await until(lambda: len(storage.locked) == 5)
    put(store)
    storage.fail("unlock_memory", error=errno.ENOMEM)

    await store.shutdown()

    again = a_store(clock, storage.cut_power())
    assert again.load().clean_exit
    assert len(read_all(again)) == 1
    again.close()
