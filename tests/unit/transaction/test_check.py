from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.message.names import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC as MAX_TIME_TOPIC
from broker_core.protocol.codes import ResponseCode
from broker_core.store.results import PutMessageResult, PutMessageStatus
from broker_core.transaction import check
from tests.support.native_turn import Terms
from tests.support.transaction_store import CHECK_MAX, COMMIT, INTERVAL_MS, ROLLBACK, Transacted

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.processors.wrappers.transaction_listener import Ask, ListenerAdapter
    from broker_core.store.acknowledge import Acknowledgement
    from broker_core.transaction.check import CheckedHalf
    from broker_core.transaction.half import Outcome
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

    Listened = Callable[[Ask], ListenerAdapter]

HOUR = 3_600_000


def with_slave(transacted: Transacted) -> Acknowledgement:
    """Make its broker a master with one slave that is fully caught up."""
    store = transacted.store
    store.take_role(is_slave=False, terms=Terms())
    store.acknowledge.replicated(store.max_commit_log_offset)
    return store.acknowledge


async def begun_round(transacted: Transacted) -> asyncio.Task[list[CheckedHalf]]:
    """Start a round, and run it as far as possible without its slave."""
    asking = asyncio.create_task(transacted.round())
    for _ in range(10):
        await asyncio.sleep(0)
    return asking


def assert_committed(
    transacted: Transacted, acknowledge: Acknowledgement, request: CheckedHalf
) -> None:
    """Commit the checked transactions; the slave has everything."""
    assert transacted.refusal(request, COMMIT) is None
    acknowledge.replicated(transacted.store.max_commit_log_offset)
    assert transacted.bodies() == [b"half"]


async def test_a_producer_is_checked_about_undecided_transactions(transacted: Transacted) -> None:
    half = transacted.send(b"body", "T", 3)

    (checked_half,) = await transacted.round()

    assert checked_half.message.body == b"body"
    assert checked_half.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert (checked_half.queue_offset, checked_half.commit_log_offset) != (
        half.queue_offset,
        half.commit_log_offset,
    )
    (original, copy) = transacted.half_queue()
    assert copy.queue_offset == checked_half.queue_offset
    assert copy.flag == original.flag == 7
    assert copy.born_timestamp == original.born_timestamp


async def test_no_producer_is_checked_before_the_timeout(transacted: Transacted) -> None:
    transacted.clock.advance_ms(INTERVAL_MS)
    transacted.send()
    transacted.clock.advance_ms(5_999)
    await transacted.check.check()
    assert transacted.requests == []

    transacted.clock.advance_ms(1)
    await transacted.check.check()
    assert len(transacted.requests) == 1


async def test_rounds_are_an_interval_apart(transacted: Transacted, clock: ManualClock) -> None:
    transacted.check.start()
    transacted.send()
    counts = []
    for milliseconds in (0, 59_999, 1, 30_000, 29_999, 1):
        clock.advance_ms(milliseconds)
        for _ in range(10):
            await asyncio.sleep(0)
        counts.append(len(transacted.requests))

    assert counts == [0, 0, 1, 1, 1, 2]


async def test_the_immunity_time_delays_the_check_and_counts_none(
    transacted: Transacted,
) -> None:
    transacted.send(CHECK_IMMUNITY_TIME_IN_SECONDS="3600")

    for _ in range(59):
        assert await transacted.round() == []
    (checked_half,) = await transacted.round()

    assert checked_half.message.properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_changed_settings_apply_from_the_next_round_on(
    transacted: Transacted,
) -> None:
    transacted.send()
    assert len(await transacted.round()) == 1

    transacted.settings = transacted.settings._replace(check_max=1)

    assert await transacted.round() == []
    assert transacted.arrived(MAX_TIME_TOPIC)


async def test_a_wall_clock_step_ages_nothing(transacted: Transacted) -> None:
    transacted.clock.advance_ms(INTERVAL_MS)
    transacted.send()
    transacted.clock.step_wall_clock_ms(100 * HOUR)
    transacted.clock.advance_ms(1_000)

    await transacted.check.check()

    assert transacted.requests == []
    assert transacted.bodies(MAX_TIME_TOPIC) == []


