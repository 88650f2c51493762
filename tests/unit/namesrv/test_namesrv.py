from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.namesrv.namesrv import NameServer
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

BROKER = {"brokerName": "b", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "brokerId": "0"}


async def test_a_silent_broker_is_forgotten_and_disconnected(tmp_path: Path) -> None:
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
        # Asking something else keeps the connection, not the registration.
        await client.request(address, RemotingCommand.request(206))
        clock.advance_ms(10_000)
    clock.advance_ms(5_000)

    assert name_server.routes.cluster_info().broker_addr_table == {}
    async with asyncio.timeout(10):
        await ended.wait()
    await client.shutdown()
    await name_server.shutdown()
