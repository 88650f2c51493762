"""Anonymous clients have smaller limits, separate from those of accounts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.remoting.limits import RemotingLimits, StrangerLimits
from broker_core.remoting.server import RemotingServer
from tests.support.clock import ManualClock
from tests.unit.remoting.test_server import ECHO, Setup, a_request, echo, setup, until

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Handler
    from tests.unit.remoting.test_server import Peer

__all__ = ["setup"]

SIGN_IN = 9
FEW = StrangerLimits(connections_max=3, connections_per_host_max=2, kept_bytes_max=100_000)


def sign_in(request: RemotingCommand, connection: Connection) -> RemotingCommand:
    if not connection.is_signed_in:
        connection.sign_in()
    return request.answer(0)


HANDLERS: dict[int, Handler] = {ECHO: echo, SIGN_IN: sign_in}


async def signed_in(setup: Setup) -> Peer:
    peer = await setup.connect()
    peer.send(a_request(SIGN_IN))
    await peer.receive()
    return peer


@pytest.mark.parametrize(
    ("is_by_host", "most", "reason"),
    [
        (False, 3, "more than 3 connections that have not signed in"),
        (True, 2, "more than 2 connections from one host that have not signed in"),
    ],
)
async def test_strangers_have_fewer_connections_and_accounts_keep_theirs(
    setup: Setup, caplog: pytest.LogCaptureFixture, *, is_by_host: bool, most: int, reason: str
) -> None:
    limits = RemotingLimits(strangers=FEW, is_loopback_bounded=is_by_host)
    server = await setup.serve(HANDLERS, limits=limits)
    accounts = [await signed_in(setup) for _ in range(most + 2)]
    strangers = [await setup.connect() for _ in range(most)]
    await until(lambda: len(server.connections) == 2 * most + 2)

    assert await (await setup.connect()).ended()
    assert reason in caplog.text

    # A slot is free again when an anonymous client leaves or signs in.
    strangers[0].writer.close()
    await until(lambda: len(server.connections) == 2 * most + 1)
    last = await setup.connect()
    last.send(a_request())
    await last.receive()
    last.send(a_request(SIGN_IN))
    await last.receive()
    accounts.append(await signed_in(setup))
    for account in accounts:
        account.send(a_request(body=bytes(1_000)))
        assert len((await account.receive()).body) == 1_000


async def test_a_lost_account_frees_no_strangers_place(setup: Setup) -> None:
    server = await setup.serve(HANDLERS, limits=RemotingLimits(strangers=FEW))
    account = await signed_in(setup)
    for _ in range(3):
        await setup.connect()
    account.writer.close()
    await until(lambda: len(server.connections) == 3)

    assert await (await setup.connect()).ended()


async def test_unfinished_frames_of_strangers_have_their_own_limit(setup: Setup) -> None:
    server = await setup.serve(HANDLERS, limits=RemotingLimits(strangers=FEW))
    frame = a_request(body=bytes(80_000)).encode()
    account = await signed_in(setup)
    stranger, other = await setup.connect(), await setup.connect()

    account.send(frame[:70_000])
    stranger.send(frame[:70_000])
    await until(lambda: server.kept_bytes == 140_000)
    other.send(frame[:70_000])

    assert await other.ended()
    # Signed-in clients aren't counted with them.
    second = await signed_in(setup)
    second.send(frame[:70_000])
    await until(lambda: server.kept_bytes == 210_000)
    for peer in (account, stranger, second):
        peer.send(frame[70_000:])
        assert len((await peer.receive()).body) == 80_000
    assert server.kept_bytes == 0
    stranger.send(frame[:70_000])
    await until(lambda: server.kept_bytes == 70_000)


async def test_a_stranger_that_does_not_read_is_closed_sooner(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    few = StrangerLimits(write_buffer_high=10_000, write_buffer_max=100_000)
    server = await setup.serve(
        HANDLERS, limits=RemotingLimits(strangers=few, send_buffer_bytes=8_192)
    )
    account = await signed_in(setup)
    await setup.connect()
    await until(lambda: len(server.connections) == 2)
    pushed = 0

    while len(server.connections) == 2:
        for connection in tuple(server.connections):
            connection.oneway(a_request(body=bytes(100_000)))
        pushed += 1
        await asyncio.sleep(0)

    assert "the peer does not read" in caplog.text
    for _ in range(pushed):
        assert len((await account.receive()).body) == 100_000


async def test_a_silent_stranger_is_closed_after_30_seconds(setup: Setup) -> None:
    clock = ManualClock()
    server = await setup.serve(
        HANDLERS, clock=clock, limits=RemotingLimits(strangers=StrangerLimits())
    )
    account, stranger = await signed_in(setup), await setup.connect()
    await until(lambda: len(server.connections) == 2)

    for _ in range(8):
        clock.advance_ms(5_000)
        await asyncio.sleep(0)

    assert await stranger.ended()
    account.send(a_request(body=b"still here"))
    assert (await account.receive()).body == b"still here"


async def test_without_accounts_no_client_is_a_stranger(setup: Setup) -> None:
    server = await setup.serve(HANDLERS)
    await setup.connect()
    await until(lambda: len(server.connections) == 1)
    [connection] = server.connections

    assert connection.is_signed_in
    assert isinstance(server, RemotingServer)
