"""BodyLimit: a bound on request bodies, which is small for strangers and fits a form otherwise.

Without it, Django stores a body in memory, then on disk, before it checks who sends it.
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
    """Answers 413 in the application's place once a body is, or declares itself, too large."""

    def __init__(
        self,
        application: Application,
        is_signed_in: Callable[[Scope], Awaitable[bool]],
        *,
        bytes_max: int,
        bytes_max_below: Mapping[str, int],
    ) -> None:
        """`bytes_max_below` maps the beginnings of paths to their own limits."""
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
            # Looked up only now: most bodies fit within a stranger's limit.
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
            # Too late for another answer; the server ends the connection.
            if started:
                raise
            await refuse(send)

    def _limit_of(self, path: str) -> int:
        for prefix, bytes_max in self._bytes_max_below.items():
            if path.startswith(prefix):
                return bytes_max
        return self._bytes_max


def declared_bytes(scope: Scope) -> int:
    """Return the Content-Length, 0 without one; the server refuses one that is not a number."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return 0


async def refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(TOO_LARGE_TEXT)).encode()),
        # Nobody will read the rest of the body.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": TOO_LARGE_TEXT})
