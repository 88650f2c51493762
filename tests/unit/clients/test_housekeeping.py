from __future__ import annotations

import asyncio

from broker_core.clients.consumers import Consumers
from broker_core.clients.housekeeping import ClientHousekeeping
from broker_core.clients.producers import ProducerMember, Producers
from broker_core.clients.rebalance_locks import LockedQueue, RebalanceLocks
from tests.support.clock import ManualClock
from tests.unit.clients.test_consumers import FakeConnection, beat


async def test_a_client_silent_for_two_minutes_is_disconnected() -> None:
    clock = ManualClock()
    consumers, producers = Consumers(), Producers()
    housekeeping = ClientHousekeeping(consumers, producers, clock)
    consumer, producer = FakeConnection("127.0.0.1:1"), FakeConnection("127.0.0.1:2")
    beat(consumers, consumer, now=clock.monotonic())
    member = ProducerMember("p", "JAVA", 407, clock.monotonic(), clock.now_ms())
    producers.register(producer, "pg", member)

    clock.advance_ms(120_000)
    assert housekeeping.scan() == 0
    clock.advance_ms(1)
    assert housekeeping.scan() == 2

    assert consumer.is_closed
    assert producer.is_closed
    assert not consumers.groups
    assert not producers.groups


async def test_a_lost_clients_locks_are_dropped_within_two_scans_of_their_end() -> None:
    clock = ManualClock()
    locks = RebalanceLocks(clock)
    housekeeping = ClientHousekeeping(Consumers(), Producers(), clock, locks)
    housekeeping.start()
    locks.lock("g", [LockedQueue("T", "broker-a", 0)], "gone")

    for _ in range(8):
        await asyncio.sleep(0)
        clock.advance_ms(10_000)
    await asyncio.sleep(0)

    assert len(locks) == 0
    await housekeeping.shutdown()
