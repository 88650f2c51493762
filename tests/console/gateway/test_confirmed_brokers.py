"""A console with an account only contacts configured and confirmed brokers."""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, NamedTuple

import pytest

from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from console.gateway.answers import MessageQueue, WatchFilter
from console.gateway.errors import BrokerDownError, GatewayError, UnconfirmedBrokerError
from console.gateway.known_addresses import KnownAddresses, known_addresses
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.console.gateway.support import BILLING, ORDERS, ask, send
from tests.support.broker import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from console.gateway.ports import Gateway

TIMEOUT_S = 2.0
REGISTRATION = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1},'
    b'"topicConfigTable":{"Orders":{"perm":6,"readQueueNums":1,"topicName":"Orders",'
    b'"writeQueueNums":1}}}}'
)


class Impostor:
    """A port that reads everything and answers nothing."""

    def __init__(self) -> None:
        self.got = b""
        self.connections = 0
        self.address = ""
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        while data := await reader.read(65_536):
            self.got += data


class World(NamedTuple):
    """Our configured broker, and an impostor with another name."""

    gateway: Gateway
    impostor: Impostor
    own_address: str
    registrar: RemotingClient
    name_server: str

    async def register(self, broker_name: str, address: str) -> int:
        fields = {
            "brokerName": broker_name,
            "brokerAddr": address,
            "clusterName": "DefaultCluster",
            "brokerId": "0",
        }
        command = RemotingCommand.request(RequestCode.REGISTER_BROKER, fields, REGISTRATION)
        return (await self.registrar.request(self.name_server, command)).code


@pytest.fixture
async def world(tmp_path: Path, settings) -> AsyncIterator[World]:
    settings.TREBUCHET_BROKER_ACCESS_KEY = "console"
    settings.TREBUCHET_BROKER_SECRET_KEY = "12345678"
    settings.TREBUCHET_CONFIRMED_BROKERS_FILE = tmp_path / "confirmed_brokers.json"
    impostor, registrar = Impostor(), RemotingClient()
    await impostor.start()
    async with running_broker(tmp_path) as broker:
        own_address = f"127.0.0.1:{broker.configuration.server.listen_port}"
        settings.TREBUCHET_BROKERS = [own_address]
        name_server = f"127.0.0.1:{broker.configuration.broker.namesrv_listen_port}"
        brokers = RemoteBrokers([name_server], TIMEOUT_S)
        made = World(gateway_to(brokers), impostor, own_address, registrar, name_server)
        assert await made.register("broker-x", impostor.address) == 0
        yield made
        await made.gateway.messages.close()
        await ask(brokers.close)
        await registrar.shutdown()
    await impostor.stop()


async def test_an_unknown_broker_is_not_queried_and_our_own_continues(world: World) -> None:
    gateway, impostor = world.gateway, world.impostor

    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    assert "Orders" in await ask(gateway.topics.all)
    registered = {node.broker_name for node in (await ask(gateway.cluster.registered)).nodes}
    runtime = await ask(gateway.cluster.runtime)
    route = await gateway.messages.route("Orders")
    assert await send(gateway, "Orders", queue_id=0, count=1) == [0]
    await gateway.messages.join(BILLING)
    watch = gateway.watch.open(impostor.address, lambda _: None)
    with pytest.raises(UnconfirmedBrokerError):
        await watch.set_filters({"all": WatchFilter()})
    with pytest.raises(UnconfirmedBrokerError):
        await ask(gateway.topics.save, ORDERS, ["broker-a", "broker-x"])
    with pytest.raises(GatewayError):
        await gateway.messages.members(MessageQueue("Orders", "broker-x", 0), "billing")
    await watch.close()

    assert registered == {"broker-a", "broker-x"}
    assert isinstance(runtime[impostor.address], UnconfirmedBrokerError)
    assert not isinstance(runtime[world.own_address], GatewayError)
    assert route is not None
    assert {queue.broker_name for queue in route.write_queues} == {"broker-a"}
    assert (impostor.connections, impostor.got) == (0, b"")


async def test_a_confirmed_broker_is_queried_with_a_signature_immediately(world: World) -> None:
    with pytest.raises(UnconfirmedBrokerError):
        raise (await ask(world.gateway.cluster.runtime))[world.impostor.address]  # type: ignore[misc]

    known_addresses().confirm(world.impostor.address)
    runtime = await ask(world.gateway.cluster.runtime)

    assert isinstance(runtime[world.impostor.address], BrokerDownError)
    assert b"Signature" in world.impostor.got


async def test_a_changed_route_is_not_queried(world: World) -> None:
    known_addresses().confirm(world.impostor.address)
    moved = Impostor()
    await moved.start()

    assert await world.register("broker-x", moved.address) == 0
    runtime = await ask(world.gateway.cluster.runtime)

    assert isinstance(runtime[moved.address], UnconfirmedBrokerError)
    assert moved.connections == 0
    await moved.stop()


async def test_without_an_account_every_broker_is_queried_unsigned(world: World, settings) -> None:
    settings.TREBUCHET_BROKER_ACCESS_KEY = ""
    settings.TREBUCHET_BROKER_SECRET_KEY = None

    runtime = await ask(world.gateway.cluster.runtime)

    assert isinstance(runtime[world.impostor.address], BrokerDownError)
    assert world.impostor.got
    assert b"Signature" not in world.impostor.got


def test_confirmed_data_is_known_to_every_process_and_private(tmp_path: Path) -> None:
    path = tmp_path / "confirmed_brokers.json"
    one, other = (KnownAddresses(["a:1"], path, is_guarding=True) for _ in range(2))
    assert "a:1" in one
    assert "b:1" not in other

    one.confirm("b:1")
    other.confirm("c:1")

    assert all(address in each for each in (one, other) for address in ("a:1", "b:1", "c:1"))
    assert "d:1" not in one
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    assert "b:1" not in one


@pytest.mark.parametrize("text", ["", "{", '{"b:1": true}', "7", "\xff"])
def test_a_damaged_file_confirms_nothing_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "confirmed_brokers.json"
    path.write_bytes(text.encode("latin-1"))
    known = KnownAddresses(["a:1"], path, is_guarding=True)

    assert "b:1" not in known
    assert "b:1" not in known
    assert "a:1" in known
    assert len(caplog.records) == 1
