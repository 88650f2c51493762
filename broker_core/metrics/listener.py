"""MetricsListener: a port that serves only GET /metrics.

One request per connection, with time limits for its head and its answer, few concurrent
connections, and a head of some kilobytes. Only the first line of the input is parsed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, NamedTuple, cast

from broker_core.errors import RemotingError
from broker_core.listening.listener import listen
from broker_core.metrics.exposition import CONTENT_TYPE
from broker_core.remoting.limits import RemotingLimits
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.clock import Clock, Timer
    from broker_core.counted_log import CountedLog
    from broker_core.remoting.allowed_peers import AllowedPeers

logger = logging.getLogger(__name__)

PATH = "/metrics"
CONNECTIONS_MAX = 16
HEAD_BYTES_MAX = 8 << 10
HEAD_SECONDS = 5.0
ANSWER_SECONDS = 30.0
TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """The response to a request."""

    status: str
    body: bytes
    content_type: str = TEXT
    more: str = ""
    """Additional header lines."""


BAD_REQUEST = Answer("400 Bad Request", b"This is no HTTP request.\n")
NOT_FOUND = Answer("404 Not Found", b"There is only /metrics here.\n")
NOT_ALLOWED = Answer("405 Method Not Allowed", b"Only GET is served here.\n", more="Allow: GET\r\n")
TOO_LONG = Answer("431 Request Header Fields Too Large", b"The head of the request is too long.\n")


class MetricsListener(Service):
    """Event loop only. `page` returns the body for GET /metrics."""

    def __init__(
        self,
        page: Callable[[], Awaitable[bytes]],
        allowed: AllowedPeers,
        counted_log: CountedLog,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._page = page
        self._allowed = allowed
        self._counted_log = counted_log
        self._clock = clock
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses if `port` is 0.

        Raises:
            RemotingError: the port can't be opened; the message is one sentence.
        """
        try:
            sockets = await listen(host, port, RemotingLimits(backlog=CONNECTIONS_MAX))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise RemotingError(
                f"metrics cannot be served on {host}:{port}: {reason.lower()}; "
                "metricsListenPort sets another port"
            ) from error
        loop = asyncio.get_running_loop()
        for one in sockets:
            self._servers.append(await loop.create_server(self._connection, sock=one))
        bound: int = sockets[0].getsockname()[1]
        logger.info("metrics listening url=http://%s:%d%s", host, bound, PATH)
        return bound

    async def shutdown(self) -> None:
        """Stop listening and close all connections."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self._connections):
            connection.abort()
        await super().shutdown()

    def _connection(self) -> asyncio.Protocol:
        return _Connection(self, self._clock)

    def admit(self, connection: _Connection, host: str) -> bool:
        """Accept a connection, or log the reason and return False."""
        reason = self._allowed.refusal(host)
        if reason is None and len(self._connections) >= CONNECTIONS_MAX:
            reason = f"there are {CONNECTIONS_MAX} connections"
        if reason is not None:
            self._counted_log.report(
                logger, logging.WARNING, "scrape refused", f"host={host}", "reason=%s", reason
            )
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        """Drop a connection that has ended."""
        self._connections.discard(connection)

    def answer(self, connection: _Connection, head: bytes) -> None:
        """Answer a request according to its head."""
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            connection.write(BAD_REQUEST)
        elif parts[1].partition("?")[0] != PATH:
            connection.write(NOT_FOUND)
        elif parts[0] != "GET":
            connection.write(NOT_ALLOWED)
        else:
            self.spawn(self._scrape(connection), name="scrape")

    async def _scrape(self, connection: _Connection) -> None:
        try:
            connection.write(Answer("200 OK", await self._page(), CONTENT_TYPE))
        finally:
            # Closes the connection if the page failed; otherwise it is closed already.
            connection.close()


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, owner: MetricsListener, clock: Clock) -> None:
        self._owner = owner
        self._clock = clock
        self._head = b""
        self._is_asked = False
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports aren't subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("",)
        if self._owner.admit(self, str(peer[0])):
            self._end_after(HEAD_SECONDS)
        else:
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_asked or self._transport is None:
            return
        self._head += data
        is_whole = b"\r\n\r\n" in self._head
        if not is_whole and len(self._head) <= HEAD_BYTES_MAX:
            return
        self._is_asked = True
        self._transport.pause_reading()
        self._end_after(ANSWER_SECONDS)
        head, self._head = self._head, b""
        if len(head) > HEAD_BYTES_MAX:
            self.write(TOO_LONG)
        else:
            self._owner.answer(self, head)

    def eof_received(self) -> bool:
        # A client may close its sending side and still read.
        return self._is_asked

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._owner.forget(self)

    def write(self, answer: Answer) -> None:
        """Send the answer, then close the connection."""
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {answer.status}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\n{answer.more}"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1"))
        self._transport.write(answer.body)
        self.close()

    def close(self) -> None:
        """Close the connection once all written data is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    def _end_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(self._clock.monotonic() + seconds, self.abort)
