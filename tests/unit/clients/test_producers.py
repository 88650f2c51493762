from __future__ import annotations

from broker_core.clients.producers import ProducerMember, Producers


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


def test_a_client_that_came_again_is_found_on_its_new_connection() -> None:
    producers, old, new = Producers(), FakeConnection(), FakeConnection()
    producers.register(old, "g", member("c"))
    producers.register(new, "g", member("c"))

    producers.close(old)

    assert producers.find("c") is new


def test_who_is_not_a_member_leaves_nothing() -> None:
    producers = Producers()

    producers.unregister(FakeConnection(), "g")

    assert producers.find("c") is None