async def test_after_fifteen_checks_a_transaction_is_parked(transacted: Transacted) -> None:
    transacted.send(b"forgotten")
    for number in range(1, CHECK_MAX + 1):
        (checked_half,) = await transacted.round()
        assert checked_half.message.properties["TRANSACTION_CHECK_TIMES"] == str(number)

    assert await transacted.round() == []

    (parked,) = transacted.arrived(MAX_TIME_TOPIC)
    assert parked.body == b"forgotten"
    assert parked.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert MAX_TIME_TOPIC in transacted.topics
    assert await transacted.round() == []
    assert len(transacted.arrived(MAX_TIME_TOPIC)) == 1
    assert transacted.bodies() == []


async def test_without_a_producer_the_rounds_also_count(transacted: Transacted) -> None:
    transacted.has_producer = False
    transacted.send()

    for _ in range(CHECK_MAX + 1):
        await transacted.round()

    assert len(transacted.arrived(MAX_TIME_TOPIC)) == 1


async def test_messages_that_the_log_will_delete_are_parked(transacted: Transacted) -> None:
    transacted.send()
    transacted.clock.advance_ms(73 * HOUR)

    assert await transacted.round() == []

    assert len(transacted.arrived(MAX_TIME_TOPIC)) == 1


async def parked(transacted: Transacted) -> None:
    transacted.send(b"forgotten")
    for _ in range(CHECK_MAX + 1):
        await transacted.round()


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_a_producer_that_answers_late_is_processed_once(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage, outcome
) -> None:
    half = transacted.send(b"late")
    for _ in range(CHECK_MAX + 1):
        await transacted.round()
    other = ROLLBACK if outcome is COMMIT else COMMIT

    assert transacted.refusal(half, outcome) is None
    assert transacted.refusal(half, other) == f"the transaction was {outcome.value}"

    again = Transacted(clock, storage.crash())
    await again.start()
    assert again.refusal(half, other) == f"the transaction was {outcome.value}"
    assert again.refusal(half, outcome) is None
    assert again.bodies() == ([b"late"] if outcome is COMMIT else [])
    await again.stop()


