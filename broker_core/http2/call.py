"""A gRPC call, which is one HTTP/2 stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker_core.http2.grpc_framing import OK_BLOCK, only_block, status_block
from broker_core.http2.routes import BIDI, Route

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from broker_core.http2.connection import Connection
    from broker_core.http2.methods import Conversation
    from broker_core.http2.request_body import RequestBody

DRAINED_BYTES = 256 * 1024
"""`drained` returns once fewer bytes than this are unsent."""


class Call:
    """The call passed to a handler. Event loop only.

    After the call has ended, its methods do nothing, because the client no longer waits for the
    answer.

    Attributes:
        connection: the connection that carries the call.
        headers: the request's fields by name: `call.headers.get("x-mq-client-id", "")`.
        received_at: when the request arrived, by the monotonic clock.
        deadline: when the client gives up, by the monotonic clock; None if there is no deadline.
        on_cancel: called once if the call ends before the whole answer has been sent: the client
            cancelled it, its deadline passed or the connection was lost.
    """

    __slots__ = (
        "_waiters",
        "admitted_bytes",
        "body",
        "buffered_bytes",
        "connection",
        "content_left",
        "conversation",
        "deadline",
        "ending",
        "has_begun",
        "has_timer",
        "headers",
        "is_open",
        "is_plain",
        "is_request_over",
        "is_waiting",
        "on_cancel",
        "progress_at",
        "queue",
        "receive_window",
        "received_at",
        "request",
        "route",
        "send_window",
        "stream_id",
        "unsent_bytes",
    )

    def __init__(
        self,
        connection: Connection,
        stream_id: int,
        route: Route,
        headers: dict[str, str],
        received_at: float,
        receive_window: int,
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.route = route
        self.headers = headers
        self.received_at = received_at
        self.deadline: float | None = None
        self.on_cancel: Callable[[], None] | None = None
        self.is_open = True
        # The connection's state of the request.
        self.is_plain = route.kind != BIDI
        self.is_request_over = False
        self.is_waiting = False
        self.has_timer = False
        self.receive_window = receive_window
        self.body: RequestBody | None = None
        self.request: bytes | None = None
        self.conversation: Conversation | None = None
        self.content_left = -1
        self.buffered_bytes = 0
        self.admitted_bytes = 0
        self.progress_at = received_at
        # The outbox's state of the answer. The window is relative to the peer's initial window.
        self.send_window = 0
        self.has_begun = False
        self.queue: deque[memoryview] | None = None
        self.unsent_bytes = 0
        self.ending: bytes | None = None
        self._waiters: list[asyncio.Future[Any]] | None = None

    def __repr__(self) -> str:
        return f"<Call {self.route.path} stream={self.stream_id}>"

    def answer(self, message: bytes) -> None:
        """Send the only answer and end the call."""
        if self.is_open and self.ending is None:
            self.connection.outbox.answer(self, message)

    def send(self, message: bytes) -> None:
        """Send one answer of a stream. Answers that the client hasn't read yet wait in memory."""
        if self.is_open and self.ending is None:
            self.connection.outbox.send(self, message)

    def end(self) -> None:
        """End the call with status OK."""
        if self.is_open and self.ending is None:
            self.connection.outbox.end(self, OK_BLOCK)

    def fail(self, status: int, message: str) -> None:
        """End the call with a grpc-status and a grpc-message."""
        if not self.is_open or self.ending is not None:
            return
        if self.has_begun:
            self.connection.outbox.end(self, status_block(status, message))
        else:
            self.connection.outbox.end(self, only_block(status, message))

    async def drained(self) -> bool:
        """Wait until the client has read most of the answer; return False if the call has ended."""
        while self.is_open and self.unsent_bytes > DRAINED_BYTES:
            waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            await waiter
        return self.is_open

    # Called by the connection.

    def wake(self) -> None:
        """Resume the handlers that wait for the client to read."""
        if self._waiters is not None and (not self.is_open or self.unsent_bytes <= DRAINED_BYTES):
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
