"""An HTTP/2 port: sockets, TLS, curl, limits on connections."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from typing import TYPE_CHECKING

import pytest

from broker_core.config.lists import parse_networks
from broker_core.config.tls import TlsConfig
from broker_core.errors import RemotingError
from broker_core.http2 import frames
from broker_core.http2.limits import Http2Limits
from broker_core.http2.methods import Unary
from broker_core.http2.server import ALPN, SWEEP_S, Http2Server
from broker_core.listening.proxies import TrustedProxies
from broker_core.listening.tls import TlsGate
from tests.support.certificates import certificate
from tests.support.clock import ManualClock
from tests.support.http2_peer import ECHO, block_of, data_frame, frames_of, request
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.http2.call import Call
    from broker_core.http2.connection import Connection

HELLO = frames.PREFACE + frames.settings({})
CALL = frames.headers(1, block_of(*request()), ends=False) + data_frame(1, b"hello")


def echo(_: Call, message: bytes) -> bytes:
    return message


@contextlib.asynccontextmanager
async def serving(
    limits: Http2Limits | None = None,
    gate: TlsGate | None = None,
    *,
    clock: ManualClock | None = None,
    proxies: TrustedProxies | None = None,
) -> AsyncIterator[tuple[Http2Server, int]]:
    server = Http2Server("test server", {ECHO: Unary(echo)}, clock, limits, gate, proxies=proxies)
    port = await server.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield server, port
    finally:
        await server.shutdown()


async def exchange(port: int, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Send bytes and return the answer up to the end of the call or of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(data)
    got = b""
    with contextlib.suppress(ConnectionError):
        while b"grpc-status" not in got and (piece := await reader.read(65_536)):
            got += piece
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return got


def trusting_anybody(*alpn: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def test_a_port_in_use_is_reported_in_one_sentence() -> None:
    async with serving() as (_, port):
        other = Http2Server("other server", {})
        with pytest.raises(RemotingError) as caught:
            await other.start("127.0.0.1", port)

    assert str(caught.value) == (
        f"other server cannot listen on 127.0.0.1:{port}: address already in use"
    )


@pytest.mark.parametrize("alpn", [("h2",), ("http/1.1", "h2"), ()])
async def test_tls_negotiates_h2_if_the_client_asks(alpn: tuple[str, ...], tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)), ALPN)
    context = trusting_anybody(*alpn)

    async with serving(gate=gate) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        tls = writer.get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() == ("h2" if alpn else None)
        assert tls.version() == "TLSv1.3"
        writer.close()
        assert b"hello" in await exchange(port, HELLO + CALL, context)


async def test_old_tls_versions_are_rejected(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)), ALPN)
    context = trusting_anybody("h2")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

    async with serving(gate=gate) as (_, port):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await exchange(port, HELLO, context)


async def test_a_tls_only_port_rejects_plain_calls(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    gate = TlsGate(TlsConfig(mode="enforcing", cert_path=str(made), key_path=str(key)), ALPN)

    async with serving(gate=gate) as (_, port):
        assert await exchange(port, HELLO + CALL) == b""


async def test_one_host_gets_its_share_of_connections() -> None:
    limits = Http2Limits(connections_per_host_max=2, is_loopback_bounded=True)
    async with serving(limits) as (server, port):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in kept:
            writer.write(HELLO)
            await reader.readexactly(9)
        assert len(server.connections) == 2

        assert await exchange(port, HELLO + CALL) == b""

        for _, writer in kept:
            writer.close()


async def test_a_proxy_names_the_peer() -> None:
    proxies = TrustedProxies(parse_networks("127.0.0.1"))
    seen: list[str] = []
    server = Http2Server(
        "test server",
        {ECHO: Unary(lambda call, m: (seen.append(call.connection.remote_address), m)[1])},  # type: ignore[func-returns-value]
        proxies=proxies,
    )
    port = await server.start("127.0.0.1", 0)
    try:
        await exchange(port, b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 8081\r\n" + HELLO + CALL)
    finally:
        await server.shutdown()

    assert seen == ["192.0.2.7:56324"]


async def test_a_lost_connection_is_reported_to_the_owner() -> None:
    lost: list[Connection] = []
    server = Http2Server("test server", {ECHO: Unary(echo)}, on_connection_lost=lost.append)
    port = await server.start("127.0.0.1", 0)

    await exchange(port, HELLO + CALL)
    await server.shutdown()

    assert [one.is_open for one in lost] == [False]


async def test_an_idle_connection_is_closed_by_the_sweep() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HELLO)
        got = b""
        while frames.SETTINGS_ACK not in got:
            got += await reader.read(100)

        clock.advance_ms(round(120_000 + SWEEP_S * 1_000))

        rest = await reader.read()
        assert [one.payload[8:] for one in frames_of(rest)] == [b"idle"]
        assert not server.connections
        writer.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing")
async def test_curl_is_answered() -> None:
    async with serving() as (_, port):
        process = await asyncio.create_subprocess_exec(
            *("curl", "-s", "-i", "--http2-prior-knowledge", "-H", "te: trailers"),
            *("-H", "content-type: application/grpc", "--data-binary", "@-"),
            f"http://127.0.0.1:{port}{ECHO}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate(b"\0\0\0\0\x0510000")
        assert out.startswith(b"HTTP/2 200 \r\ncontent-type: application/grpc\r\n\r\n")
        assert b"\0\0\0\0\x0510000" in out
        process = await asyncio.create_subprocess_exec(
            *("curl", "-s", "-S", f"http://127.0.0.1:{port}/"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert out.startswith(b"This port speaks gRPC, which is HTTP/2: ")
