"""Late ends, and puts that failed at first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.message.names import (
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC as MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC as OP_TOPIC,
)
from broker_core.transaction.half import PlainHalf, withhold
from tests.support.builders import HOST, put
from tests.support.transaction_store import CHECK_MAX, COMMIT, FAILED, GROUP, ROLLBACK

if TYPE_CHECKING:
    from broker_core.store.results import PutMessageResult
    from broker_core.transaction.half import Outcome
    from tests.support.transaction_store import Transacted


async def parked(transacted: Transacted) -> PutMessageResult:
    """Send a half message and check it until it's parked; return it."""
    half = transacted.send(b"parked", UNIQ_KEY="U")
    for _ in range(CHECK_MAX + 1):
        await transacted.round()
    assert len(transacted.arrived(MAX_TIME_TOPIC)) == 1
    return half


async def test_a_parked_transaction_whose_commit_cannot_be_stored_stays_open(
    transacted: Transacted,
) -> None:
    half = await parked(transacted)
    with transacted.refused_copies():
        assert transacted.end(half, COMMIT) is FAILED

    ended = transacted.end(half, COMMIT)

    assert ended is not None
    assert transacted.bodies() == [b"parked"]


async def test_a_resumed_transaction_is_checked_from_the_first_time_on(
    transacted: Transacted,
) -> None:
    await parked(transacted)
    (message,) = transacted.arrived(MAX_TIME_TOPIC)

    transacted.transactions.resume(message)

    assert transacted.half_queue()[-1].properties["TRANSACTION_CHECK_TIMES"] == "0"
    (check,) = await transacted.round()
    assert check.message.properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_a_message_that_cannot_be_restored_is_rejected_and_stays_parked(
    transacted: Transacted,
) -> None:
    await parked(transacted)
    (message,) = transacted.arrived(MAX_TIME_TOPIC)
    with transacted.refused_copies():
        with pytest.raises(RequestRefusedError, match="SERVICE_NOT_AVAILABLE"):
            transacted.transactions.resume(message)

    assert not transacted.transactions.pending
    assert await transacted.round() == []


async def test_a_half_message_without_a_target_is_not_committed_and_can_be_rolled_back(
    transacted: Transacted,
) -> None:
    table = {"TRAN_MSG": "true", "PGROUP": GROUP}
    topic, queue_id = withhold(dict(table), "T", 0)
    half = put(transacted.store, topic, queue_id, body=b"lost", more=table)
    (message,) = transacted.half_queue()
    transacted.transactions.add(half, table, b"lost", message.born_timestamp, HOST)

    assert transacted.refusal(half, COMMIT) == "the half message has no destination"
    assert transacted.refusal(half, ROLLBACK) is None


async def test_a_commit_stored_by_the_native_turn_is_recorded(transacted: Transacted) -> None:
    table = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "U"}
    place = withhold(table, "T", 0)
    stored = put(transacted.store, *place, body=b"native", more=table)
    (message,) = transacted.half_queue()
    plain = PlainHalf(
        stored.queue_offset,
        stored.commit_log_offset,
        GROUP,
        "U",
        "T",
        0,
        message.born_timestamp,
        crc32(b"native"),
        6,
        "",
    )
    transacted.transactions.add_plain(plain, HOST)
    (half,) = transacted.transactions.pending.values()

    transacted.transactions.note_commit(half, 7)

    assert not transacted.transactions.pending
    assert transacted.transactions.half_progress == 1
    assert transacted.end(stored, COMMIT) is None
    assert transacted.refusal(stored, ROLLBACK) == "the transaction was committed"
    # The op message at 7 belongs to a decided one, so the progress can pass it.
    await transacted.transactions.settle_all()
    assert transacted.offsets.query("CID_RMQ_SYS_TRANS", OP_TOPIC, 0) == 8


async def test_pending_op_messages_are_written_in_one_go_and_not_retried_after_a_failure(
    transacted: Transacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = [transacted.send() for _ in range(3)]
    real, tried = transacted.store.put_message, 0

    def put_message(topic: str, *arguments: Any, **keys: Any) -> PutMessageResult:
        nonlocal tried
        tried += topic == OP_TOPIC
        return FAILED if topic == OP_TOPIC else real(topic, *arguments, **keys)

    with monkeypatch.context() as patch:
        patch.setattr(transacted.store, "put_message", put_message)
        for half in halves:
            transacted.end(half, COMMIT)
        assert tried == 3
        transacted.transactions.write_pending()
        assert tried == 4

    transacted.transactions.write_pending()

    assert not transacted.transactions.pending
    assert len(transacted.arrived(OP_TOPIC)) == 3


async def test_no_producer_is_checked_for_an_unstorable_copy_and_no_check_counts(
    transacted: Transacted,
) -> None:
    half = transacted.send()
    with transacted.refused_copies():
        assert await transacted.round() == []
    assert list(transacted.transactions.pending) == [half.queue_offset]

    (check,) = await transacted.round()

    assert check.message.properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_an_outcome_forgotten_by_memory_is_found_in_the_store(
    transacted: Transacted, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    monkeypatch.setattr("broker_core.transaction.resolve.ENDED_KEPT", 2)
    halves = [transacted.send(b"%d" % number) for number in range(4)]
    for half in halves:
        transacted.end(half, outcome)

    for half in halves:
        assert transacted.end(half, outcome) is None

    assert len(transacted.bodies()) == (4 if outcome is COMMIT else 0)
