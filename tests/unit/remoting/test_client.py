from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.errors import RemotingConnectError, RemotingSendError, RemotingTimeoutError
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting import broker_hosts
from broker_core.remoting.client import RemotingClient, split_address
from broker_core.remoting.connection import JOIN_BYTES
from broker_core.remoting.server import RemotingServer
from tests.support.clock import ManualClock
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_core.remoting.connection import Connection

ECHO = 1
NEVER = 2
PUSH = 3
END = 4
SIZES = (1, JOIN_BYTES, JOIN_BYTES + 1, 8 * JOIN_BYTES, 2, 2 * JOIN_BYTES)


class Served:
    """A server with a client of it."""

    def __init__(self) -> None:
        self.seen: list[RemotingCommand] = []
        self.pushed: list[RemotingCommand] = []
        self.clock = ManualClock()
        self.server = RemotingServer(
            "test server",
            {ECHO: self.echo, NEVER: lambda *_: None, PUSH: self.push, END: self.end},
        )
        self.client = RemotingClient({40: lambda c, _: self.pushed.append(c)}, self.clock)
        self.address = ""

    def echo(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        self.seen.append(request)
        return request.answer(0, body=request.body)

    def push(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        connection.oneway(RemotingCommand.request(40, {"consumerGroup": "g"}))
        return request.answer(0)

    def end(self, _: RemotingCommand, connection: Connection) -> None:
        connection.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    async with asyncio.timeout(20):
        served.address = f"127.0.0.1:{await served.server.start('127.0.0.1', 0)}"
        yield served
        await served.client.shutdown()
        await served.server.shutdown()


def a_request(code: int = ECHO, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, None, body)


async def test_requests_to_one_address_share_a_connection(served: Served) -> None:
    bodies = [b"%d" % n for n in range(20)]

    answers = await asyncio.gather(
        *(served.client.request(served.address, a_request(body=body)) for body in bodies)
    )

    assert [answer.body for answer in answers] == bodies
    assert len({request.opaque for request in served.seen}) == 20
    assert len(served.server.connections) == 1


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_peer_that_cannot_be_a_broker_is_queried_only_at_a_trusted_address(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    # Then this machine can't be a broker's, and no server has to listen at 169.254.169.254.
    monkeypatch.setattr(broker_hosts, "LOCAL_NETWORKS", ())
    client = RemotingClient(trusts=lambda _address: is_trusted)

    request = client.request(served.address.replace("127.0.0.1", "localhost"), a_request())
    if is_trusted:
        assert (await request).code == 0
    else:
        with pytest.raises(RemotingConnectError, match="not the address of one machine"):
            await request
    await client.shutdown()

    assert len(served.seen) == is_trusted


async def test_an_ended_connection_is_recreated(served: Served) -> None:
    with pytest.raises(RemotingSendError):
        await served.client.request(served.address, a_request(END))

    assert (await served.client.request(served.address, a_request(body=b"x"))).body == b"x"


async def test_pushed_requests_of_the_peer_are_handled(served: Served) -> None:
    await served.client.request(served.address, a_request(PUSH))

    assert [command.ext_fields for command in served.pushed] == [{"consumerGroup": "g"}]


async def test_a_oneway_request_arrives(served: Served) -> None:
    await served.client.oneway(served.address, a_request(body=b"x"))
    await served.client.request(served.address, a_request(body=b"y"))

    assert [request.body for request in served.seen] == [b"x", b"y"]
    assert [request.is_oneway for request in served.seen] == [True, False]


async def test_uncopied_bodies_arrive_whole_between_small_ones(served: Served) -> None:
    bodies = [bytes([65 + each]) * size for each, size in enumerate(SIZES)]

    for body in bodies:
        await served.client.oneway(served.address, a_request(body=body))
    await served.client.request(served.address, a_request(body=b"last"))

    assert [request.body for request in served.seen] == [*bodies, b"last"]


async def test_a_missing_answer_is_a_timeout(served: Served) -> None:
    await served.client.request(served.address, a_request())
    waiting = asyncio.ensure_future(  # noqa: TID251
        served.client.request(served.address, a_request(NEVER), 3.0)
    )
    await asyncio.sleep(0)
    served.clock.advance_ms(3_000)

    with pytest.raises(RemotingTimeoutError, match="within 3 s"):
        await waiting


async def test_a_missing_server_is_reported_in_one_sentence(served: Served) -> None:
    await served.server.shutdown()

    with pytest.raises(RemotingConnectError, match=r"^no connection to \S+: connection refused$"):
        await served.client.request(served.address, a_request())


@pytest.mark.parametrize("address", ["", "host", "host:", ":9876", "host:0", "host:65536", "h:٣"])
async def test_an_invalid_address_is_reported_in_one_sentence(served: Served, address: str) -> None:
    with pytest.raises(RemotingConnectError, match="form host:port"):
        await served.client.request(address, a_request())


def test_an_address_is_host_and_port() -> None:
    assert split_address("broker-a:10911") == ("broker-a", 10911)
    assert split_address(" [::1]:9876 ") == ("::1", 9876)


async def test_shutdown_ends_waiting_calls_and_starts_nothing(served: Served) -> None:
    await served.client.request(served.address, a_request())
    waiting = asyncio.ensure_future(  # noqa: TID251
        served.client.request(served.address, a_request(NEVER))
    )
    await asyncio.sleep(0)

    await served.client.shutdown()

    with pytest.raises(RemotingSendError):
        await waiting
    with pytest.raises(RemotingConnectError, match="shut down"):
        await served.client.request(served.address, a_request())


async def test_an_idle_client_leaves_no_timer_behind(served: Served) -> None:
    await served.client.request(served.address, a_request())
    ended = asyncio.Event()
    connection = await served.client.connection(served.address)
    connection.on_close.append(lambda _: ended.set())
    served.client.close(served.address)
    await ended.wait()

    served.clock.advance_ms(10_000)

    assert served.clock.waiting == 0


@pytest.mark.parametrize("turns", range(8))
async def test_no_pending_connection_keeps_a_client_from_closing(
    served: Served, turns: int
) -> None:
    request = asyncio.gather(
        served.client.request(served.address, a_request()), return_exceptions=True
    )
    for _ in range(turns):
        await asyncio.sleep(0)

    await served.client.shutdown()

    # With or without its answer.
    await asyncio.wait_for(request, PATIENCE_S)
