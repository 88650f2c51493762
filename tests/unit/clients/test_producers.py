from __future__ import annotations

import sys
from typing import Any

from broker_core.clients.producers import ProducerMember, Producers
from broker_core.config.limits import LimitsConfig


class FakeConnection:
    remote_address = "127.0.0.1:5000"

    def close(self) -> None:
        pass


def member(client_id: str) -> ProducerMember:
    return ProducerMember(client_id, "JAVA", 407, 0.0, 0)


def test_a_producer_is_found_by_its_client_id_while_it_is_in_any_group() -> None:
    producers, connection = Producers(), FakeConnection()
    producers.register(connection, "g1", member("c"))
    producers.register(connection, "g2", member("c"))

    producers.unregister(connection, "g1")
    assert producers.find("c") is connection

    producers.unregister(connection, "g2")
    assert producers.find("c") is None
    assert producers.groups == {}


def test_a_returning_client_is_found_on_its_new_connection() -> None:
    producers, old, new = Producers(), FakeConnection(), FakeConnection()
    producers.register(old, "g", member("c"))
    producers.register(new, "g", member("c"))

    producers.close(old)

    assert producers.find("c") is new


def test_a_non_member_leaves_nothing() -> None:
    producers = Producers()

    producers.unregister(FakeConnection(), "g")

    assert producers.find("c") is None


def test_a_client_with_a_new_id_is_not_found_under_the_old_one() -> None:
    producers, connection = Producers(), FakeConnection()
    producers.register(connection, "g", member("old"))

    producers.register(connection, "g", member("new"))

    assert producers.find("old") is None
    assert producers.find("new") is connection


def test_a_disconnect_costs_only_what_the_connection_owns() -> None:
    producers = Producers(LimitsConfig(client_group_nums_max=10**6, member_nums_max=10**6))
    big, small = FakeConnection(), FakeConnection()
    for number in range(50_000):
        producers.register(big, f"g{number}", member("big"))
    producers.register(small, "g", member("small"))
    steps = 0

    def count(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    sys.settrace(count)
    producers.close(small)
    sys.settrace(None)

    assert steps < 100
    assert producers.find("small") is None
    assert producers.find("big") is big
