"""When data is durable, which notifications follow, and the effect of a failed flush."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from broker_core.formats import checkpoint
from broker_core.service import NO_THREAD
from broker_core.store import flush as store_flush
from broker_core.store.flush_thread import FlushThread
from broker_core.store.results import GetMessageStatus, PutMessageStatus
from tests.support.builders import (
    a_store,
    durable,
    get,
    log_bytes,
    messages_of,
    put,
    read_all,
    store_config,
)
from tests.support.faulty_storage import FaultyStorage
from tests.support.gate import Gate, until

if TYPE_CHECKING:
    from broker_core.store.flush import Flush
    from tests.support.clock import ManualClock


async def test_async_flush_flushes_by_interval(store, clock):
    put(store, body=b"x" * 20_000)
    await asyncio.sleep(0)

    clock.advance_ms(500)
    await until(lambda: store.flushed_where > 0)

    assert store.flushed_where == store.max_commit_log_offset


async def test_a_few_bytes_wait_for_the_thorough_interval(store, clock):
    put(store)
    await asyncio.sleep(0)
    for _ in range(19):
        clock.advance_ms(500)
        for _ in range(5):
            await asyncio.sleep(0)
        assert store.flushed_where == 0

    clock.advance_ms(500)
    await until(lambda: store.flushed_where > 0)


async def test_sync_flush_answers_when_the_log_is_durable(sync_store, storage):
    status = await durable(sync_store, put(sync_store))

    assert status is PutMessageStatus.PUT_OK
    assert sync_store.flushed_where == sync_store.max_commit_log_offset


async def test_puts_waiting_together_share_a_flush(sync_store, storage):
    await durable(sync_store, put(sync_store))
    before = storage.calls["fdatasync"]

    waits = [sync_store.acknowledge.until_acknowledged(put(sync_store)) for _ in range(100)]
    statuses = await asyncio.gather(*waits)

    assert set(statuses) == {PutMessageStatus.PUT_OK}
    assert storage.calls["fdatasync"] == before + 1


async def test_nothing_is_read_before_it_is_durable(sync_store, storage, arrived):
    gate = Gate(storage, "fdatasync")
    put(sync_store, keys="k")
    second = put(sync_store)
    wait = sync_store.acknowledge.until_acknowledged(second)
    await gate.until_entered()

    assert get(sync_store, 0).status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
    assert sync_store.max_offset_in_queue("TopicTest", 0) == 0
    assert sync_store.look_message(0) is None
    assert sync_store.query_message("TopicTest", "k", 32, 0, 1 << 60) == []
    assert arrived == []

    gate.open.set()
    await wait
    assert len(messages_of(get(sync_store, 0))) == 2
    assert arrived == [("TopicTest", 0, 2)]
    assert sync_store.look_message(0) is not None


async def test_messages_stored_during_a_flush_wait_for_the_next(sync_store, storage):
    gate = Gate(storage, "fdatasync")
    first = sync_store.acknowledge.until_acknowledged(put(sync_store))
    await gate.until_entered()
    second = sync_store.acknowledge.until_acknowledged(put(sync_store))
    gate.open.set()
    await first

    assert await second is PutMessageStatus.PUT_OK
    assert len(read_all(sync_store)) == 2


async def test_a_message_without_waiters_is_also_flushed_and_read(sync_store, arrived):
    put(sync_store)

    await until(lambda: arrived)
    assert len(read_all(sync_store)) == 1


async def test_a_slaves_log_is_flushed_by_interval_in_either_mode(clock, storage, sync_store):
    put(sync_store, body=b"x" * 20_000)
    slave_storage = FaultyStorage()
    config = store_config(broker_role="SLAVE", flush_disk_type="SYNC_FLUSH")
    slave = a_store(clock, slave_storage, config)
    slave.take_role(is_slave=True)
    slave.load()
    await slave.start()
    await asyncio.sleep(0)

    slave.files.log.append_data(memoryview(log_bytes(sync_store)))
    slave.replay.advance()
    clock.advance_ms(500)

    await until(lambda: slave.flushed_where == sync_store.max_commit_log_offset)
    await slave.shutdown()


async def pass_seconds(clock: ManualClock, seconds: int) -> None:
    """Advance second by second, each once all woken tasks sleep again."""
    for _ in range(5):
        await asyncio.sleep(0)
    sleepers = clock.waiting
    for _ in range(seconds):
        clock.advance_ms(1_000)
        await until(lambda: clock.waiting == sleepers)


def checkpointed(storage: FaultyStorage) -> int:
    """Return up to when the ConsumeQueues are durable."""
    page = storage.read(Path("/store/checkpoint"))
    return 0 if page is None else checkpoint.decode(page).logics_msg_timestamp


async def test_queues_are_flushed_by_interval_and_confirmed_at_the_thorough_one(
    store, storage, clock
):
    put(store)
    stored = put(store).store_timestamp
    await pass_seconds(clock, 59)
    assert store.files.queues.dirty
    assert checkpointed(storage) == 0

    await pass_seconds(clock, 1)

    assert checkpointed(storage) == stored
    assert not store.files.queues.dirty


async def test_a_queue_with_two_pages_of_units_need_not_wait_for_the_thorough_interval(
    store, storage, clock
):
    least = 2 * 4096 // 20
    for _ in range(least - 1):
        put(store, body=b"")
    await pass_seconds(clock, 1)
    assert store.files.queues.dirty

    put(store, body=b"")
    await pass_seconds(clock, 1)

    assert not store.files.queues.dirty
    first = Path("/store/consumequeue/TopicTest/0") / f"{0:020d}"
    assert any(storage.files[first].durable)
    assert checkpointed(storage) == 0


async def test_one_of_many_queues_waits_for_more_pages_or_for_the_thorough_interval(
    store, storage, clock
):
    crowd = 2 * store_flush.QUEUES_AT_ONCE
    for queue_id in range(crowd):
        put(store, queue_id=queue_id, body=b"")
    least = 2 * 4096 // 20
    for _ in range(2 * least - 2):
        put(store, body=b"")
    await pass_seconds(clock, 1)
    assert len(store.files.queues.dirty) == crowd

    stored = put(store, body=b"").store_timestamp
    await pass_seconds(clock, 1)

    assert [queue.queue_id for queue in store.files.queues.dirty] == list(range(1, crowd))
    await pass_seconds(clock, 58)
    assert not store.files.queues.dirty
    assert checkpointed(storage) == stored


async def test_a_failed_flush_is_never_retried(sync_store, storage):
    storage.fail("fdatasync")
    await durable(sync_store, put(sync_store))
    calls = storage.calls["fdatasync"]
    storage.heal("fdatasync")

    assert put(sync_store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    await asyncio.sleep(0)
    assert storage.calls["fdatasync"] == calls
    assert sync_store.runtime_info()["storeState"].startswith("read-only after a failed write")
    assert sync_store.availability.failure.errno == errno.EIO


async def test_any_error_raised_by_a_flush_ends_acknowledgement(sync_store, storage):
    def raise_value_error(call: str) -> None:
        if call == "fdatasync":
            raise ValueError("no file any more")

    storage.on_call = raise_value_error

    assert await durable(sync_store, put(sync_store)) is PutMessageStatus.SERVICE_NOT_AVAILABLE
    storage.on_call = None
    assert isinstance(sync_store.availability.failure, OSError)
    assert "no file any more" in sync_store.runtime_info()["storeState"]


async def test_reads_continue_up_to_the_flushed_offset(sync_store, storage):
    await durable(sync_store, put(sync_store, body=b"safe"))
    storage.fail("fdatasync")
    await durable(sync_store, put(sync_store, body=b"unsafe"))

    assert [m.body for m in read_all(sync_store)] == [b"safe"]


async def test_async_flush_also_stops_at_a_failed_flush(store, storage, clock):
    put(store, body=b"x" * 20_000)
    storage.fail("fdatasync")
    await asyncio.sleep(0)
    clock.advance_ms(500)
    await until(lambda: not store.is_writable)

    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert get(store, 0).status is GetMessageStatus.OFFSET_OVERFLOW_ONE


async def test_after_a_failed_flush_the_exit_is_not_clean(clock, storage):
    store = a_store(clock, storage, store_config(flush_disk_type="SYNC_FLUSH"))
    store.load()
    await store.start()
    storage.fail("fdatasync")
    await durable(store, put(store))
    await store.shutdown()
    storage.heal("fdatasync")

    again = a_store(clock, storage)
    assert not again.load().clean_exit
    again.close()


async def test_a_shutdown_flushes_everything_and_is_clean(clock, storage):
    store = a_store(clock, storage)
    store.load()
    await store.start()
    for _ in range(10):
        put(store)
    await store.shutdown()

    again = a_store(clock, storage.cut_power())
    report = again.load()
    assert report.clean_exit
    assert len(read_all(again)) == 10
    again.close()


async def test_an_untimed_flush_is_triggered_by_enough_pages(clock, storage):
    store = a_store(clock, storage, store_config(flush_commit_log_timed=False))
    store.load()
    await store.start()
    put(store)
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.flushed_where == 0

    while store.max_commit_log_offset < 17_000:
        put(store, body=b"x" * 1000)
    await until(lambda: store.flushed_where >= 16_384)
    await store.shutdown()


@pytest.mark.parametrize(("missing", "is_flushed"), [(0, True), (1, False)])
async def test_an_untimed_flush_takes_exactly_the_minimum_pages(
    clock, storage, monkeypatch, missing, is_flushed
):
    store = a_store(clock, storage, store_config(flush_commit_log_timed=False))
    store.load()
    await store.start()
    overhead = put(store, body=b"").wrote_size
    assert await store.flush()
    least = 4 * 4096 - missing
    hand, handed = FlushThread.submit, []

    def note(thread, files, done):
        handed.append(files)
        hand(thread, files, done)

    monkeypatch.setattr(FlushThread, "submit", note)
    assert put(store, body=b"x" * (least - overhead)).wrote_size == least
    for _ in range(5):
        await asyncio.sleep(0)

    assert bool(handed) is is_flushed
    await store.shutdown()


@pytest.mark.parametrize(("missing", "is_flushed"), [(0, True), (1, False)])
async def test_an_interval_flushes_exactly_the_minimum_pages(store, clock, missing, is_flushed):
    overhead = put(store, body=b"").wrote_size
    assert await store.flush()
    before = store.flushed_where
    least = 4 * 4096 - missing
    assert put(store, body=b"x" * (least - overhead)).wrote_size == least

    await pass_seconds(clock, 1)

    assert store.flushed_where == before + (least if is_flushed else 0)


@pytest.mark.parametrize("mode", [{"flush_disk_type": "SYNC_FLUSH"}, {}])
async def test_a_limited_number_of_messages_waits_for_a_stalled_disk(
    clock, storage, monkeypatch, mode
):
    monkeypatch.setattr("broker_core.store.visibility.UNFLUSHED_MAX", 10)
    pooled = {} if mode else {"transient_store_pool_enable": True}
    store = a_store(clock, storage, store_config(**mode, **pooled))
    store.load()
    await store.start()
    gate = Gate(storage, "pwrite" if pooled else "fdatasync")

    statuses = [put(store).status for _ in range(12)]

    assert statuses[:10] == [PutMessageStatus.PUT_OK] * 10
    assert statuses[10:] == [PutMessageStatus.SERVICE_NOT_AVAILABLE] * 2
    assert "10 messages wait for the disk" in store.runtime_info()["storeState"]
    gate.open.set()
    await store.flush()
    assert put(store).status is PutMessageStatus.PUT_OK
    await store.shutdown()


async def test_each_flush_reports_how_many_messages_arrived_since_the_last(sync_store):
    flushes: list[Flush] = []
    sync_store.time_flushes(flushes.append)

    for count in (2, 3, 1):
        waits = [sync_store.acknowledge.until_acknowledged(put(sync_store)) for _ in range(count)]
        await asyncio.gather(*waits)

    assert [flush.together for flush in flushes] == [2, 3, 1]


@pytest.mark.parametrize("lack", [MemoryError(), RuntimeError(NO_THREAD)])
async def test_data_that_cannot_be_handed_to_the_thread_is_flushed_later(sync_store, clock, lack):
    with mock.patch.object(FlushThread, "submit", side_effect=lack):
        wait = sync_store.acknowledge.until_acknowledged(put(sync_store))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not wait.done()

    clock.advance_ms(1_000)

    assert await wait is PutMessageStatus.PUT_OK
    assert await durable(sync_store, put(sync_store)) is PutMessageStatus.PUT_OK


async def test_queues_with_a_failed_flush_are_in_no_checkpoint_and_stop_the_puts(store, storage):
    put(store)
    storage.fail("fdatasync", error=errno.EIO)

    await store.queue_flusher.flush()

    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.availability.failure.errno == errno.EIO
    assert checkpointed(storage) == 0
    storage.heal("fdatasync")


async def test_queues_without_memory_for_their_flush_are_in_no_checkpoint(clock, storage):
    """A start then reads the log again, because their units may not be on disk."""
    store = a_store(clock, storage)
    store.load()
    await store.start()
    put(store)
    with mock.patch.object(store_flush, "sync", side_effect=MemoryError):
        await store.queue_flusher.flush()
    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    await store.shutdown()

    again = a_store(clock, storage.cut_power(random.Random(1)))
    again.load()
    assert len(read_all(again)) <= 1
    assert again.files.checkpoint.logics_msg_timestamp == 0
    again.close()


async def test_without_an_index_a_checkpoint_does_not_mention_one(clock, storage):
    store = a_store(clock, storage, store_config(message_index_enable=False))
    store.load()
    await store.start()
    put(store)

    await store.shutdown()

    page = checkpoint.decode(storage.read(Path("/store/checkpoint")))
    assert page.index_msg_timestamp == 0
    assert page.logics_msg_timestamp > 0


async def test_a_failing_flush_listener_holds_back_no_later_one(sync_store):
    def fail(*_: object) -> None:
        raise KeyError("of a bug")

    heard: list[int] = []
    sync_store.time_flushes(fail)
    sync_store.on_flushed += [fail, lambda: heard.append(1)]

    for _ in range(2):
        await durable(sync_store, put(sync_store))

    assert sync_store.flushed_where == sync_store.max_commit_log_offset
    assert len(heard) >= 2


async def test_queues_with_an_unknown_flush_failure_get_no_checkpoint(store, storage, monkeypatch):
    put(store)
    await store.flush()

    def fail(*_: object) -> None:
        raise KeyError("of a bug")

    put(store)
    monkeypatch.setattr(store.files.queues, "take_files_to_flush", fail)
    await store.queue_flusher.flush()

    assert store.availability.failure is not None
