"""Transactions found by a start or a promotion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SteadyClock
from broker_core.transaction.resolve import Transactions
from tests.support.builders import HOST, put
from tests.support.transaction_store import COMMIT, GROUP, ROLLBACK, Transacted

if TYPE_CHECKING:
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage


async def test_a_restart_restores_undecided_transactions_and_their_check_counts(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage
) -> None:
    done = transacted.send(b"done")
    transacted.send(b"asked twice")
    transacted.end(done, COMMIT)
    await transacted.round()
    await transacted.round()
    transacted.send(b"fresh")
    await transacted.stop()

    again = Transacted(clock, storage)
    await again.start()

    counts = {half.check_times for half in again.transactions.pending.values()}
    assert counts == {2, 0}
    checks = await again.round()
    assert {one.message.properties["TRANSACTION_CHECK_TIMES"] for one in checks} == {"3", "1"}
    await again.stop()


async def test_progress_limits_a_restart_to_undecided_transactions(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage
) -> None:
    for _ in range(50):
        transacted.end(transacted.send(), COMMIT)
    waits = transacted.send(b"waits")
    for _ in range(50):
        transacted.end(transacted.send(), ROLLBACK)
    await transacted.stop()

    again = Transacted(clock, storage)
    await again.start()

    assert again.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 50
    assert again.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 50
    assert list(again.transactions.pending) == [waits.queue_offset]
    await again.stop()


async def test_a_start_reads_nothing_before_the_progress(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage
) -> None:
    """Earlier op messages may have expired."""
    transacted.send(b"decided")
    waits = transacted.send(b"waits")
    await transacted.stop()
    transacted.offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    transacted.offsets.persist()

    again = Transacted(clock, storage)
    await again.start()

    assert list(again.transactions.pending) == [waits.queue_offset]
    await again.stop()


async def test_a_damaged_half_message_does_not_hide_the_others(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage
) -> None:
    damaged, whole = transacted.send(b"damaged"), transacted.send(b"whole")
    other = put(transacted.store, "T")
    await transacted.stop()
    log = storage.open(Path("/store/commitlog") / f"{0:020d}")
    log.pwrite(damaged.commit_log_offset + 90, b"\xff" * 8)

    again = Transacted(clock, storage)
    await again.start()

    assert other.commit_log_offset > whole.commit_log_offset
    assert list(again.transactions.pending) == [whole.queue_offset]
    assert again.refusal(whole, COMMIT) is None
    await again.stop()


async def test_a_slave_that_becomes_master_rereads_undecided_transactions(
    transacted: Transacted,
) -> None:
    half, waits = transacted.send(b"decided"), transacted.send(b"waits")
    promoted = Transactions(
        transacted.store,
        transacted.offsets,
        transacted.topics.add,
        HOST,
        SteadyClock(transacted.clock),
    )
    promoted.load()
    assert len(promoted.pending) == 2
    transacted.end(half, COMMIT)

    promoted.load()

    assert list(promoted.pending) == [waits.queue_offset]


async def test_a_half_message_without_a_target_does_not_hide_the_others(
    transacted: Transacted, clock: ManualClock, storage: FaultyStorage
) -> None:
    half = put(transacted.store, "RMQ_SYS_TRANS_HALF_TOPIC", more={"PGROUP": GROUP})
    other = transacted.send(b"other")

    again = Transacted(clock, storage.crash())
    await again.start()

    assert list(again.transactions.pending) == [half.queue_offset, other.queue_offset]
    assert again.refusal(other, COMMIT) is None
    assert again.refusal(half, ROLLBACK) is None
    await again.stop()
