"""Interface for code that serves frames before they reach the dispatcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from broker_core.remoting.connection import Connection
    from broker_core.remoting.deferred_answer import DeferredAnswer
    from broker_core.remoting.dispatch import Dispatcher


class PlainRequests(Protocol):
    """Serves ordinary requests of a few kinds. Event loop only."""

    @property
    def served_bytes(self) -> int:
        """Bytes of frames that the last `serve` handled."""
        ...

    @property
    def fallbacks(self) -> dict[str, int]:
        """Number of requests left to the dispatcher, by reason."""
        ...

    def protocol_of(self, connection: Connection) -> asyncio.BufferedProtocol:
        """Return the protocol that receives for a connection; see Connection.protocol."""
        ...

    def serve(
        self,
        connection: Connection,
        received: memoryview,
        size: int,
        frame_max: int,
        dispatcher: Dispatcher,
        room: int,
        requests_max: int,
    ) -> bytes | DeferredAnswer | None:
        """Serve plain requests from `size` bytes, which start with a frame; stop at any other.

        Returns the answers to at most `requests_max` requests: about `room` bytes, or a single
        larger answer; b"" if the first request isn't plain. Answers that must wait are returned
        as one DeferredAnswer, with its `requests` and their `frame_bytes`. None means that the
        requests are oneway or will be answered later.
        """
        ...
