"""Which half messages and ends of transactions the compiled turn accepts or leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.composition.native import build_plain_requests
from broker_core.processors.transaction import TransactionProcessor
from broker_core.trace.filter import TraceWatch
from broker_core.trace.watch import Watcher
from tests.support import transaction_frames
from tests.support.native_turn import TOPIC, a_twin, change, served, with_slave
from tests.support.send_frames import ONEWAY
from tests.support.transaction_frames import COMMIT, NOT_KNOWN, PLAIN, ROLLBACK
from tests.support.twins import Processors, is_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_core.transaction.half import Half
    from tests.support.twins import Twin

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)


@pytest.fixture
async def twin() -> AsyncIterator[Twin]:
    """A twin that has committed a transaction, so that its queues exist."""
    async for each in a_twin():
        await each.feed(a_half())
        await each.feed(an_end(undecided(each)))
        yield each


def a_half(more: str = "") -> bytes:
    return transaction_frames.half(TOPIC, 0, PLAIN + more, b"hello", 1)


def undecided(twin: Twin) -> Half:
    return next(iter(twin.parts.transactions.pending.values()))


def an_end(half: Half, outcome: int = COMMIT, *, flag: int = ONEWAY) -> bytes:
    fields = transaction_frames.end_fields(half.queue_offset, half.commit_log_offset, outcome)
    return transaction_frames.end(fields, 1, flag=flag)


def left(twin: Twin) -> dict[str, int]:
    """Return the requests that the turn left to Python, by reason."""
    turn = twin.wire.plain_requests
    assert turn is not None
    return {reason: count for reason, count in turn.fallbacks.items() if count}


async def left_for(twin: Twin, data: bytes) -> str:
    """Feed one request; return why the turn didn't accept it."""
    before = left(twin)
    assert await served(twin, data) == 0
    after = left(twin)
    (reason,) = [reason for reason, count in after.items() if count != before.get(reason, 0)]
    return reason


async def test_a_half_message_and_its_commit_are_accepted(twin: Twin) -> None:
    store = twin.parts.store
    assert await served(twin, a_half("WAIT\x01true\x02TAGS\x01TagA")) == 1
    assert await served(twin, an_end(undecided(twin))) == 1

    assert not twin.parts.transactions.pending
    assert store.max_offset_in_queue(TOPIC, 0) == 2
    assert store.max_offset_in_queue("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 2


async def test_an_end_and_the_next_half_message_in_one_read_are_both_processed(twin: Twin) -> None:
    await twin.feed(a_half())
    assert await served(twin, an_end(undecided(twin)) + a_half()) == 2
    assert len(twin.parts.transactions.pending) == 1


async def test_a_late_end_that_agrees_changes_nothing(twin: Twin) -> None:
    await twin.feed(a_half())
    half = undecided(twin)
    await twin.feed(an_end(half))
    before = twin.parts.store.max_commit_log_offset

    assert await left_for(twin, an_end(half)) == "transaction"
    assert twin.parts.store.max_commit_log_offset == before


@pytest.mark.parametrize("outcome", [ROLLBACK, NOT_KNOWN])
async def test_other_outcomes_are_left_to_python(twin: Twin, outcome: int) -> None:
    await twin.feed(a_half())
    assert await left_for(twin, an_end(undecided(twin), outcome)) == "transaction"


async def test_an_end_that_needs_an_answer_is_left_to_python(twin: Twin) -> None:
    await twin.feed(a_half())
    assert await left_for(twin, an_end(undecided(twin), flag=0)) == "header"


async def test_watched_requests_are_left_to_python(twin: Twin) -> None:
    twin.parts.tracer.watch("watcher", TraceWatch(stages=["withheld"]), Watcher(lambda _: True))
    assert await left_for(twin, a_half()) == "watched"
    assert await left_for(twin, an_end(undecided(twin))) == "watched"


async def test_a_commit_that_must_wait_is_left_to_python(twin: Twin) -> None:
    with_slave(twin)
    await twin.feed(a_half())
    assert await left_for(twin, an_end(undecided(twin))) == "acknowledgement"


async def test_disabled_half_messages_are_rejected(twin: Twin) -> None:
    change(twin, "rejectTransactionMessage", "true")
    assert await left_for(twin, a_half()) == "property"
    assert not twin.parts.transactions.pending

    change(twin, "rejectTransactionMessage", "false")
    assert await served(twin, a_half()) == 1


async def test_ends_are_left_to_python_if_an_account_is_needed(
    twin: Twin,
) -> None:
    gate: Any = object()
    guarded = TransactionProcessor(
        twin.foundation.store_host,
        4096,
        twin.parts.transactions,
        twin.parts.store,
        twin.foundation.counted_log,
        gate,
        twin.foundation.role,
    )
    turn = build_plain_requests(
        twin.foundation, twin.parts, Processors(twin.send, twin.pulls, guarded)
    )
    await twin.feed(a_half())
    twin.wire.plain_requests = turn
    await twin.feed(an_end(undecided(twin)))

    assert turn is not None
    assert turn.fallbacks["store"] == 1