async def test_parked_transactions_are_counted_by_group(
    transacted: Transacted, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker_core.transaction.check")
    for number in range(20):
        transacted.send(UNIQ_KEY=f"U{number}")
    for _ in range(CHECK_MAX + 1):
        await transacted.round()

    clock.advance_ms(60_000)

    parked = "undecided transaction parked group=pg"
    assert caplog.messages == [
        f"{parked} count=1 checks={CHECK_MAX} uniq_key=U0",
        f"{parked} count=19 checks={CHECK_MAX} uniq_key=U19",
    ]


async def test_transactions_without_a_producer_are_counted_by_group(
    transacted: Transacted, caplog: pytest.LogCaptureFixture
) -> None:
    transacted.has_producer = False
    for number in range(20):
        transacted.send(UNIQ_KEY=f"U{number}")

    await transacted.round()

    assert [one for one in caplog.messages if "no producer" in one] == [
        "no producer to check the transaction group=pg count=1 uniq_key=U0"
    ]


async def test_a_parked_transaction_is_resumed(transacted: Transacted) -> None:
    await parked(transacted)
    (message,) = transacted.arrived(MAX_TIME_TOPIC)

    transacted.transactions.resume(message)
    transacted.transactions.resume(message)

    (checked_half,) = await transacted.round()
    assert checked_half.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    transacted.end(checked_half, COMMIT)
    assert transacted.bodies() == [b"forgotten"]
    with pytest.raises(RequestRefusedError, match="the transaction was committed"):
        transacted.transactions.resume(message)


async def test_only_a_parked_transaction_is_resumed(transacted: Transacted) -> None:
    half = transacted.send()
    transacted.end(half, COMMIT)
    (message,) = transacted.arrived()

    with pytest.raises(RequestRefusedError, match="not a half message"):
        transacted.transactions.resume(message)


async def test_a_lost_half_message_is_forgotten(
    transacted: Transacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    transacted.send()
    monkeypatch.setattr(transacted.store, "look_message", lambda _: None)

    assert await transacted.round() == []

    assert not transacted.transactions.pending


async def test_a_long_grace_period_does_not_delay_a_restart(
    transacted: Transacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "SPAN_MAX", 10)
    half = transacted.send(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="36000")
    for _ in range(20):
        transacted.end(transacted.send(), ROLLBACK)

    assert await transacted.round() == []

    assert transacted.transactions.span == 1
    (copy,) = [m for m in transacted.half_queue() if "TRAN_PREPARED_QUEUE_OFFSET" in m.properties]
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(half.queue_offset)
    assert "TRANSACTION_CHECK_TIMES" not in copy.properties
    transacted.end(half, COMMIT)
    assert transacted.bodies() == [b"immune"]


async def test_with_sync_flush_the_check_is_sent_when_its_copy_can_be_read(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    transacted = Transacted(clock, storage, flush_disk_type="SYNC_FLUSH")
    await transacted.start()
    transacted.send()
    await transacted.store.flush()

    (checked_half,) = await transacted.round()

    assert transacted.refusal(checked_half, COMMIT) is None
    await transacted.store.flush()
    assert transacted.bodies() == [b"half"]
    await transacted.stop()


async def test_the_check_is_sent_when_slaves_have_its_copy(transacted: Transacted) -> None:
    acknowledge = with_slave(transacted)
    transacted.send()
    acknowledge.replicated(transacted.store.max_commit_log_offset)

    asking = await begun_round(transacted)
    assert transacted.requests == []
    acknowledge.replicated(transacted.store.max_commit_log_offset)
    (checked_half,) = await asking

    assert_committed(transacted, acknowledge, checked_half)


async def test_a_stalled_slave_delays_a_round_no_longer_than_a_sender(
    transacted: Transacted,
) -> None:
    acknowledge = with_slave(transacted)
    transacted.send()
    acknowledge.replicated(transacted.store.max_commit_log_offset)

    asking = await begun_round(transacted)
    transacted.clock.advance_ms(round(Terms.timeout_s * 1_000))
    (checked_half,) = await asking

    assert_committed(transacted, acknowledge, checked_half)


async def test_a_half_message_that_is_not_readable_yet_is_not_forgotten(
    transacted: Transacted,
) -> None:
    acknowledge = with_slave(transacted)
    transacted.settings = transacted.settings._replace(timeout_ms=500)
    half = transacted.send(b"kept")

    transacted.clock.advance_ms(600)
    await transacted.check.check()

    assert transacted.requests == []
    assert half.queue_offset in transacted.transactions.pending
    acknowledge.replicated(transacted.store.max_commit_log_offset)
    asking = asyncio.create_task(transacted.round())
    await asyncio.sleep(0)
    acknowledge.replicated(transacted.store.max_commit_log_offset)
    (checked_half,) = await asking
    assert checked_half.message.body == b"kept"


async def test_a_transaction_is_checked_on_demand_without_counting(
    transacted: Transacted,
) -> None:
    half = transacted.send(b"now")

    assert transacted.check.ask_now(half.queue_offset) is True
    transacted.has_producer = False
    assert transacted.check.ask_now(half.queue_offset) is False

    (checked_half,) = transacted.requests
    assert checked_half[1:] == (half.queue_offset, half.commit_log_offset)
    assert "TRANSACTION_CHECK_TIMES" not in checked_half.message.properties
    assert len(transacted.half_queue()) == 1
    assert transacted.check.ask_now(half.queue_offset + 1) is None
    transacted.end(half, COMMIT)
    assert transacted.check.ask_now(half.queue_offset) is None


@pytest.mark.parametrize("is_gone", [False, True])
async def test_no_producer_is_checked_for_a_lost_record_or_a_pending_outcome(
    transacted: Transacted, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    half = transacted.send()
    if is_gone:
        monkeypatch.setattr(transacted.store, "look_message", lambda _: None)
    else:
        failed = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        monkeypatch.setattr(transacted.store, "put_message", lambda *_, **__: failed)
        transacted.end(half, ROLLBACK)

    assert half.queue_offset in transacted.transactions.pending
    assert transacted.check.ask_now(half.queue_offset) is None
    assert transacted.requests == []


class Resolved:
    """A listener that ends transactions checked too often."""

    def __init__(self, ask: Ask, outcome: Outcome) -> None:
        self.ask = ask
        self._outcome = outcome

    def resolve_discard(self, half: object, message: object) -> Outcome:
        return self._outcome


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_a_listener_ends_transactions_that_were_checked_too_often(
    clock: ManualClock,
    storage: FaultyStorage,
    caplog: pytest.LogCaptureFixture,
    outcome: Outcome,
) -> None:
    listened = cast("Listened", lambda ask: Resolved(ask, outcome))
    transacted = Transacted(clock, storage, listened=listened)
    await transacted.start()
    transacted.send(b"forgotten", UNIQ_KEY="U")
    caplog.clear()

    for _ in range(CHECK_MAX + 1):
        await transacted.round()

    assert transacted.bodies() == ([b"forgotten"] if outcome is COMMIT else [])
    assert transacted.arrived(MAX_TIME_TOPIC) == []
    assert not transacted.transactions.pending
    assert caplog.messages == [
        "undecided transaction ended group=pg count=1 "
        f"outcome={outcome.value} checks={CHECK_MAX} uniq_key=U status=PUT_OK"
    ]
    await transacted.stop()


async def test_a_listener_whose_decision_is_rejected_is_called_again(
    clock: ManualClock,
    storage: FaultyStorage,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transacted = Transacted(
        clock, storage, listened=cast("Listened", lambda ask: Resolved(ask, COMMIT))
    )
    await transacted.start()
    transacted.send(b"forgotten", UNIQ_KEY="U")
    for _ in range(CHECK_MAX):
        await transacted.round()
    caplog.clear()

    def refuse(*_: object) -> None:
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(transacted.transactions, "end", refuse)
        await transacted.round()
    assert [line.rpartition("status=")[2] for line in caplog.messages] == ["not now"]
    assert transacted.bodies() == []

    await transacted.round()

    assert transacted.bodies() == [b"forgotten"]
    await transacted.stop()


async def test_progress_is_committed_each_second(transacted: Transacted) -> None:
    transacted.check.start()
    transacted.end(transacted.send(), COMMIT)
    await transacted.store.flush()

    known = []
    for milliseconds in (0, 999, 1):
        transacted.clock.advance_ms(milliseconds)
        for _ in range(10):
            await asyncio.sleep(0)
        known.append(transacted.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0))

    assert known == [-1, -1, 1]


async def test_other_work_runs_between_the_parts_of_a_long_round(transacted: Transacted) -> None:
    for _ in range(check.HALVES_PER_TURN + 1):
        transacted.send()
    transacted.clock.advance_ms(INTERVAL_MS)

    checking = asyncio.create_task(transacted.check.check())
    await asyncio.sleep(0)

    assert len(transacted.requests) == check.HALVES_PER_TURN
    await checking
    assert len(transacted.requests) == check.HALVES_PER_TURN + 1


async def test_a_failed_parking_is_repeated_by_a_later_round(
    transacted: Transacted, caplog: pytest.LogCaptureFixture
) -> None:
    transacted.send(b"forgotten")
    for _ in range(CHECK_MAX):
        await transacted.round()
    caplog.set_level(logging.INFO, "broker_core.transaction.check")
    with transacted.refused_copies():
        await transacted.round()
    assert transacted.transactions.pending
    assert caplog.messages == []

    await transacted.round()

    assert not transacted.transactions.pending
    assert transacted.bodies(MAX_TIME_TOPIC) == [b"forgotten"]


async def test_after_a_restart_a_copy_is_still_as_old_as_its_transaction(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage
) -> None:
    """Otherwise a transaction that is checked all the time would never be given up."""
    transacted.send(b"old")
    clock.advance_ms(72 * HOUR - 2 * INTERVAL_MS)
    assert len(await transacted.round()) == 1
    await transacted.stop()
    again = Transacted(clock, storage)
    await again.start()

    clock.advance_ms(INTERVAL_MS)
    assert await again.round() == []

    assert again.bodies(MAX_TIME_TOPIC) == [b"old"]
    await again.stop()


async def test_transactions_left_by_an_earlier_run_are_checked_immediately(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage
) -> None:
    transacted.send(CHECK_IMMUNITY_TIME_IN_SECONDS="0")
    await transacted.stop()
    clock.step_wall_clock_ms(-HOUR)

    again = Transacted(clock, storage)
    await again.start()
    await again.check.check()

    assert len(again.requests) == 1
    await again.stop()


async def test_a_listener_may_itself_end_transactions_checked_too_often(
    clock: ManualClock, storage: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    class Ending(Resolved):
        def resolve_discard(self, half: object, message: object) -> Outcome:
            transacted.end(cast("CheckedHalf", half), COMMIT)
            return COMMIT

    transacted = Transacted(
        clock, storage, listened=cast("Listened", lambda ask: Ending(ask, COMMIT))
    )
    await transacted.start()
    transacted.send(b"forgotten", UNIQ_KEY="U")
    for _ in range(CHECK_MAX + 1):
        await transacted.round()

    assert transacted.bodies() == [b"forgotten"]
    assert caplog.messages[-1].endswith("status=ended before")
    await transacted.stop()
