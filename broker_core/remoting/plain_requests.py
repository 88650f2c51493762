"""PlainRequests: who may serve frames of a connection before the dispatcher sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Dispatcher
    from broker_core.remoting.later import Later


class PlainRequests(Protocol):
    """Serves requests of a few kinds that need nothing unusual. Event loop only."""

    @property
    def taken(self) -> int:
        """How many bytes of frames the last `serve` has served."""
        ...

    @property
    def left(self) -> dict[str, int]:
        """How many requests it did not take, by reason."""
        ...

    def protocol_of(self, connection: Connection) -> asyncio.BufferedProtocol:
        """Return who receives for a connection; see Connection.protocol."""
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
    ) -> bytes | Later | None:
        """Take such requests from `size` bytes, which begin with a frame; end with one that is not.

        Returns the answers of some, little more than `room` bytes or one answer at most, for
        `requests_max` requests at most; b"" when it took none. Answers that must wait come as one
        Later, with its `requests` and their `frame_bytes`. None: it took some, and what it took is
        answered another time by whoever it waits for, as the dispatcher's handlers do it, or is
        oneway.
        """
        ...
