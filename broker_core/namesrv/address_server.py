"""Client of a web server that lists the name servers.

The response body is "host:port;host:port". The broker requests it at startup and then every two
minutes; if the server doesn't respond, the last list stays in use.

Source: common/namesrv/TopAddressing.java, broker/BrokerController.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from broker_core.clock import wait_within
from broker_core.config.lists import parse_addresses
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

PERIOD_S = 120.0
TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 64 * 1024


class AddressServer(Service):
    """Polls the list and calls `on_change` with each new one. Event loop only."""

    def __init__(self, url: str, clock: Clock, on_change: Callable[[list[str]], None]) -> None:
        super().__init__()
        self._url = url
        self._clock = clock
        self._on_change = on_change
        self._known: list[str] = []
        self._is_failing = False

    async def start(self) -> None:
        """Request the list once, then every PERIOD_S."""
        await self.refresh()
        self.spawn_forever(self._clock, self._refresh_forever, name="address-server")

    async def refresh(self) -> None:
        """Request the list now; a failure is logged and keeps the last list."""
        asked = asyncio.get_running_loop().create_task(self._ask(), name="ask address server")
        try:
            if not await wait_within(self._clock, asked, TIMEOUT_S):
                raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")
            addresses = asked.result()
        except (OSError, ValueError) as error:
            if not self._is_failing:
                logger.warning("address server unreachable url=%s reason=%s", self._url, error)
            self._is_failing = True
            return
        finally:
            asked.cancel()
        self._is_failing = False
        if addresses != self._known:
            logger.info("name servers changed addresses=%s", ";".join(addresses))
            self._known = addresses
            self._on_change(addresses)

    async def _ask(self) -> list[str]:
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        reader, writer = await asyncio.open_connection(host, parts.port or 80)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            # With HTTP/1.0, the end of the connection ends the response, and no server sends
            # chunks.
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode("latin-1"))
            answer = b""
            while len(answer) < ANSWER_BYTES_MAX and (piece := await reader.read(4096)):
                answer += piece
        finally:
            writer.close()
        return _addresses_in(answer)

    async def _refresh_forever(self) -> None:
        while True:
            await self._clock.sleep(PERIOD_S)
            await self.refresh()


def _addresses_in(answer: bytes) -> list[str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or status[1] != b"200":
        raise ValueError(f"the server answered {head[:80].decode('latin-1')!r}")
    try:
        addresses = parse_addresses(body.decode("latin-1").strip())
    except ValueError as error:
        raise ValueError(f"{str(error)[:80]!r} is not host:port") from error
    if not addresses:
        raise ValueError("the answer lists no name server")
    return addresses
