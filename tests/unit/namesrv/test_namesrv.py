from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.namesrv.namesrv import NameServer
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

BROKER = {"brokerName": "b", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "brokerId": "0"}


async def test_a_silent_broker_is_removed_and_disconnected(tmp_path: Path) -> None:
    clock = ManualClock()
    name_server = NameServer("127.0.0.1", 0, clock, FileStorage(), tmp_path / "kvConfig.json")
    await name_server.start()
    client = RemotingClient()
    address = f"127.0.0.1:{name_server.port}"
    await client.request(address, RemotingCommand.request(RequestCode.REGISTER_BROKER, BROKER))
    ended = asyncio.Event()
    (await client.connection(address)).on_close.append(lambda _: ended.set())

    for _ in range(12):
        assert list(name_server.routes.cluster_info().broker_addr_table) == ["b"]
        # Another request keeps the connection, not the registration.
        await client.request(address, RemotingCommand.request(206))
        clock.advance_ms(10_000)
    clock.advance_ms(5_000)

    assert name_server.routes.cluster_info().broker_addr_table == {}
    async with asyncio.timeout(10):
        await ended.wait()
    await client.shutdown()
    await name_server.shutdown()


async def test_a_temporary_impostor_leaves_the_route_unchanged(tmp_path: Path) -> None:
    name_server = NameServer(
        "127.0.0.1", 0, ManualClock(), FileStorage(), tmp_path / "kvConfig.json"
    )
    await name_server.start()
    address = f"127.0.0.1:{name_server.port}"
    honest, impostor = RemotingClient(), RemotingClient()

    async def ask(client: RemotingClient, code: int, **fields: str) -> int:
        command = RemotingCommand.request(code, {**BROKER, **fields})
        return (await client.request(address, command)).code

    register, unregister = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
    assert await ask(honest, register) == ResponseCode.SUCCESS
    assert await ask(impostor, register, brokerAddr="10.0.0.66:10911") == ResponseCode.NO_PERMISSION
    assert await ask(impostor, register) == ResponseCode.SUCCESS  # repeated, as after a lost answer
    assert await ask(impostor, unregister) == ResponseCode.SUCCESS
    assert await ask(impostor, unregister) == ResponseCode.NO_PERMISSION
    ended = asyncio.Event()
    (await impostor.connection(address)).on_close.append(lambda _: ended.set())
    await impostor.shutdown()
    async with asyncio.timeout(10):
        await ended.wait()

    assert await ask(honest, RequestCode.GET_BROKER_CLUSTER_INFO) == ResponseCode.SUCCESS
    brokers = name_server.routes.cluster_info().broker_addr_table
    assert brokers["b"].broker_addrs == {0: "10.0.0.1:10911"}
    await honest.shutdown()
    await name_server.shutdown()
