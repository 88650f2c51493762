"""BodyLimit: a limit on request bodies; low for anonymous clients, form-sized for signed-in people.

Without it, Django would store a body in memory, then on disk, before it checks who sent it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    Scope = dict[str, Any]
    Message = Mapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]

STRANGER_BYTES_MAX = 16 * 1024
TOO_LARGE_TEXT = b"The request is larger than this address takes.\n"


class TooLargeError(Exception):
    """The body exceeds its limit; the application has not received all of it."""


class BodyLimit:
    """Answers 413 instead of the application once a body is, or declares itself, too large."""

    def __init__(
        self,
        application: Application,
        is_signed_in: Callable[[Scope], Awaitable[bool]],
        *,
        bytes_max: int,
        bytes_max_below: Mapping[str, int],
    ) -> None:
        """`bytes_max_below` maps path prefixes to separate limits."""
        self._application = application
        self._is_signed_in = is_signed_in
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
            await refuse(send)

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


async def refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(TOO_LARGE_TEXT)).encode()),
        # The rest of the body won't be read.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": TOO_LARGE_TEXT})
