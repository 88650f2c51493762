"""uvicorn's protocols (h11, websockets), monitored by the door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from console.serving.door import Door, Phase

if TYPE_CHECKING:
    import asyncio

    from uvicorn.server import ServerState


class DoorConfig(uvicorn.Config):
    """uvicorn's configuration with a door for all connections."""

    def __init__(self, app: str, *, door: Door, **options: Any) -> None:
        super().__init__(app, http=WatchedHttp, ws=WatchedWebSocket, **options)
        self.door = door


HEADER_BYTES_MAX = 16 * 1024
AMBIGUOUS_LENGTH = (
    "The request specifies the length of its body in two ways, which servers interpret "
    "differently. "
    "Send either Content-Length or, with HTTP/1.1, Transfer-Encoding.\n"
)


class StrictConnection(h11.Connection):
    """Refuses requests whose end a proxy in front could interpret differently (RFC 9112, section
    6.3).
    """

    advice = ""
    """What the client should send instead of the refused request."""

    def next_event(self) -> Any:
        """Return the next event.

        Raises:
            h11.RemoteProtocolError: the request is malformed, or its length is ambiguous.
        """
        event = super().next_event()
        if isinstance(event, h11.Request) and is_length_ambiguous(event):
            self.advice = AMBIGUOUS_LENGTH
            raise h11.RemoteProtocolError("a request with two lengths")
        return event


def is_length_ambiguous(request: h11.Request) -> bool:
    """Whether a request has both length headers, or one that its HTTP version doesn't define."""
    names = {name for name, _value in request.headers}
    return b"transfer-encoding" in names and (
        b"content-length" in names or request.http_version < b"1.1"
    )


class WatchedHttp(H11Protocol):
    """One HTTP connection, counted and monitored by the door."""

    def __init__(
        self,
        config: DoorConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = self._requests = StrictConnection(
            h11.SERVER, config.h11_max_incomplete_event_size or HEADER_BYTES_MAX
        )
        self._door = config.door
        self._admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        peer = get_remote_addr(stream)
        self._admitted = self._door.admit(self, peer[0] if peer else "", self.loop)
        if not self._admitted:
            stream.abort()
            return
        super().connection_made(stream)

    def data_received(self, data: bytes) -> None:
        if self._admitted:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._admitted:
            self._door.leave(self)
            super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(self._requests.advice or msg)

    def phase(self) -> tuple[Phase, object]:
        # The token is the request, since each request has its own phases.
        if self.transport.is_closing():
            return Phase.CLOSE, None
        if self.flow.write_paused:
            return Phase.READER, self.cycle
        if self.conn.their_state is h11.SEND_BODY:
            return Phase.BODY, self.cycle
        # None before the first request, contrary to uvicorn's type annotation.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            return Phase.HEADERS, self.cycle
        return Phase.ANSWER, self.cycle


class WatchedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket, which replaces its HTTP connection at the door."""

    def __init__(
        self,
        config: DoorConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._door = config.door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        before = cast("asyncio.Transport", transport).get_protocol()
        self._door.hand_over(cast("WatchedHttp", before), self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        super().connection_lost(exc)

    def phase(self) -> tuple[Phase, object]:
        if self.transport.is_closing():
            return Phase.CLOSE, None
        if not self.writable.is_set():
            return Phase.READER, None
        return Phase.ANSWER, None
