from __future__ import annotations

from broker_core.clients.consumers import Consumers
from broker_core.clients.housekeeping import ClientHousekeeping
from broker_core.clients.producers import ProducerMember, Producers
from tests.support.clock import ManualClock
from tests.unit.clients.test_consumers import FakeConnection, beat


def test_a_client_silent_for_two_minutes_is_disconnected() -> None:
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
