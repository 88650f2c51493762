"""The gateway's errors when brokers are down, hang, use another protocol, or reject requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from console.gateway.errors import (
    BrokerDownError,
    GatewayError,
    NameServerDownError,
)
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.requester import Requester
from console.gateway.remote.topics import RemoteTopics
from tests.console.gateway.support import ORDERS, ask
from tests.support.broker import running_broker
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TIMEOUT_S = 5.0


@pytest.fixture
async def to() -> AsyncIterator[Callable[..., RemoteTopics]]:
    """Return the topics behind a name server, and close everything that was opened."""
    opened: list[RemoteBrokers] = []

    def topics_behind(address: str, timeout_s: float = TIMEOUT_S) -> RemoteTopics:
        opened.append(RemoteBrokers([address], timeout_s))
        return RemoteTopics(opened[-1])

    yield topics_behind
    for brokers in opened:
        await ask(brokers.close)


async def test_a_missing_name_server_is_named_with_advice(to) -> None:
    address = f"127.0.0.1:{free_port()}"

    with pytest.raises(NameServerDownError) as caught:
        await ask(to(address).all)

    assert address in caught.value.what
    assert "TREBUCHET_NAMESRV" in caught.value.advice


async def test_a_port_with_another_protocol_does_not_cause_a_traceback(to) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    with pytest.raises(GatewayError) as caught:
        await ask(to(f"127.0.0.1:{port}", 1.0).all)

    server.close()
    await server.wait_closed()
    assert isinstance(caught.value, NameServerDownError | BrokerDownError)


async def test_a_peer_that_never_answers_times_out(to) -> None:
    done = asyncio.Event()

    async def keep_quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    server = await asyncio.start_server(keep_quiet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    with pytest.raises(NameServerDownError) as caught:
        await ask(to(f"127.0.0.1:{port}", 0.1).all)

    assert "no response within 0.1 seconds" in caught.value.what
    done.set()
    server.close()
    await server.wait_closed()


async def test_a_broker_that_accepts_connections_but_hangs_times_out() -> None:
    """Like a process stopped by SIGSTOP, whose kernel still accepts connections."""
    is_taken = asyncio.Event()

    async def keep_quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_taken.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(keep_quiet, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    requester = Requester(0.1, name_servers=[address])

    with pytest.raises(BrokerDownError) as caught:
        await requester(address, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))

    assert is_taken.is_set()
    assert address in caught.value.what
    assert "no response within 0.1 seconds" in caught.value.what
    await requester.shutdown()
    server.close()
    await server.wait_closed()


ACCOUNTS = "accounts:\n- accessKey: console\n  secretKey: '12345678'\n  admin: true\n"


@pytest.mark.parametrize("signs", [True, False])
async def test_a_broker_with_access_control_identifies_the_console_by_its_account(
    tmp_path: Path, settings, to, signs: bool
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    settings.TREBUCHET_BROKER_ACCESS_KEY = "console" if signs else ""
    settings.TREBUCHET_BROKER_SECRET_KEY = "12345678" if signs else None

    async with running_broker(tmp_path, aclEnable="true") as broker:
        settings.TREBUCHET_BROKERS = [f"127.0.0.1:{broker.configuration.server.listen_port}"]
        port = broker.configuration.broker.namesrv_listen_port
        topics = to(f"127.0.0.1:{port}")
        if signs:
            await ask(topics.save, ORDERS, ["broker-a"])
            assert "Orders" in await ask(topics.all)
        else:
            with pytest.raises(GatewayError, match="AclException"):
                await ask(topics.save, ORDERS, ["broker-a"])
