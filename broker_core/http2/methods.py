"""Methods: what a server is given for each path.

A handler is a plain function and runs in the event loop. It refuses a call by CallRefusedError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.http2.call import Call


class Conversation(Protocol):
    """The server's side of a call with a stream of requests."""

    def message_received(self, message: bytes) -> None:
        """Take the client's next message."""
        ...

    def half_closed(self) -> None:
        """The client sends no more messages; the call goes on until the server ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Unary:
    """One request, one answer.

    The handler returns the answer, or an awaitable of it, or None to call `Call.answer` later. The
    end of a call cancels no awaitable, since its work may be half done.
    """

    handler: Callable[[Call, bytes], bytes | Awaitable[bytes] | None]


@dataclass(frozen=True, slots=True)
class ServerStreaming:
    """One request, a stream of answers.

    The handler calls `Call.send` for each answer, now or later, and `Call.end` at last. When it
    returns an awaitable, the call ends with that.
    """

    handler: Callable[[Call, bytes], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Bidi:
    """Streams both ways: the handler returns the server's side."""

    handler: Callable[[Call], Conversation]


Method = Unary | ServerStreaming | Bidi
