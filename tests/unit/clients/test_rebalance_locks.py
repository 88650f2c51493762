from __future__ import annotations

from broker_core.clients.rebalance_locks import LockedQueue, RebalanceLocks
from tests.support.clock import ManualClock

QUEUE = LockedQueue("T", "broker-a", 0)


def test_a_locked_queue_is_refused_to_others() -> None:
    locks = RebalanceLocks(ManualClock())

    assert locks.lock("g", [QUEUE], "one") == [QUEUE]
    assert locks.lock("g", [QUEUE], "two") == []


def test_each_group_has_locks_of_its_own() -> None:
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


def test_locking_again_begins_the_minute_anew() -> None:
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
