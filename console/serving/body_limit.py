"""BodyLimit: a limit on request bodies; low for anonymous clients, form-sized for signed-in people.

Without it, Django would store a body in memory, then on disk, before it checks who sent it. After a
refusal, the rest of the body is read and dropped for a while: closing a connection with unread
bytes resets it, and a browser that is still sending would show that instead of the answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    Scope = dict[str, Any]
    Message = Mapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]
    Page = Callable[[Scope], Awaitable[tuple[str, bytes]]]

STRANGER_BYTES_MAX = 16 * 1024
DROPPED_BYTES_MAX = 16 << 20
DROPPED_SECONDS_MAX, SILENT_SECONDS_MAX = 30.0, 5.0
"""How long the rest of a refused body is read, in total and between two parts."""


class TooLargeError(Exception):
    """The body exceeds its limit; the application has not received all of it."""


class BodyLimit:
    """Answers 413 instead of the application once a body is, or declares itself, too large."""

    def __init__(
        self,
        application: Application,
        is_signed_in: Callable[[Scope], Awaitable[bool]],
        too_large: Page,
        *,
        bytes_max: int,
        bytes_max_below: Mapping[str, int],
    ) -> None:
        """`too_large` returns the content type and body of the refusal.

        `bytes_max_below` maps path prefixes to separate limits.
        """
        self._application = application
        self._is_signed_in = is_signed_in
        self._too_large = too_large
        self._bytes_max = bytes_max
        self._bytes_max_below = bytes_max_below

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        started = False
        received = 0
        limit = min(STRANGER_BYTES_MAX, self._limit_of(scope["path"]))

        async def require(size: int) -> None:
            nonlocal limit
            if size <= limit:
                return
            # Check the session only now: most bodies fit the anonymous limit.
            if size <= self._limit_of(scope["path"]) and await self._is_signed_in(scope):
                limit = self._limit_of(scope["path"])
                return
            raise TooLargeError

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                await require(received)
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await require(declared_bytes(scope))
            await self._application(scope, counted, noted)
        except TooLargeError:
            # Too late for another response; the server closes the connection.
            if started:
                raise
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        content_type, page = await self._too_large(scope)
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(page)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": page, "more_body": True})
        # A client that waits for permission to send its body has sent nothing.
        if not any(name == b"expect" for name, _value in scope["headers"]):
            await drop_rest(receive)
        await send({"type": "http.response.body", "body": b""})

    def _limit_of(self, path: str) -> int:
        for prefix, bytes_max in self._bytes_max_below.items():
            if path.startswith(prefix):
                return bytes_max
        return self._bytes_max


def declared_bytes(scope: Scope) -> int:
    """Return the Content-Length, or 0 without one; the server rejects invalid values."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return 0


async def drop_rest(receive: Receive) -> None:
    """Read the rest of a body without keeping it, up to the limits."""
    dropped = 0
    try:
        async with asyncio.timeout(DROPPED_SECONDS_MAX):
            while dropped < DROPPED_BYTES_MAX:
                async with asyncio.timeout(SILENT_SECONDS_MAX):
                    message = await receive()
                dropped += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return
