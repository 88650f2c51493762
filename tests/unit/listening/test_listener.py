"""One port: plain frames, TLS, PROXY headers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.clock import SystemClock
from broker_core.config.lists import parse_networks
from broker_core.config.tls import TlsConfig
from broker_core.errors import ConfigError, RemotingError
from broker_core.listening.listener import Listener
from broker_core.listening.peer_log import PeerLog
from broker_core.listening.proxies import TrustedProxies
from broker_core.listening.tls import TlsGate
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.connection import Connection
from broker_core.remoting.dispatch import Dispatcher
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.server import SWEEP_S, RemotingServer
from broker_core.remoting.wire import Wire
from broker_core.service import Service
from tests.support.certificates import certificate
from tests.support.clock import ManualClock
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.clock import Clock

ECHO = 1
BIG = 2
BIG_BYTES = 3_000_000


def echo(request: RemotingCommand, connection: Connection) -> RemotingCommand:
    return request.answer(0, None, {"peer": connection.remote_address}, request.body)


def big(request: RemotingCommand, _: Connection) -> RemotingCommand:
    return request.answer(0, body=bytes(BIG_BYTES))


def trusted(networks: str) -> TrustedProxies:
    return TrustedProxies(parse_networks(networks))


def tls_config(**keys: Any) -> TlsConfig:
    texts: dict[str, Any] = {
        name: str(value) if name.endswith("_path") else value for name, value in keys.items()
    }
    return TlsConfig(**texts)


def trusting(*certificates: Path, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for one in certificates:
        context.load_verify_locations(one)
    if client is not None:
        context.load_cert_chain(*client)
    return context


def trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.asynccontextmanager
async def serving(
    tls: TlsConfig | None = None,
    *,
    proxies: TrustedProxies | None = None,
    clock: Clock | None = None,
    limits: RemotingLimits | None = None,
) -> AsyncIterator[tuple[RemotingServer, str]]:
    gate = None if tls is None else TlsGate(tls)
    server = RemotingServer(
        "test server", {ECHO: echo, BIG: big}, clock, limits, gate, proxies=proxies
    )
    port = await server.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(30):
            yield server, f"127.0.0.1:{port}"
    finally:
        await server.shutdown()


async def ask(
    address: str, context: ssl.SSLContext | None = None, code: int = ECHO
) -> RemotingCommand:
    client = RemotingClient(tls=context)
    try:
        return await client.request(address, RemotingCommand.request(code, body=b"hello"))
    finally:
        await client.shutdown()


async def test_a_port_accepts_plain_frames_and_tls(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    async with serving(tls_config(cert_path=made, key_path=key)) as (_, address):
        assert (await ask(address)).body == b"hello"
        assert (await ask(address, trusting(made))).body == b"hello"
        assert len((await ask(address, trusting(made), BIG)).body) == BIG_BYTES


async def test_many_requests_share_one_secured_connection(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    async with serving(tls_config(cert_path=made, key_path=key)) as (_, address):
        client = RemotingClient(tls=trusting(made))
        bodies = [b"%d" % number * 1000 for number in range(200)]

        answers = await asyncio.gather(
            *(client.request(address, RemotingCommand.request(ECHO, body=body)) for body in bodies)
        )

        assert [answer.body for answer in answers] == bodies
        await client.shutdown()


async def test_without_a_certificate_a_test_certificate_is_created() -> None:
    async with serving(tls_config()) as (_, address):
        first, second = await asyncio.gather(
            ask(address, trusting_anybody()), ask(address, trusting_anybody())
        )

        assert first.body == second.body == b"hello"
        with pytest.raises(RemotingError):
            await ask(address, trusting())


@pytest.mark.parametrize(
    ("mode", "takes_plain", "takes_tls"),
    [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)],
)
async def test_the_mode_decides_what_is_accepted(
    mode: Any, takes_plain: bool, takes_tls: bool
) -> None:
    async with serving(tls_config(mode=mode)) as (_, address):
        for context, is_taken in ((None, takes_plain), (trusting_anybody(), takes_tls)):
            if is_taken:
                assert (await ask(address, context)).body == b"hello"
            else:
                with pytest.raises(RemotingError):
                    await ask(address, context)


async def test_a_changed_certificate_is_used_for_new_connections(tmp_path: Path) -> None:
    old, old_key = certificate(tmp_path, "old")
    new, new_key = certificate(tmp_path, "new")
    place, place_key = tmp_path / "in-force.pem", tmp_path / "in-force.key"
    place.write_bytes(old.read_bytes())
    place_key.write_bytes(old_key.read_bytes())
    gate = TlsGate(tls_config(cert_path=place, key_path=place_key))
    server = RemotingServer("test server", {ECHO: echo}, tls=gate)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    kept = RemotingClient(tls=trusting(old))
    await kept.request(address, RemotingCommand.request(ECHO))

    # Only the new key exists: the pair doesn't match, so the old one stays in use.
    place_key.write_bytes(new_key.read_bytes())
    gate.reload_if_changed()
    assert (await ask(address, trusting(old))).code == 0
    place.write_bytes(new.read_bytes())
    gate.reload_if_changed()

    assert (await ask(address, trusting(new))).code == 0
    with pytest.raises(RemotingError):
        await ask(address, trusting(old))
    assert (await kept.request(address, RemotingCommand.request(ECHO))).code == 0
    await kept.shutdown()
    await server.shutdown()


@pytest.mark.parametrize(("need", "without"), [("require", False), ("optional", True)])
async def test_clients_present_trusted_certificates(
    tmp_path: Path, need: Any, without: bool
) -> None:
    made, key = certificate(tmp_path, "server")
    known = certificate(tmp_path, "known")
    stranger = certificate(tmp_path, "stranger")
    tls = tls_config(
        cert_path=made,
        key_path=key,
        need_client_auth=need,
        auth_client=True,
        trust_cert_path=known[0],
    )
    async with serving(tls) as (_, address):
        assert (await ask(address, trusting(made, client=known))).code == 0
        with pytest.raises(RemotingError):
            await ask(address, trusting(made, client=stranger))
        if without:
            assert (await ask(address, trusting(made))).code == 0
        else:
            with pytest.raises(RemotingError):
                await ask(address, trusting(made))


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"cert_path": "/no/such", "key_path": "/no/such"}, "tls.server.certPath"),
        ({"mode": "enforcing", "test_mode_enable": False}, "tls.server.mode"),
    ],
)
def test_unusable_tls_is_rejected_at_the_start(keys: Any, wrong: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        TlsGate(tls_config(**keys))
    assert refusal.value.key == wrong


def test_requesting_certificates_without_verifying_them_is_rejected(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    with pytest.raises(ConfigError) as refusal:
        TlsGate(tls_config(cert_path=made, key_path=key, need_client_auth="require"))
    assert refusal.value.key == "tls.server.need.client.auth"


async def proxied(address: str, header: bytes, *, is_slow: bool) -> bytes:
    """Send a header, then a request; return the answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frame = RemotingCommand(ECHO, 0, 1, 407, "JAVA", body=b"hello").encode()
    if is_slow:
        for byte in header:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(frame)
    else:
        writer.write(header + frame)
    answer = await reader.read(4096)
    writer.close()
    return answer


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc0\0\x02\x01\xdc\x04\x2a\x9f",
    ],
)
async def test_the_peer_is_the_proxys_client(header: bytes, is_slow: bool) -> None:
    async with serving(proxies=trusted("127.0.0.1")) as (_, address):
        answer = await proxied(address, header, is_slow=is_slow)

    assert b'"peer":"192.0.2.7:56324"' in answer
    assert answer.endswith(b"hello")


async def test_a_proxied_port_accepts_nothing_without_a_header() -> None:
    async with serving(proxies=trusted("127.0.0.1")) as (_, address):
        with contextlib.suppress(ConnectionResetError):
            assert await proxied(address, b"", is_slow=False) == b""


@pytest.mark.parametrize("networks", ["", "192.0.2.0/24", "127.0.0.2,::1"])
async def test_a_header_from_an_untrusted_proxy_is_ignored(
    networks: str, caplog: pytest.LogCaptureFixture
) -> None:
    header = b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911\r\n"
    async with serving(proxies=trusted(networks)) as (server, address):
        for _ in range(20):
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                assert await proxied(address, header, is_slow=False) == b""
        assert not server.connections

    words = [record.getMessage() for record in caplog.records]
    assert all("proxyProtocolTrusted" in word for word in words)
    assert len(words) == (5 if networks else 1)


async def test_a_client_cannot_add_a_header_to_its_proxys_headers() -> None:
    headers = b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\nPROXY TCP4 10.0.0.1 192.0.2.1 1 2\r\n"
    async with serving(proxies=trusted("127.0.0.0/8")) as (_, address):
        with contextlib.suppress(ConnectionResetError):
            assert await proxied(address, headers, is_slow=False) == b""


@pytest.mark.parametrize(
    ("host", "is_in"),
    [
        ("10.1.2.3", True),
        ("10.2.0.1", False),
        ("::ffff:10.1.2.3", True),
        ("fe80::1%eth0", True),
        ("::1", False),
    ],
)
def test_proxies_are_trusted_by_network(host: str, is_in: bool) -> None:
    assert trusted("10.1.0.0/16, 192.0.2.9,fe80::/10").is_trusted(host) is is_in


async def test_tls_may_follow_a_proxys_header(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    async with serving(tls_config(cert_path=made, key_path=key), proxies=trusted("127.0.0.1")) as (
        _,
        address,
    ):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911\r\n")
        await writer.start_tls(trusting(made), server_hostname=host)
        writer.write(RemotingCommand(ECHO, 0, 1, 407, "JAVA").encode())

        assert b'"peer":"192.0.2.7:56324"' in await reader.read(4096)
        writer.close()


async def test_a_silent_peer_is_closed_like_an_idle_one() -> None:
    clock = ManualClock()
    limits = RemotingLimits(idle_s=20.0)
    async with serving(tls_config(), clock=clock, limits=limits) as (_, address):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        # Connections are accepted in order: an answer to the later one proves that the first was.
        assert (await ask(address)).code == 0
        for _ in range(int(limits.idle_s / SWEEP_S) + 1):
            clock.advance_ms(int(SWEEP_S * 1000))

        assert await reader.read(1) == b""
        writer.close()


async def test_silent_connections_count_too() -> None:
    limits = RemotingLimits(connections_max=2)
    async with serving(tls_config(), limits=limits) as (_, address):
        host, _, port = address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]

        with pytest.raises(RemotingError):
            await ask(address)
        for _, writer in silent:
            writer.close()


def listener_of(wire: Wire) -> Listener:
    return Listener(
        partial(Connection, wire),
        wire.connections.__len__,
        [],
        wire.limits,
        wire.clock,
        wire.peer_log,
        tls=None,
        proxies=None,
    )


async def test_a_socket_adopted_at_the_very_end_is_closed() -> None:
    clock = SystemClock()
    wire = Wire(
        dispatcher=Dispatcher({ECHO: echo}),
        clock=clock,
        limits=RemotingLimits(),
        owner=Service(),
        peer_log=PeerLog(clock),
        on_made=lambda _: None,
        on_lost=lambda _: None,
    )
    listener = listener_of(wire)
    ours, theirs = socket.socketpair()

    with theirs:
        listener.adopt(ours, None, is_tls=False)
        await listener.shutdown()

        assert ours.fileno() == -1
        assert theirs.recv(1) == b""


@pytest.mark.parametrize("turns", range(5))
async def test_no_pending_connection_keeps_the_port_from_closing(turns: int) -> None:
    clock = SystemClock()
    made: list[Connection] = []
    lost: list[Connection] = []
    wire = Wire(
        dispatcher=Dispatcher({ECHO: echo}),
        clock=clock,
        limits=RemotingLimits(),
        owner=Service(),
        peer_log=PeerLog(clock),
        on_made=made.append,
        on_lost=lost.append,
    )
    listener = listener_of(wire)
    ours, theirs = socket.socketpair()

    with theirs:
        listener.adopt(ours, None, is_tls=False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.shutdown()
        await asyncio.wait_for(wire.close_all(), PATIENCE_S)

        assert lost == made
        assert theirs.recv(1) == b""
