"""When a put is acknowledged on a SYNC_MASTER, and which messages are readable before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.store.flush_thread import FlushThread
from broker_core.store.results import PutMessageStatus
from tests.support.builders import a_store, put, read_all, store_config
from tests.support.gate import Gate, until

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult
    from tests.support.faulty_storage import FaultyStorage

OK = PutMessageStatus.PUT_OK
LATE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NO_SLAVE = PutMessageStatus.SLAVE_NOT_AVAILABLE


class Terms:
    slaves = 1
    timeout_s = 3.0
    fall_behind_max = 10_000


class Alone(Terms):
    slaves = 0


async def a_sync_master(clock: Clock, storage: FaultyStorage, **changes: Any) -> MessageStore:
    store = a_store(clock, storage, store_config(broker_role="SYNC_MASTER", **changes))
    store.take_role(is_slave=False, terms=Terms())
    store.load()
    await store.start()
    return store


@pytest.fixture
async def master(clock, storage):
    store = await a_sync_master(clock, storage)
    store.acknowledge.replicated(0)
    yield store
    await store.shutdown()
    assert clock.waiting == 0


@pytest.fixture
async def flushing_master(clock, storage):
    store = await a_sync_master(clock, storage, flush_disk_type="SYNC_FLUSH")
    store.acknowledge.replicated(0)
    yield store
    await store.shutdown()
    assert clock.waiting == 0


def wait_for(store: MessageStore, result: PutMessageResult) -> Any:
    return store.acknowledge.until_acknowledged(result)


def end_of(result: PutMessageResult) -> int:
    return result.commit_log_offset + result.wrote_size


async def test_a_put_counts_once_a_slave_has_it(master):
    result = put(master)
    wait = wait_for(master, result)
    master.acknowledge.replicated(end_of(result) - 1)
    assert not wait.done()
    master.acknowledge.replicated(end_of(result))

    assert await wait is OK
    assert wait_for(master, result) is None


async def test_one_report_ends_all_waits_that_it_covers(master):
    tasks = asyncio.all_tasks()
    results = [put(master) for _ in range(5)]
    waits = [wait_for(master, result) for result in results]
    assert asyncio.all_tasks() == tasks, "no task per send"
    master.acknowledge.replicated(end_of(results[3]))

    assert [wait.done() for wait in waits] == [True] * 4 + [False]


async def test_a_late_slave_is_a_timeout_and_the_message_stays(master, clock):
    wait = wait_for(master, put(master))
    clock.advance_ms(2_999)
    assert not wait.done()
    clock.advance_ms(1)

    assert await wait is LATE
    assert len(read_all(master)) == 1


async def test_without_a_slave_the_answer_reports_it_immediately(master):
    master.acknowledge.replicated(-1)

    assert await wait_for(master, put(master)) is NO_SLAVE
    await until(lambda: len(read_all(master)) == 1)


async def test_a_slave_far_behind_does_not_count(master):
    body = b"x" * 4_000
    results = [put(master, body=body) for _ in range(4)]

    assert await wait_for(master, results[-1]) is NO_SLAVE
    master.acknowledge.replicated(end_of(results[2]))
    late = wait_for(master, put(master, body=body))
    assert not late.done()


async def test_nothing_is_read_before_its_sender_is_answered(master, clock):
    result = put(master)
    wait = wait_for(master, result)
    await asyncio.sleep(0)
    assert read_all(master) == []
    assert master.look_message(result.commit_log_offset) is None
    assert master.acknowledge.acknowledged_where == 0
    master.acknowledge.replicated(end_of(result))

    assert await wait is OK
    assert len(read_all(master)) == 1
    assert master.look_message(result.commit_log_offset) is not None
    assert master.acknowledge.acknowledged_where == end_of(result)


async def test_a_put_without_waiters_becomes_visible_within_a_timeout(master, clock):
    put(master)
    await asyncio.sleep(0)
    clock.advance_ms(2_000)
    assert read_all(master) == []
    clock.advance_ms(1_000)

    assert len(read_all(master)) == 1


async def test_awaited_messages_stay_hidden_until_their_time_when_the_slave_leaves(master, clock):
    wait = wait_for(master, put(master))
    await asyncio.sleep(0)
    master.acknowledge.replicated(-1)
    await asyncio.sleep(0)
    assert read_all(master) == []
    assert not wait.done()
    clock.advance_ms(3_000)

    assert await wait is LATE
    assert len(read_all(master)) == 1


async def test_with_sync_flush_it_needs_the_disk_and_the_slave(flushing_master, storage, clock):
    gate = Gate(storage, "fdatasync")
    result = put(flushing_master)
    wait = wait_for(flushing_master, result)
    await gate.until_entered()
    flushing_master.acknowledge.replicated(end_of(result))
    await asyncio.sleep(0)
    assert not wait.done()
    assert read_all(flushing_master) == []
    gate.open.set()

    assert await wait is OK
    assert len(read_all(flushing_master)) == 1


async def test_with_sync_flush_a_late_disk_is_the_disks_timeout(flushing_master, storage, clock):
    gate = Gate(storage, "fdatasync")
    result = put(flushing_master)
    wait = wait_for(flushing_master, result)
    await gate.until_entered()
    flushing_master.acknowledge.replicated(end_of(result))
    clock.advance_ms(5_000)

    assert await wait is PutMessageStatus.FLUSH_DISK_TIMEOUT
    gate.open.set()


async def test_with_sync_flush_a_missing_slave_is_reported_after_the_flush(
    flushing_master, storage
):
    flushing_master.acknowledge.replicated(-1)
    result = put(flushing_master)
    wait = wait_for(flushing_master, result)
    assert not wait.done()

    assert await wait is NO_SLAVE
    assert flushing_master.flushed_where >= end_of(result)


async def test_a_failed_flush_ends_all_waits(flushing_master, storage):
    storage.fail("fdatasync")
    waits = [wait_for(flushing_master, put(flushing_master)) for _ in range(2)]

    for wait in waits:
        assert await wait is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert read_all(flushing_master) == []


async def test_after_a_failure_nothing_counts_that_is_missing_on_all_slaves(master):
    result = put(master)
    master.acknowledge.fail()

    assert await wait_for(master, result) is PutMessageStatus.SERVICE_NOT_AVAILABLE


async def test_in_sync_replicas_of_one_do_not_wait(clock, storage):
    store = a_store(clock, storage, store_config(broker_role="SYNC_MASTER"))
    store.take_role(is_slave=False, terms=Alone())
    store.load()
    await store.start()

    assert wait_for(store, put(store)) is None
    await until(lambda: len(read_all(store)) == 1)
    await store.shutdown()


async def test_data_present_at_the_start_can_be_read(clock, storage):
    store = await a_sync_master(clock, storage)
    put(store)
    await store.shutdown()
    again = await a_sync_master(clock, storage)

    assert len(read_all(again)) == 1
    await again.shutdown()


async def test_a_slave_accepts_no_puts_but_does_as_a_master(clock, storage):
    store = a_store(clock, storage, store_config(broker_role="SLAVE"))
    store.take_role(is_slave=True)
    store.load()
    await store.start()
    assert put(store).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.take_role(is_slave=False, terms=Terms())
    store.acknowledge.replicated(0)

    waiting = wait_for(store, put(store))
    assert not waiting.done()
    assert (store.acknowledge.waits, store.acknowledge.is_replicating) == (True, True)
    store.take_role(is_slave=False)
    assert waiting.result() is NO_SLAVE
    assert (store.acknowledge.waits, store.acknowledge.is_replicating) == (False, False)
    assert wait_for(store, put(store)) is None
    assert len(read_all(store)) == 2
    await store.shutdown()


async def test_too_few_replicas_reject_puts(master):
    master.availability.need_replicas(are_missing=True)
    assert put(master).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "minInSyncReplicas" in master.availability.text()
    master.availability.need_replicas(are_missing=False)

    assert put(master).status is OK


async def test_puts_wait_in_the_usual_way_as_far_as_slaves_have_the_log(master):
    put(master)
    end = master.max_commit_log_offset

    master.acknowledge.replicated(end)
    assert master.acknowledge.plain_limit == end + Terms.fall_behind_max
    # Such a slave has more than this log, so its report is about another log.
    master.acknowledge.replicated(end + 1)
    assert master.acknowledge.plain_limit == 0
    master.acknowledge.replicated(-1)
    assert master.acknowledge.plain_limit == -1


async def test_a_turns_puts_are_reported_together_when_slaves_have_the_last(master, clock):
    put(master)
    end = master.max_commit_log_offset
    waiters = [Waiting(), Waiting()]
    for waiter in waiters:
        master.acknowledge.report_together(end, waiter, clock.monotonic())
    master.acknowledge.replicated(end - 1)
    assert [waiter.statuses for waiter in waiters] == [[], []]
    master.acknowledge.replicated(end)

    assert [waiter.statuses for waiter in waiters] == [[OK], [OK]]


async def test_a_turns_puts_with_a_late_slave_time_out(master, clock):
    put(master)
    put_at = clock.monotonic()
    clock.advance_ms(1_000)
    waiter = Waiting()
    master.acknowledge.report_together(master.max_commit_log_offset, waiter, put_at)

    clock.advance_ms(1_999)
    assert waiter.statuses == []
    clock.advance_ms(1)

    assert waiter.statuses == [LATE]


async def test_a_turns_puts_are_flushed_and_wait_for_slaves(flushing_master, clock):
    put(flushing_master)
    end = flushing_master.max_commit_log_offset
    waiter = Waiting()
    flushing_master.acknowledge.report_together(end, waiter, clock.monotonic())
    await until(lambda: flushing_master.flushed_where == end)
    assert waiter.statuses == []

    flushing_master.acknowledge.replicated(end)

    assert waiter.statuses == [OK]


class Waiting:
    def __init__(self) -> None:
        self.statuses: list[PutMessageStatus] = []

    def end(self, status: PutMessageStatus) -> None:
        self.statuses.append(status)


async def test_before_the_first_report_no_slave_has_anything(clock, storage):
    store = await a_sync_master(clock, storage)
    assert store.acknowledge.replicated_where == -1
    store.acknowledge.replicated(0)
    assert store.acknowledge.replicated_where == 0

    store.take_role(is_slave=False, terms=Terms())

    assert store.acknowledge.replicated_where == -1
    assert await wait_for(store, put(store)) is NO_SLAVE
    await store.shutdown()


@pytest.mark.parametrize(("lacks", "is_shown"), [(10_000, True), (9_999, False)])
async def test_messages_without_waiters_are_shown_if_the_slave_is_too_far_behind(
    master, lacks, is_shown
):
    overhead = put(master, body=b"").wrote_size

    put(master, body=b"x" * (lacks - 2 * overhead))
    await asyncio.sleep(0)

    assert master.max_commit_log_offset == lacks
    assert len(read_all(master)) == (2 if is_shown else 0)


async def test_a_master_that_no_longer_waits_for_slaves_still_waits_for_its_disk(flushing_master):
    flushing_master.take_role(is_slave=False)

    assert flushing_master.acknowledge.waits
    assert await wait_for(flushing_master, put(flushing_master)) is OK


@pytest.mark.parametrize(("reach", "status"), [(10_000, NO_SLAVE), (9_999, None)])
async def test_a_slave_within_the_allowed_lag_is_waited_for(master, reach, status):
    overhead = put(master, body=b"").wrote_size

    wait = wait_for(master, put(master, body=b"x" * (reach - 2 * overhead)))

    assert (wait.result() if wait.done() else None) is status


async def test_with_sync_flush_a_missing_slave_is_reported_immediately_for_flushed_messages(
    flushing_master,
):
    flushing_master.acknowledge.replicated(-1)
    result = put(flushing_master)
    await until(lambda: flushing_master.flushed_where == end_of(result))

    wait = wait_for(flushing_master, result)

    assert wait.done()
    assert await wait is NO_SLAVE


async def test_with_sync_flush_and_in_sync_replicas_of_one_no_put_waits_in_the_usual_way(
    clock, storage
):
    store = a_store(clock, storage, store_config(flush_disk_type="SYNC_FLUSH"))
    store.take_role(is_slave=False, terms=Alone())
    store.load()
    await store.start()

    assert store.acknowledge.plain_limit == 0
    assert await wait_for(store, put(store)) is OK
    await store.shutdown()


async def test_waiting_only_for_a_slave_flushes_nothing(master, monkeypatch):
    handed: list[object] = []
    monkeypatch.setattr(FlushThread, "submit", lambda *flush: handed.append(flush))
    result = put(master)
    wait = wait_for(master, result)
    for _ in range(5):
        await asyncio.sleep(0)
    master.acknowledge.replicated(end_of(result))

    assert await wait is OK
    assert handed == []
    monkeypatch.undo()


async def test_each_put_without_waiters_has_its_own_time(master, clock):
    for wait_ms in (1_000, 2_000):
        put(master)
        await asyncio.sleep(0)
        clock.advance_ms(wait_ms)
    assert len(read_all(master)) == 1

    clock.advance_ms(2_999)
    assert len(read_all(master)) == 1
    clock.advance_ms(1)

    assert len(read_all(master)) == 2


async def test_no_timer_runs_when_everything_is_promised(master, clock):
    sleepers = clock.waiting
    result = put(master)
    master.acknowledge.replicated(end_of(result))
    await asyncio.sleep(0)

    assert len(read_all(master)) == 1
    assert clock.waiting == sleepers
