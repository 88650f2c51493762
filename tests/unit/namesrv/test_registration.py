from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SystemClock
from broker_core.config.namesrv import NamesrvConfig
from broker_core.errors import RequestRefusedError
from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.namesrv.identity import BrokerIdentity
from broker_core.namesrv.namesrv import NameServer
from broker_core.namesrv.registration import BrokerRegistration, RegistrationTerms
from broker_core.namesrv.routes import RouteTable
from broker_core.remoting.client import RemotingClient
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from broker_core.protocol.command import RemotingCommand

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
        while not condition():  # noqa: ASYNC110  it happens on the other end of a socket
            await asyncio.sleep(0)


@pytest.fixture
async def name_server(tmp_path: Path) -> AsyncIterator[NameServer]:
    name_server = NameServer(
        "127.0.0.1", 0, SystemClock(), FileStorage(), tmp_path / "kvConfig.json"
    )
    await name_server.start()
    yield name_server
    await name_server.shutdown()


async def test_the_embedded_name_server_knows_immediately() -> None:
    clock, topics = ManualClock(), Topics("T")
    routes = RouteTable(clock)
    registration = BrokerRegistration(IDENTITY, topics, clock, routes=routes)

    topics.put("U")
    registration.topic_changed("U")
    assert routes.topics() == []  # the broker announces nothing before it serves
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


async def test_an_external_name_server_is_registered_with_and_unregistered_from(
    name_server: NameServer,
) -> None:
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


async def test_a_name_server_removes_disconnected_brokers(name_server: NameServer) -> None:
    client = RemotingClient()
    address = f"127.0.0.1:{name_server.port}"
    registration = BrokerRegistration(
        IDENTITY, Topics("T"), ManualClock(), client=client, name_servers=[address]
    )
    await registration.start()

    client.close(address)

    await until(lambda: name_server.routes.topics() == [])
    await registration.shutdown()


async def test_a_dead_name_server_is_logged_once_and_delays_nothing(
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

    assert caplog.text.count("name server unreachable address=127.0.0.1:1") == 1


async def test_the_brokers_permission_covers_its_topics() -> None:
    routes = RouteTable(ManualClock())
    terms = RegistrationTerms(broker_permission=lambda: 4)
    registration = BrokerRegistration(
        IDENTITY, Topics("T"), ManualClock(), routes=routes, terms=terms
    )

    await registration.start()

    route = routes.route("T")
    assert route is not None
    assert route.queue_datas[0].perm == 4
    await registration.shutdown()


async def test_changing_one_topic_removes_no_other() -> None:
    routes = RouteTable(ManualClock(), NamesrvConfig(delete_topic_with_broker_registration=True))
    topics = Topics("T", "U")
    registration = BrokerRegistration(IDENTITY, topics, ManualClock(), routes=routes)
    await registration.start()

    topics.put("V")
    registration.topic_changed("V")

    assert routes.topics() == ["T", "U", "V"]
    await registration.shutdown()


class Counted(RemotingClient):
    """Counts the requests of each code."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: list[int] = []

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float = 5.0
    ) -> RemotingCommand:
        self.codes.append(int(command.code))
        return await super().request(address, command, timeout_s)


@pytest.mark.parametrize("is_forced", [True, False])
async def test_without_force_a_period_asks_first(name_server: NameServer, is_forced: bool) -> None:
    client, topics = Counted(), Topics("T")
    registration = BrokerRegistration(
        IDENTITY,
        topics,
        ManualClock(),
        client=client,
        name_servers=[f"127.0.0.1:{name_server.port}"],
        terms=RegistrationTerms(is_forced=is_forced),
    )
    await registration.register_now()

    await registration.register_now(is_forced=is_forced)
    assert client.codes == ([103, 103] if is_forced else [103, 322])

    topics.put("U")  # the name server has a different version now
    await registration.register_now(is_forced=is_forced)
    assert client.codes[2:] == ([103] if is_forced else [322, 103])
    assert name_server.routes.topics() == ["T", "U"]
    await registration.shutdown()


async def test_a_period_may_force_registration(name_server: NameServer) -> None:
    client, clock = Counted(), ManualClock()
    registration = BrokerRegistration(
        IDENTITY,
        Topics("T"),
        clock,
        client=client,
        name_servers=[f"127.0.0.1:{name_server.port}"],
        terms=RegistrationTerms(is_forced=False),
    )
    await registration.start()
    await asyncio.sleep(0)

    clock.advance_ms(30_000)
    await until(lambda: client.codes == [103, 322])

    registration.topic_changed("T")
    await until(lambda: client.codes == [103, 322, 103])
    await registration.shutdown()


async def test_a_compressed_registration_has_the_same_content(name_server: NameServer) -> None:
    registration = BrokerRegistration(
        IDENTITY,
        Topics("T", "U"),
        ManualClock(),
        client=RemotingClient(),
        name_servers=[f"127.0.0.1:{name_server.port}"],
        terms=RegistrationTerms(is_compressed=True),
    )

    await registration.start()

    assert name_server.routes.topics() == ["T", "U"]
    route = name_server.routes.route("U")
    assert route is not None
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].perm) == (16, 6)
    await registration.shutdown()


async def test_one_name_servers_invalid_answer_does_not_keep_the_broker_from_the_others(
    name_server: NameServer,
) -> None:
    class Client(RemotingClient):
        async def request(
            self, address: str, command: RemotingCommand, timeout_s: float = 5.0
        ) -> RemotingCommand:
            if address == "nonsense:9876":
                raise TypeError("of a bug")
            return await super().request(address, command, timeout_s)

    clock = ManualClock()
    registration = BrokerRegistration(
        IDENTITY,
        Topics("T"),
        clock,
        client=Client(clock=clock),
        name_servers=("nonsense:9876", f"127.0.0.1:{name_server.port}"),
        terms=RegistrationTerms(),
    )

    await registration.start()
    assert name_server.routes.topics() == ["T"]
    await registration.shutdown()

    assert name_server.routes.topics() == []


async def test_a_table_that_rejects_our_own_broker_ends_no_registration(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    routes = RouteTable(clock)
    registration = BrokerRegistration(
        IDENTITY,
        Topics("T"),
        clock,
        client=RemotingClient(clock=clock),
        name_servers=(f"127.0.0.1:{name_server.port}",),
        routes=routes,
        terms=RegistrationTerms(),
    )

    def refuse(*_: object, **__: object) -> None:
        raise RequestRefusedError(1, "the limit is reached")

    monkeypatch.setattr(routes, "register", refuse)
    await registration.register_now()

    assert name_server.routes.topics() == ["T"]
    await registration.shutdown()
