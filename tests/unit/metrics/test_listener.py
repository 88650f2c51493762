"""The metrics port: its answers, and limits for anonymous clients."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from broker_core.composition.metrics import METRICS_PORT
from broker_core.counted_log import CountedLog
from broker_core.errors import RemotingError
from broker_core.metrics.listener import (
    ANSWER_SECONDS,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_SECONDS,
    MetricsListener,
)
from broker_core.remoting.allowed_peers import AllowedPeers
from tests.support.clock import ManualClock
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LIMIT_S = 60.0
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def page() -> bytes:
    return b"up 1\n"


@asynccontextmanager
async def serving(
    made: Callable[[], Awaitable[bytes]] = page,
    allowed: str = "",
    clock: ManualClock | None = None,
) -> AsyncIterator[int]:
    clock = clock or ManualClock()
    counted_log = CountedLog(clock)
    peers = AllowedPeers(METRICS_PORT, allowed, [], has_acl=False)
    listener = MetricsListener(made, peers, counted_log, clock)
    try:
        yield await listener.start("127.0.0.1", 0)
    finally:
        await listener.shutdown()
        counted_log.shutdown()


async def answer_to(port: int, request: bytes) -> bytes:
    """Return everything until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), LIMIT_S)
    finally:
        writer.close()


async def ended(
    port: int, request: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.Task[bytes]]:
    """Connect, send, and return the task that ends with the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)

    async def wait() -> bytes:
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    return reader, asyncio.get_running_loop().create_task(wait())


async def test_a_scrape_gets_the_page_and_the_connection_closes() -> None:
    async with serving() as port:
        head, _, body = (await answer_to(port, GET)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert b"Content-Length: 5" in head
    assert body == b"up 1\n"


async def test_a_fragmented_head_and_a_query_are_accepted() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in (b"GET /met", b"rics?x=1 HTTP/1.0\r\n", b"\r", b"\n"):
            writer.write(piece)
            await writer.drain()
        assert (await asyncio.wait_for(reader.readline(), LIMIT_S)).endswith(b"200 OK\r\n")
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", b"404"),
        (b"GET /metrics/ HTTP/1.1", b"404"),
        (b"GET /../metrics HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"HEAD /metrics HTTP/1.1", b"405"),
        (b"DELETE /metrics HTTP/1.1", b"405"),
        (b"PRI * HTTP/2.0", b"400"),
        (b"GET /metrics", b"400"),
        (b"\xff\x00 x y", b"400"),
        (b"", b"400"),
    ],
)
async def test_nothing_else_is_served(request_line: bytes, status: bytes) -> None:
    async with serving() as port:
        answer = await answer_to(port, request_line + b"\r\n\r\n")

    assert answer.split(b" ")[1] == status
    assert b"up 1" not in answer


async def test_an_endless_head_is_rejected_when_it_is_too_long() -> None:
    async with serving() as port:
        answer = await answer_to(port, b"GET /metrics HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX)

    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_silent_peer_is_dropped_after_some_seconds() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as port:
        _, silent = await ended(port, b"GET /metr")
        await until_async(lambda: clock.waiting > 0, "the time limit")
        clock.advance_ms(round(HEAD_SECONDS * 1000) + 1)

        assert await asyncio.wait_for(silent, LIMIT_S) == b""


async def test_a_slow_answer_times_out() -> None:
    clock, begun = ManualClock(), asyncio.Event()

    async def never() -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    async with serving(never, clock=clock) as port:
        _, waiting = await ended(port, GET)
        await asyncio.wait_for(begun.wait(), LIMIT_S)
        clock.advance_ms(round(ANSWER_SECONDS * 1000) + 1)

        assert await asyncio.wait_for(waiting, LIMIT_S) == b""


async def test_a_failing_page_only_ends_its_own_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pages = iter([None, b"up 1\n"])

    async def fails_once() -> bytes:
        made = next(pages)
        if made is None:
            raise RuntimeError("no page")
        return made

    async with serving(fails_once) as port:
        assert await answer_to(port, GET) == b""
        assert b"up 1" in await answer_to(port, GET)

    assert "task stopped name=scrape" in caplog.text


async def test_the_number_of_simultaneous_connections_is_limited() -> None:
    async with serving() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        _, refused = await ended(port, GET)
        assert await asyncio.wait_for(refused, LIMIT_S) == b""
        for _, writer in held:
            writer.close()

        async def is_served() -> bool:
            _, again = await ended(port, GET)
            return b"up 1" in await asyncio.wait_for(again, LIMIT_S)

        while not await is_served():
            pass  # The server notices closed connections with a delay.


async def test_an_unauthorized_client_gets_nothing_and_the_log_has_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(allowed="192.0.2.7") as port:
        _, refused = await ended(port, GET)
        assert await asyncio.wait_for(refused, LIMIT_S) == b""

    assert "metricsAllowedAddresses does not name it; if it is your Prometheus, add 127.0.0.1" in (
        caplog.text
    )


async def test_a_port_in_use_is_reported_in_one_sentence() -> None:
    async with serving() as port:
        clock = ManualClock()
        peers = AllowedPeers(METRICS_PORT, "", [], has_acl=False)
        other = MetricsListener(page, peers, CountedLog(clock), clock)

        with pytest.raises(RemotingError, match="metricsListenPort sets another port"):
            await other.start("127.0.0.1", port)
        await other.shutdown()
