from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.clients.consumers import ConsumerMember, Consumers
from broker_core.config.limits import LimitsConfig
from broker_core.errors import RequestRefusedError
from broker_core.message.subscription import build_subscription

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection


class FakeConnection:
    def __init__(self, remote_address: str = "127.0.0.1:1") -> None:
        self.remote_address = remote_address
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Notices(list[tuple[str, int]]):
    def __call__(self, group: str, connections: list[ClientConnection]) -> None:
        self.append((group, len(connections)))


def beat(
    consumers: Consumers,
    connection: FakeConnection,
    *,
    topic: str = "T",
    expression: str = "*",
    version: int = 1,
    now: float = 0.0,
) -> None:
    consumers.register(
        connection,
        "g",
        ConsumerMember(f"client-{connection.remote_address}", "JAVA", 407, now),
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        [build_subscription(topic, expression, version)],
        notify=True,
    )


def make_consumers() -> tuple[Consumers, Notices]:
    notices = Notices()
    return Consumers(notices), notices


async def test_a_new_member_is_announced_to_its_whole_group() -> None:
    consumers, notices = make_consumers()

    beat(consumers, FakeConnection("127.0.0.1:1"))
    beat(consumers, FakeConnection("127.0.0.1:2"))

    assert notices == [("g", 1), ("g", 2)]


async def test_a_second_heartbeat_notifies_no_member() -> None:
    consumers, notices = make_consumers()
    connection = FakeConnection()

    beat(consumers, connection)
    beat(consumers, connection)

    assert len(notices) == 1


async def test_a_newer_subscription_replaces_the_older_one_without_a_notice() -> None:
    consumers, notices = make_consumers()
    connection = FakeConnection()

    beat(consumers, connection, expression="A", version=1)
    beat(consumers, connection, expression="B", version=2)
    beat(consumers, connection, expression="C", version=1)

    group = consumers.find("g")
    assert group is not None
    assert group.subscriptions["T"].data.sub_string == "B"
    assert len(notices) == 1


async def test_the_last_heartbeat_decides_the_groups_topics() -> None:
    consumers, notices = make_consumers()
    connection = FakeConnection()

    beat(consumers, connection, topic="T")
    beat(consumers, connection, topic="U")

    group = consumers.find("g")
    assert group is not None
    assert set(group.subscriptions) == {"U"}
    assert len(notices) == 2


async def test_a_lost_connection_is_reported_to_the_remaining_members() -> None:
    consumers, notices = make_consumers()
    staying, leaving = FakeConnection("127.0.0.1:1"), FakeConnection("127.0.0.1:2")
    beat(consumers, staying)
    beat(consumers, leaving)
    notices.clear()

    assert consumers.close(leaving) == ["g"]
    assert notices == [("g", 1)]


async def test_the_last_member_removes_the_group() -> None:
    consumers, notices = make_consumers()
    connection = FakeConnection()
    beat(consumers, connection)
    notices.clear()

    consumers.close(connection)

    assert consumers.find("g") is None
    assert notices == []


async def test_a_client_without_a_timely_heartbeat_is_silent() -> None:
    consumers, _ = make_consumers()
    quiet, lively = FakeConnection("127.0.0.1:1"), FakeConnection("127.0.0.1:2")
    beat(consumers, quiet, now=0.0)
    beat(consumers, lively, now=100.0)

    assert consumers.silent_since(50.0) == [quiet]


async def test_the_total_number_of_subscriptions_is_limited() -> None:
    consumers = Consumers(limits=LimitsConfig(subscription_nums_max=3))
    one, two = FakeConnection("127.0.0.1:1"), FakeConnection("127.0.0.1:2")
    beat(consumers, one, expression="a" * 32)

    with pytest.raises(RequestRefusedError, match="subscriptionNumsMax=3"):
        consumers.register(
            two,
            "h",
            ConsumerMember("two", "JAVA", 407, 0.0),
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
            [build_subscription("T", "*", 1)],
            notify=True,
        )

    assert consumers.find("h") is None
    beat(consumers, one, expression="b" * 32, version=2)
    consumers.close(one)
    beat(consumers, two, expression="c" * 47)
    assert consumers.close(two) == ["g"]
