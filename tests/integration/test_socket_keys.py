"""Socket options, read from the kernel's sockets of a broker in this process."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_core.composition.foundation import client_limits_of, limits_of
from broker_core.errors import RemotingConnectError
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.limits import RemotingLimits
from tests.support.broker import configuration_for, running_broker
from tests.support.client import Client
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

SEND_BYTES, RECEIVE_BYTES = 40_000, 50_000
BACKLOG = 17
TCP_INFO_BACKLOG_AT = 28
"""For a listening socket tcpi_sacked is its maximum queue length."""


def open_sockets() -> Iterator[socket.socket]:
    """Yield this process's own TCP sockets."""
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:"):
            with socket.socket(fileno=os.dup(int(descriptor.name))) as one:
                if one.family == socket.AF_INET and one.type == socket.SOCK_STREAM:
                    yield one


def peer_port(one: socket.socket) -> int | None:
    try:
        port: int = one.getpeername()[1]
    except OSError:
        return None
    return port


def buffers_of(one: socket.socket) -> tuple[int, int]:
    """Return the requested sizes; Linux doubles them for its own bookkeeping."""
    sent = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    received = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return sent // 2, received // 2


async def test_the_servers_buffers_and_backlog_are_as_configured(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path,
        serverSocketSndBufSize=SEND_BYTES,
        serverSocketRcvBufSize=RECEIVE_BYTES,
        serverSocketBacklog=BACKLOG,
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T")

        accepted: list[tuple[int, int]] = []
        backlogs: list[int] = []
        for one in open_sockets():
            if one.getsockname()[1] == broker.listen_port:
                if peer_port(one) is None:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
                    backlogs += struct.unpack_from("=I", info, TCP_INFO_BACKLOG_AT)
                else:
                    accepted.append(buffers_of(one))
        await client.shutdown()

    assert accepted == [(SEND_BYTES, RECEIVE_BYTES)]
    assert backlogs == [BACKLOG]


async def test_the_clients_buffers_are_as_configured(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "named") as named:
        assert named.naming.name_server is not None
        port = named.naming.name_server.port
        async with running_broker(
            tmp_path / "broker",
            brokerName="broker-b",
            namesrvAddr=f"127.0.0.1:{port}",
            clientSocketSndBufSize=SEND_BYTES,
            clientSocketRcvBufSize=RECEIVE_BYTES,
        ):
            connected = [buffers_of(one) for one in open_sockets() if peer_port(one) == port]

    # One registers the broker, one looks for other members of its set.
    assert set(connected) == {(SEND_BYTES, RECEIVE_BYTES)}


async def test_a_client_waits_for_a_connection_as_long_as_configured() -> None:
    clock = ManualClock()
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        # One connection fills the queue: the kernel doesn't answer the next.
        with socket.create_connection(("127.0.0.1", port)):
            client = RemotingClient(clock=clock, limits=RemotingLimits(connect_timeout_s=1.5))
            request = asyncio.get_running_loop().create_task(client.connection(f"127.0.0.1:{port}"))
            await asyncio.sleep(0)
            clock.advance_ms(1_400)
            await asyncio.sleep(0)
            assert not request.done()
            clock.advance_ms(100)

            with pytest.raises(RemotingConnectError, match=r"within 1\.5 s"):
                await request
            await client.shutdown()


def test_the_keys_reach_the_limits(tmp_path: Path) -> None:
    configuration = configuration_for(
        tmp_path,
        serverChannelMaxIdleTimeSeconds=7,
        clientChannelMaxIdleTimeSeconds=8,
        connectTimeoutMillis=900,
    )

    assert limits_of(configuration).idle_s == 7
    client = client_limits_of(configuration)
    assert (client.idle_s, client.connect_timeout_s) == (8, 0.9)
