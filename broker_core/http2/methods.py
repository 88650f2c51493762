"""The methods that a server provides, by path.

A handler is a plain function and runs in the event loop. It refuses a call by raising
CallRefusedError.
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
        """Handle the client's next message."""
        ...

    def half_closed(self) -> None:
        """Handle the end of the client's messages; the call stays open until the server ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Unary:
    """One request, one answer.

    The handler returns the answer or an awaitable of it, or returns None and calls `Call.answer`
    later. The end of a call doesn't cancel the awaitable, because its work may be half done.
    """

    handler: Callable[[Call, bytes], bytes | Awaitable[bytes] | None]


@dataclass(frozen=True, slots=True)
class ServerStreaming:
    """One request, a stream of answers.

    The handler calls `Call.send` for each answer, now or later, and finally `Call.end`. If it
    returns an awaitable, the call ends when that completes.
    """

    handler: Callable[[Call, bytes], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Bidi:
    """Streams in both directions: the handler returns the server's side."""

    handler: Callable[[Call], Conversation]


Method = Unary | ServerStreaming | Bidi
