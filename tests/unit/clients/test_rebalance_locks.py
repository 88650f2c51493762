from __future__ import annotations

import pytest

from broker_core.clients.rebalance_locks import LockedQueue, RebalanceLocks
from broker_core.config.limits import LimitsConfig
from broker_core.errors import RequestRefusedError
from tests.support.clock import ManualClock

QUEUE = LockedQueue("T", "broker-a", 0)


def test_a_locked_queue_is_denied_to_others() -> None:
    locks = RebalanceLocks(ManualClock())

    assert locks.lock("g", [QUEUE], "one") == [QUEUE]
    assert locks.lock("g", [QUEUE], "two") == []


def test_each_group_has_its_own_locks() -> None:
    locks = RebalanceLocks(ManualClock())
    locks.lock("g", [QUEUE], "one")

    assert locks.lock("h", [QUEUE], "two") == [QUEUE]


def test_a_lock_expires_after_a_minute() -> None:
    clock = ManualClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", [QUEUE], "one")

    clock.advance_ms(59_999)
    assert locks.lock("g", [QUEUE], "two") == []
    clock.advance_ms(1)
    assert locks.lock("g", [QUEUE], "two") == [QUEUE]


def test_locking_again_restarts_the_minute() -> None:
    clock = ManualClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", [QUEUE], "one")
    clock.advance_ms(50_000)
    locks.lock("g", [QUEUE], "one")
    clock.advance_ms(50_000)

    assert locks.lock("g", [QUEUE], "two") == []


def test_only_the_owner_unlocks() -> None:
    locks = RebalanceLocks(ManualClock())
    locks.lock("g", [QUEUE], "one")

    locks.unlock("g", [QUEUE], "two")
    assert locks.lock("g", [QUEUE], "two") == []
    locks.unlock("g", [QUEUE], "one")
    assert locks.lock("g", [QUEUE], "two") == [QUEUE]


def queues(count: int) -> list[LockedQueue]:
    return [LockedQueue("T", "broker-a", queue_id) for queue_id in range(count)]


def test_expired_locks_are_dropped_even_without_requests_for_their_queues() -> None:
    clock = ManualClock()
    locks = RebalanceLocks(clock)
    locks.lock("g", queues(3), "gone")
    clock.advance_ms(30_000)
    locks.lock("h", queues(2), "alive")

    clock.advance_ms(30_000)
    locks.purge()

    assert len(locks) == 2
    assert locks.lock("h", queues(2), "another") == []


def test_one_host_holds_its_share_of_locks_and_others_theirs() -> None:
    locks = RebalanceLocks(
        ManualClock(), LimitsConfig(host_queue_lock_nums_max=3, queue_lock_nums_max=5)
    )
    with pytest.raises(RequestRefusedError, match="hostQueueLockNumsMax=3"):
        locks.lock("g", queues(4), "greedy", "10.0.0.1")

    assert locks.lock("h", queues(2), "modest", "10.0.0.2") == queues(2)
    assert len(locks) == 5
    with pytest.raises(RequestRefusedError, match="queueLockNumsMax=5"):
        locks.lock("i", queues(1), "late", "10.0.0.3")
    assert locks.lock("g", queues(3), "greedy", "10.0.0.1") == queues(3), (
        "renewing isn't a new lock"
    )
    locks.unlock("g", queues(1), "greedy")
    assert locks.lock("i", queues(1), "late", "10.0.0.3") == queues(1)


def test_a_request_without_a_queue_leaves_no_group_behind() -> None:
    locks = RebalanceLocks(ManualClock(), LimitsConfig(queue_lock_nums_max=0))

    assert locks.lock("g", [], "one") == []

    locks.purge()
    assert len(locks) == 0
