from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from broker_core.namesrv.address_server import PERIOD_S, TIMEOUT_S, AddressServer
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class WebServer:
    """Answers every request with the same bytes; counts them."""

    def __init__(self) -> None:
        self.answer = b""
        self.requests: list[bytes] = []
        self.port = 0
        self.is_requested = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        self.is_requested.set()
        if self.answer:
            writer.write(self.answer)
            writer.close()

    def says(self, body: str, status: str = "200 OK") -> None:
        self.answer = f"HTTP/1.1 {status}\r\nServer: x\r\n\r\n{body}\n".encode()


@contextlib.asynccontextmanager
async def web_server() -> AsyncIterator[WebServer]:
    web = WebServer()
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        for writer in web.writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def asking(web: WebServer, clock: ManualClock, reports: list[list[str]]) -> AddressServer:
    return AddressServer(f"http://127.0.0.1:{web.port}/rocketmq/nsaddr", clock, reports.append)


async def test_it_reports_name_server_addresses_and_their_changes() -> None:
    reports: list[list[str]] = []
    async with web_server() as web:
        server = asking(web, ManualClock(), reports)
        web.says("10.0.0.1:9876;10.0.0.2:9876")
        await server.refresh()
        await server.refresh()
        web.says("10.0.0.3:9876")
        await server.refresh()

    assert reports == [["10.0.0.1:9876", "10.0.0.2:9876"], ["10.0.0.3:9876"]]
    assert web.requests[0].startswith(b"GET /rocketmq/nsaddr HTTP/1.0\r\nHost: 127.0.0.1\r\n")


@pytest.mark.parametrize(
    ("body", "status"),
    [("10.0.0.1:9876", "500 Oops"), ("", "200 OK"), ("<html>", "200 OK"), ("a:1;b", "200 OK")],
)
async def test_an_answer_without_addresses_changes_nothing(
    body: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[list[str]] = []
    async with web_server() as web:
        server = asking(web, ManualClock(), reports)
        web.says("10.0.0.1:9876")
        await server.refresh()
        web.says(body, status)
        await server.refresh()
        await server.refresh()

    assert reports == [["10.0.0.1:9876"]]
    assert caplog.text.count("address server unreachable") == 1


async def test_an_unresponsive_server_is_only_waited_for_briefly() -> None:
    reports: list[list[str]] = []
    clock = ManualClock()
    async with web_server() as web:
        server = asking(web, clock, reports)
        refreshing = asyncio.get_running_loop().create_task(server.refresh())
        await web.is_requested.wait()
        clock.advance_ms(int(TIMEOUT_S * 1000))
        await refreshing

    assert reports == []


async def test_it_is_queried_every_two_minutes() -> None:
    report: asyncio.Queue[list[str]] = asyncio.Queue()
    clock = ManualClock()
    async with web_server() as web:
        web.says("10.0.0.1:9876")
        url = f"http://127.0.0.1:{web.port}/"
        server = AddressServer(url, clock, report.put_nowait)
        await server.start()
        assert await report.get() == ["10.0.0.1:9876"]
        await asyncio.sleep(0)
        web.says("10.0.0.2:9876")
        clock.advance_ms(int(PERIOD_S * 1000))
        assert await report.get() == ["10.0.0.2:9876"]
        await server.shutdown()
