"""Later: an answer that is not there yet, without a task or a future of the loop.

A future costs a callback, its context and a turn of the loop for each answer; a report of a slave
or one flush ends the waits of hundreds of sends at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from broker_core.protocol.command import RemotingCommand


class Later:
    """Event loop only. Whoever makes it calls `finish` once; one listener is told, or one awaits.

    Attributes:
        is_done: whether `finish` was called.
        outcome: what it was called with: an answer, or the exception that prevented one.
        command: the request; the listener's, like `frame_bytes`.
        frame_bytes: length of the request's frame.
        requests: how many requests it answers; of several `outcome` is the frames.
    """

    __slots__ = ("_listener", "command", "frame_bytes", "is_done", "outcome", "requests")

    command: RemotingCommand

    def __init__(self) -> None:
        self.is_done = False
        self.outcome: Any = None
        self.frame_bytes = 0
        self.requests = 1
        self._listener: Callable[[Later], None] | None = None

    def finish(self, outcome: Any) -> None:
        """Take the outcome and tell the listener, now."""
        self.outcome = outcome
        self.is_done = True
        if self._listener is not None:
            self._listener(self)

    def when_done(self, listener: Callable[[Later], None]) -> None:
        """Call a function with this when it is done."""
        self._listener = listener
        if self.is_done:
            listener(self)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.is_done:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Whoever awaits it may have been cancelled.
            self._listener = lambda _: None if done.done() else done.set_result(None)
            yield from done
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome
