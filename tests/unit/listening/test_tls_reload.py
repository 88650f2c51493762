"""A certificate that changes repeatedly under load, and peers that never complete a handshake."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from typing import TYPE_CHECKING

from broker_core.config.tls import TlsConfig
from broker_core.listening import listener
from broker_core.listening.tls import HANDSHAKE, TlsGate, client_context
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.server import RemotingServer
from tests.support.certificates import certificate

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from broker_core.remoting.connection import Connection

ECHO = 1
RELOADS = 100
CLIENTS = 4
SECONDS = 120


def echo(request: RemotingCommand, _: Connection) -> RemotingCommand:
    return request.answer(0, body=request.body)


def trusting(*certificates: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for one in certificates:
        context.load_verify_locations(one)
    return context


def put(source: Path, target: Path, number: int) -> None:
    """Replace a file as tools do, by a rename; `number` changes its time."""
    new = target.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    new.chmod(0o600)
    os.utime(new, ns=(0, number))
    new.replace(target)


async def test_a_hundred_reloads_under_load_do_not_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker_core.listening.tls")
    pairs = [certificate(tmp_path, "one"), certificate(tmp_path, "two")]
    place, place_key = tmp_path / "in-force.pem", tmp_path / "in-force.key"
    put(pairs[0][0], place, 1)
    put(pairs[0][1], place_key, 1)
    gate = TlsGate(TlsConfig(cert_path=str(place), key_path=str(place_key)))
    server = RemotingServer("test server", {ECHO: echo}, tls=gate)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    context = trusting(pairs[0][0], pairs[1][0])
    is_over, progress = asyncio.Event(), asyncio.Event()
    answered = 0

    async def ask(client: RemotingClient) -> None:
        nonlocal answered
        request = RemotingCommand.request(ECHO, body=b"x" * 10_000)
        assert (await client.request(address, request, SECONDS)).body == request.body
        answered += 1
        progress.set()

    async def load() -> None:
        kept = RemotingClient(tls=context)
        while not is_over.is_set():
            await ask(kept)
            fresh = RemotingClient(tls=context)
            await ask(fresh)
            await fresh.shutdown()
        await kept.shutdown()

    async def reload() -> None:
        for number in range(2, RELOADS + 2):
            made, key = pairs[number % 2]
            put(made, place, number)
            put(key, place_key, number)
            before = answered
            gate.reload_if_changed()
            while answered < before + CLIENTS:
                progress.clear()
                await progress.wait()
        is_over.set()

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(load())
        group.create_task(reload())
    await server.shutdown()

    assert answered >= RELOADS * CLIENTS
    changes = [text for text in caplog.messages if text.startswith("certificate reloaded")]
    assert len(changes) == RELOADS


async def test_tls_below_1_2_is_not_supported(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)))
    self_signed = TlsGate(TlsConfig())

    for context in (await gate.context(), await self_signed.context(), client_context(TlsConfig())):
        assert context is not None
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_a_peer_without_a_handshake_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listener.HANDSHAKE_SECONDS <= 15
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 0.2)
    made, key = certificate(tmp_path, "server")
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)))
    server = RemotingServer("test server", {ECHO: echo}, tls=gate)
    port = await server.start("127.0.0.1", 0)

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    # It begins like a ClientHello, and stops there.
    writer.write(bytes([HANDSHAKE, 3, 1, 0, 200, 1]))
    async with asyncio.timeout(SECONDS):
        left = await reader.read()

    assert left == b""
    writer.close()
    await server.shutdown()
