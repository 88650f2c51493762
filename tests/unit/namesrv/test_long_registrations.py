"""Registrations of very many topics, and many brokers that disconnect together."""

from __future__ import annotations

import pytest

from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.namesrv.identity import BrokerIdentity
from broker_core.namesrv.routes import LINES_MAX, TOPICS_PER_STEP, RouteTable
from broker_core.protocol.bodies.registration import TopicConfigSerializeWrapper
from tests.support.clock import ManualClock

MASTER = BrokerIdentity("c", "b", 0, "10.0.0.1:10911", "10.0.0.1:10912")


def topics(*names: str, counter: int = 1, perm: int = 6) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=counter, timestamp=1),
        topic_config_table={name: TopicConfig(topic_name=name, perm=perm) for name in names},
    )


def perms(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {each.broker_name: each.perm for each in route.queue_datas}


@pytest.fixture
def table() -> RouteTable:
    return RouteTable(ManualClock())


def many(count: int, *, counter: int = 1) -> TopicConfigSerializeWrapper:
    return topics(*(f"T{number}" for number in range(count)), counter=counter)


def test_a_long_registration_is_served_in_steps(table: RouteTable) -> None:
    steps = table.register_steps(MASTER, many(3 * TOPICS_PER_STEP))

    assert sum(1 for _ in steps) == 3
    assert len(table.topics()) == 3 * TOPICS_PER_STEP


@pytest.mark.parametrize("is_back", [False, True])
def test_a_registration_ends_with_its_connection(table: RouteTable, *, is_back: bool) -> None:
    owner, again = object(), object()
    steps = table.register_steps(MASTER, many(3 * TOPICS_PER_STEP), owner=owner)
    next(steps)
    next(steps)

    table.owner_lost(owner)
    if is_back:
        table.register(MASTER, topics("Other", counter=2), owner=again)
    for _ in steps:
        pytest.fail("it goes on")

    assert table.topics() == (["Other"] if is_back else [])


def test_a_later_registration_replaces_a_pending_one(table: RouteTable) -> None:
    owner, again = object(), object()
    steps = table.register_steps(MASTER, many(3 * TOPICS_PER_STEP), owner=owner)
    next(steps)

    table.register(MASTER, topics("T0", counter=2, perm=4), owner=again)
    list(steps)

    assert perms(table, "T0") == {"b": 4}


def test_many_brokers_lost_together_are_a_few_lines(
    table: RouteTable, caplog: pytest.LogCaptureFixture
) -> None:
    owner = object()
    for number in range(50):
        broker = BrokerIdentity("c", f"b{number}", 0, f"10.0.1.{number}:10911")
        table.register(broker, topics("T", f"U{number}"), owner=owner)

    table.owner_lost(owner)

    assert table.topics() == []
    lines = [line for line in caplog.messages if line.startswith("broker disconnected")]
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == f"broker disconnected more={50 - LINES_MAX}"


def test_a_connection_is_not_charged_for_later_registrations_by_others(table: RouteTable) -> None:
    owner, other = object(), object()
    table.register(MASTER, topics("T"), owner=owner)
    table.unregister(MASTER, owner)
    table.register(MASTER, topics("T"), owner=other)

    table.owner_lost(owner)

    assert table.topics() == ["T"]
