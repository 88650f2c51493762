"""When a put is acknowledged, with which status, and when no sender has to wait."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker_core.store.results import PutMessageStatus
from tests.support.builders import a_store, durable, put, read_all, store_config
from tests.support.gate import Gate, until


async def test_async_flush_promises_nothing_to_wait_for(store):
    assert store.acknowledge.until_acknowledged(put(store)) is None
    assert not store.acknowledge.waits


async def test_a_rejected_message_is_not_waited_for(sync_store):
    refused = put(sync_store, topic="T" * 300)

    assert refused.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert sync_store.acknowledge.until_acknowledged(refused) is None


async def test_durable_data_is_not_waited_for(sync_store):
    result = put(sync_store)
    await durable(sync_store, result)

    assert sync_store.acknowledge.until_acknowledged(result) is None


async def test_a_slow_flush_is_a_timeout_and_the_message_stays(sync_store, storage, clock):
    gate = Gate(storage, "fdatasync")
    wait = sync_store.acknowledge.until_acknowledged(put(sync_store))
    await gate.until_entered()

    clock.advance_ms(4_999)
    assert not wait.done()
    clock.advance_ms(1)

    assert await wait is PutMessageStatus.FLUSH_DISK_TIMEOUT
    gate.open.set()
    await durable(sync_store, put(sync_store))
    assert len(read_all(sync_store)) == 2


async def test_each_wait_has_its_own_time(sync_store, storage, clock):
    gate = Gate(storage, "fdatasync")
    first = sync_store.acknowledge.until_acknowledged(put(sync_store))
    await gate.until_entered()
    clock.advance_ms(3_000)
    second = sync_store.acknowledge.until_acknowledged(put(sync_store))

    clock.advance_ms(2_000)
    assert first.done()
    assert not second.done()
    clock.advance_ms(3_000)

    assert await second is PutMessageStatus.FLUSH_DISK_TIMEOUT
    gate.open.set()


class Waiter:
    def __init__(self) -> None:
        self.statuses: list[PutMessageStatus] = []

    def end(self, status):
        self.statuses.append(status)


@pytest.mark.parametrize(
    ("call", "status"),
    [(None, PutMessageStatus.PUT_OK), ("fdatasync", PutMessageStatus.SERVICE_NOT_AVAILABLE)],
)
async def test_a_waiter_is_notified_once(sync_store, storage, clock, call, status):
    if call:
        storage.fail(call, error=errno.EIO)
    report = Waiter()

    assert sync_store.acknowledge.notify(put(sync_store), report, clock.monotonic())

    assert not report.statuses
    await until(lambda: report.statuses)
    clock.advance_ms(10_000)
    assert report.statuses == [status]


async def test_a_waiter_is_not_notified_if_there_is_nothing_to_wait_for(store, clock):
    report = Waiter()

    assert not store.acknowledge.notify(put(store), report, clock.monotonic())
    assert not report.statuses


async def test_after_a_failed_flush_nothing_is_acknowledged(sync_store, storage):
    await durable(sync_store, put(sync_store, body=b"safe"))
    storage.fail("fdatasync", error=errno.EIO)

    waiting = [sync_store.acknowledge.until_acknowledged(put(sync_store)) for _ in range(3)]
    statuses = await asyncio.gather(*waiting)

    assert set(statuses) == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
    assert put(sync_store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert not sync_store.is_writable


async def test_flush_waiters_are_notified_immediately_of_a_failed_commit(clock, storage):
    store = a_store(clock, storage, store_config(transient_store_pool_enable=True))
    store.load()
    await store.start()
    storage.fail("pwrite", error=errno.EIO)
    put(store)

    assert await store.flush() is False
    assert not store.is_writable
    await store.shutdown()


async def test_without_sync_flush_every_put_counts(store):
    put(store)

    assert store.acknowledge.acknowledged_where == store.max_commit_log_offset > 0


async def test_with_sync_flush_puts_count_up_to_the_last_flush(sync_store):
    result = put(sync_store)
    assert sync_store.acknowledge.acknowledged_where == 0

    await durable(sync_store, result)

    assert sync_store.acknowledge.acknowledged_where == sync_store.max_commit_log_offset > 0


async def test_puts_that_only_wait_for_the_disk_wait_wherever_they_end(sync_store, storage):
    assert sync_store.acknowledge.plain_limit > 1 << 60

    storage.fail("fdatasync", error=errno.EIO)
    await durable(sync_store, put(sync_store))

    assert sync_store.acknowledge.plain_limit == 0


async def test_without_a_reason_to_wait_the_plain_limit_is_0(store):
    assert store.acknowledge.plain_limit == 0


async def test_a_turns_puts_are_reported_together_when_the_last_is_durable(sync_store, clock):
    put(sync_store)
    report = Waiter()
    end = sync_store.max_commit_log_offset

    sync_store.acknowledge.report_together(end, report, clock.monotonic())

    assert not report.statuses
    await until(lambda: report.statuses)
    assert report.statuses == [PutMessageStatus.PUT_OK]
    assert sync_store.flushed_where == end


async def test_a_turns_puts_with_a_late_disk_time_out(sync_store, storage, clock):
    gate = Gate(storage, "fdatasync")
    put(sync_store)
    put_at = clock.monotonic()
    clock.advance_ms(1_000)
    report = Waiter()
    sync_store.acknowledge.report_together(sync_store.max_commit_log_offset, report, put_at)
    await gate.until_entered()

    clock.advance_ms(3_999)
    assert report.statuses == []
    clock.advance_ms(1)

    assert report.statuses == [PutMessageStatus.FLUSH_DISK_TIMEOUT]
    gate.open.set()


async def test_a_sender_that_cannot_be_notified_keeps_no_other_waiting(sync_store, storage):
    class Failing:
        def end(self, status):
            raise KeyError("of a bug")

    gate = Gate(storage, "fdatasync")
    report = Waiter()
    for waiter in (Failing(), report):
        end = sync_store.max_commit_log_offset + 1
        put(sync_store)
        sync_store.acknowledge.report_together(end, waiter, 0.0)
    gate.open.set()
    await durable(sync_store, put(sync_store))

    assert report.statuses == [PutMessageStatus.PUT_OK]
