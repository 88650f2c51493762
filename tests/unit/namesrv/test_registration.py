from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SystemClock
from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.namesrv.namesrv import NameServer
from broker_core.namesrv.registration import BrokerRegistration
from broker_core.namesrv.routes import BrokerIdentity, RouteTable
from broker_core.remoting.client import RemotingClient
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

IDENTITY = BrokerIdentity("c", "b", 0, "127.0.0.1:10911", "127.0.0.1:10912")


class Topics:
    """A broker's table."""

    def __init__(self, *names: str) -> None:
        self.version = DataVersion(counter=1, timestamp=1)
        self.table = {name: TopicConfig(topic_name=name) for name in names}

    def __call__(self) -> tuple[DataVersion, dict[str, TopicConfig]]:
        return self.version, self.table

    def put(self, name: str) -> None:
        self.table[name] = TopicConfig(topic_name=name)
        self.version = self.version.next(2)

    def delete(self, name: str) -> None:
        del self.table[name]
        self.version = self.version.next(2)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  what is waited for happens behind a socket
            await asyncio.sleep(0)


@pytest.fixture
async def name_server(tmp_path: Path) -> AsyncIterator[NameServer]:
    name_server = NameServer(
        "127.0.0.1", 0, SystemClock(), FileStorage(), tmp_path / "kvConfig.json"
    )
    await name_server.start()
    yield name_server
    await name_server.shutdown()


async def test_the_embedded_name_server_knows_at_once() -> None:
    clock, topics = ManualClock(), Topics("T")
    routes = RouteTable(clock)
    registration = BrokerRegistration(IDENTITY, topics, clock, routes=routes)

    topics.put("U")
    registration.topic_changed("U")
    assert routes.topics() == []  # nothing is told before the broker serves
    await registration.start()
    assert routes.topics() == ["T", "U"]
    topics.put("V")
    registration.topic_changed("V")
    assert routes.topics() == ["T", "U", "V"]
    topics.delete("T")
    registration.topic_changed("T")
    assert routes.topics() == ["U", "V"]

    await registration.shutdown()
    assert routes.cluster_info().broker_addr_table == {}


async def test_a_living_broker_does_not_expire() -> None:
    clock = ManualClock()
    routes = RouteTable(clock)
    registration = BrokerRegistration(IDENTITY, Topics("T"), clock, routes=routes)
    await registration.start()
    await asyncio.sleep(0)

    for _ in range(10):
        clock.advance_ms(30_000)
        for _ in range(5):
            await asyncio.sleep(0)
        assert routes.expire() == []

    assert routes.topics() == ["T"]
    await registration.shutdown()


async def test_an_outside_name_server_is_told_and_told_to_forget(name_server: NameServer) -> None:
    topics = Topics("T")
    registration = BrokerRegistration(
        IDENTITY,
        topics,
        ManualClock(),
        client=RemotingClient(),
        name_servers=[f"127.0.0.1:{name_server.port}"],
    )

    await registration.start()
    assert name_server.routes.topics() == ["T"]
    topics.put("U")
    registration.topic_changed("U")
    await until(lambda: name_server.routes.topics() == ["T", "U"])

    await registration.shutdown()
    assert name_server.routes.topics() == []


async def test_a_name_server_forgets_who_disconnects(name_server: NameServer) -> None:
    client = RemotingClient()
    address = f"127.0.0.1:{name_server.port}"
    registration = BrokerRegistration(
        IDENTITY, Topics("T"), ManualClock(), client=client, name_servers=[address]
    )
    await registration.start()

    client.close(address)

    await until(lambda: name_server.routes.topics() == [])
    await registration.shutdown()


async def test_a_dead_name_server_is_logged_once_and_holds_nothing_up(
    name_server: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    registration = BrokerRegistration(
        IDENTITY,
        Topics("T"),
        clock,
        client=RemotingClient(),
        name_servers=["127.0.0.1:1", f"127.0.0.1:{name_server.port}"],
    )

    await registration.start()
    registration.topic_changed("T")
    await registration.shutdown()

    assert caplog.text.count("name server fails: address=127.0.0.1:1") == 1


async def test_the_brokers_permission_covers_its_topics() -> None:
    routes = RouteTable(ManualClock())
    registration = BrokerRegistration(
        IDENTITY, Topics("T"), ManualClock(), routes=routes, broker_permission=lambda: 4
    )

    await registration.start()

    route = routes.route("T")
    assert route is not None
    assert route.queue_datas[0].perm == 4
    await registration.shutdown()
