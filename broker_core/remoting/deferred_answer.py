"""An answer that isn't ready yet, without a task or a future of the loop.

A future costs a callback, its context and a turn of the loop for each answer. A single flush or
slave's report can finish hundreds of sends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from broker_core.protocol.command import RemotingCommand


class DeferredAnswer:
    """An answer that is finished later, for one listener or one awaiting task. Event loop only.

    The creator calls `finish` once.

    Attributes:
        is_done: whether `finish` was called.
        outcome: the answer, or the exception that prevented it.
        command: the request; set by the listener, like `frame_bytes`.
        frame_bytes: length of the request's frame.
        requests: number of requests that it answers; for several, `outcome` contains the frames.
    """

    __slots__ = ("_listener", "command", "frame_bytes", "is_done", "outcome", "requests")

    command: RemotingCommand

    def __init__(self) -> None:
        self.is_done = False
        self.outcome: Any = None
        self.frame_bytes = 0
        self.requests = 1
        self._listener: Callable[[DeferredAnswer], None] | None = None

    def finish(self, outcome: Any) -> None:
        """Set the outcome and call the listener immediately."""
        self.outcome = outcome
        self.is_done = True
        if self._listener is not None:
            self._listener(self)

    def when_done(self, listener: Callable[[DeferredAnswer], None]) -> None:
        """Call a function with this answer when it is finished."""
        self._listener = listener
        if self.is_done:
            listener(self)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.is_done:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # The awaiting task may have been cancelled.
            self._listener = lambda _: None if done.done() else done.set_result(None)
            yield from done
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome
