"""Two brokers under one name server: ours with the real one, and two of ours."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

VERSION = "4.9.7"
TOPIC = "mixed"
QUEUES = 2
COUNT = 80
GET_ROUTE_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
WIPE_WRITE_PERM = 205


class Cluster(NamedTuple):
    """The name server's address, and each broker by its name."""

    namesrv: str
    namesrv_port: int
    ports: dict[str, int]


@contextmanager
def cluster_of(kind: str, directory: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        if kind == "real name server":
            first: BrokerProcess | Peer = stack.enter_context(
                Peer(VERSION, directory / "first", brokerName="broker-b")
            )
            second: BrokerProcess | Peer = BrokerProcess(
                directory / "second", namesrvAddr=first.namesrv
            )
            names = ("broker-b", "broker-a")
        else:
            first = BrokerProcess(directory / "first")
            first.start()
            stack.callback(first.stop)
            keys = {"namesrvAddr": first.namesrv, "brokerName": "broker-b"}
            if kind == "our name server":
                second = stack.enter_context(Peer(VERSION, directory / "second", **keys))
            else:
                second = BrokerProcess(directory / "second", **keys)
            names = ("broker-a", "broker-b")
        if isinstance(second, BrokerProcess):
            second.start()
            stack.callback(second.stop)
        ports = dict(zip(names, (first.port, second.port), strict=True))
        yield Cluster(first.namesrv, first.namesrv_port, ports)


@pytest.fixture(scope="module", params=["our name server", "real name server", "two of ours"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    if request.param != "two of ours":
        require_java()
    with cluster_of(request.param, tmp_path_factory.mktemp("cluster")) as running:
        for port in running.ports.values():
            raw_remoting.create_topic(port, TOPIC, queues=QUEUES)
        until(lambda: len(brokers_of(running, TOPIC)) == 2, "both brokers to be in the route")
        yield running


def brokers_of(cluster: Cluster, topic: str) -> dict[str, int]:
    """Return the permission of each broker in a topic's route."""
    with RawClient(cluster.namesrv_port) as client:
        answer = client.ask(GET_ROUTE_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if answer.code != raw_remoting.SUCCESS:
        return {}
    route = json.loads(answer.body)
    known = {one["brokerName"] for one in route["brokerDatas"]}
    return {
        one["brokerName"]: one["perm"] for one in route["queueDatas"] if one["brokerName"] in known
    }


def test_both_brokers_belong_to_the_cluster(cluster: Cluster) -> None:
    with RawClient(cluster.namesrv_port) as client:
        body = client.ask(GET_BROKER_CLUSTER_INFO).body.decode()

    for name, port in cluster.ports.items():
        assert re.search(rf'"brokerAddrs":{{0:"127\.0\.0\.1:{port}"}},"brokerName":"{name}"', body)
    (names,) = re.findall(r'"DefaultCluster":\[([^\]]*)\]', body)
    assert sorted(names.split(",")) == ['"broker-a"', '"broker-b"']


def test_a_producer_uses_both_brokers_and_a_consumer_reads_both(
    cluster: Cluster, java_4: JavaClients
) -> None:
    sent = java_4.send(cluster.namesrv, TOPIC, modes="sync", count=COUNT, tags="A", prefix="m")
    received = java_4.receive(cluster.namesrv, TOPIC, f"{TOPIC}-group", count=COUNT)

    stored = {
        name: sum(len(raw_remoting.read_queue(port, TOPIC, queue_id)) for queue_id in range(QUEUES))
        for name, port in cluster.ports.items()
    }
    assert len(sent) == COUNT
    assert sum(stored.values()) == COUNT
    assert min(stored.values()) > 0, stored
    assert sorted(line[0] for line in received) == sorted(line[0] for line in sent)


def test_permissions_are_wiped_on_one_broker_only(cluster: Cluster) -> None:
    with RawClient(cluster.namesrv_port) as client:
        answer = client.ask(WIPE_WRITE_PERM, {"brokerName": "broker-b"})

    assert int(answer.fields["wipeTopicCount"]) > 0
    assert brokers_of(cluster, TOPIC) == {"broker-a": 6, "broker-b": 4}


def test_a_broker_that_exits_leaves_the_route(tmp_path: Path) -> None:
    first = BrokerProcess(tmp_path / "first")
    first.start()
    second = BrokerProcess(tmp_path / "second", namesrvAddr=first.namesrv, brokerName="broker-b")
    try:
        second.start()
        cluster = Cluster(first.namesrv, first.namesrv_port, {})
        for broker in (first, second):
            raw_remoting.create_topic(broker.port, TOPIC)
        assert brokers_of(cluster, TOPIC).keys() == {"broker-a", "broker-b"}

        second.kill()
        until(lambda: brokers_of(cluster, TOPIC).keys() == {"broker-a"}, "the broker to be removed")
        second.start()
        until(
            lambda: brokers_of(cluster, TOPIC).keys() == {"broker-a", "broker-b"},
            "the broker to be registered again",
        )
    finally:
        second.kill()
        first.stop()
