"""Unmodified Java clients with our broker."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

MODES = "sync,async,oneway,batch"
COUNT_A_MODE = 250
COUNT = 1_000
FLUSH = 1
"""The sender ends its oneway messages with an answered one."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(directory)
    process.start()
    yield process
    process.stop()


def topic_of(java: JavaClients, name: str) -> str:
    return f"{name}-{java.version.replace('.', '_')}"


def keys_expected(prefix: str) -> set[str]:
    return {f"{prefix}-{mode}-{i}" for mode in MODES.split(",") for i in range(COUNT_A_MODE)}


def test_each_of_a_thousand_messages_is_received_once(
    java: JavaClients, broker: BrokerProcess
) -> None:
    topic = topic_of(java, "thousand")
    raw_remoting.create_topic(broker.port, topic)

    sent = java.send(
        broker.namesrv, topic, modes=MODES, count=COUNT_A_MODE, tags="A,B,C", prefix="m"
    )
    received = java.receive(broker.namesrv, topic, f"{topic}-group", count=COUNT + FLUSH)

    assert len(sent) == COUNT
    times = Counter(line[0] for line in received if line[0] != "flush")
    assert set(times) == keys_expected("m")
    assert set(times.values()) == {1}
    # The acknowledged location equals the delivered one, and the IDs are the same.
    places = {line[0]: line[2:5] for line in received}
    assert all(places[key] == place for key, *place in sent if place)
    # The body is the sender's, and the tag belongs to the key.
    tags = dict(enumerate("ABC"))
    for key, tag, *_, body in received:
        if key != "flush":
            assert body == key
            assert tag == tags[int(key.rpartition("-")[2]) % 3]


def test_a_tag_expression_only_passes_its_tags(java: JavaClients, broker: BrokerProcess) -> None:
    topic = topic_of(java, "tagged")
    raw_remoting.create_topic(broker.port, topic)
    java.send(broker.namesrv, topic, modes="sync", count=90, tags="A,B,C", prefix="t")

    received = java.receive(
        broker.namesrv, topic, f"{topic}-group", expression="A || C", count=60, quiet_ms=1_000
    )

    assert Counter(line[1] for line in received) == {"A": 30, "C": 30}


def test_a_restarted_consumer_continues_where_it_stopped(
    java: JavaClients, broker: BrokerProcess
) -> None:
    topic = topic_of(java, "offsets")
    raw_remoting.create_topic(broker.port, topic)
    java.send(broker.namesrv, topic, modes="sync", count=40, tags="A", prefix="first")
    before = java.receive(broker.namesrv, topic, f"{topic}-group", count=40, quiet_ms=500)
    java.send(broker.namesrv, topic, modes="sync", count=30, tags="A", prefix="second")

    after = java.receive(broker.namesrv, topic, f"{topic}-group", count=30, quiet_ms=1_500)

    assert {line[0] for line in before} == {f"first-sync-{i}" for i in range(40)}
    assert Counter(line[0] for line in after) == {f"second-sync-{i}": 1 for i in range(30)}


def test_the_first_message_of_an_unknown_topic_creates_it(
    java: JavaClients, broker: BrokerProcess
) -> None:
    topic = topic_of(java, "created-by-sending")

    sent = java.send(broker.namesrv, topic, modes="sync", count=8, tags="A", prefix="c")

    stored = [raw_remoting.read_queue(broker.port, topic, queue) for queue in range(4)]
    bodies = {record.body.decode() for queue in stored for record in queue}
    assert len(sent) == 8
    assert bodies == {f"body of c-sync-{i}" for i in range(8)}


def test_a_waiting_consumer_gets_a_message_immediately(
    java: JavaClients, broker: BrokerProcess
) -> None:
    topic = topic_of(java, "waiting")
    raw_remoting.create_topic(broker.port, topic)
    arguments = (broker.namesrv, topic, f"{topic}-group", "*", 20, 200, 200)
    consumer = java.start("ReceiveMessages", *arguments)
    try:
        assert consumer.stdout is not None
        assert consumer.stdout.readline().strip() == "started"

        java.send(broker.namesrv, topic, modes="sync", count=20, tags="A", prefix="w")
        output, _ = consumer.communicate(timeout=300)
    finally:
        consumer.kill()
        consumer.wait()

    assert len(output.splitlines()) == 20
