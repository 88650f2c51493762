"""The requests to one peer that wait for a response."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.errors import RemotingSendError, RemotingTimeoutError
from broker_core.protocol.json_header import INT32_MAX

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.protocol.command import RemotingCommand

    Awaited = asyncio.Future[RemotingCommand]

REQUESTS_PENDING_MAX = 10_000
"""Maximum number of requests to one peer that wait for a response."""


class PendingRequests:
    """Requests waiting for a response. Event loop only.

    Both sides number their opaques independently.
    """

    __slots__ = ("_awaited", "_clock", "_next_opaque")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_opaque = 0
        self._awaited: dict[int, Awaited] = {}

    def new_opaque(self) -> int:
        """Return the opaque of the next request."""
        opaque = self._next_opaque
        self._next_opaque = 0 if opaque == INT32_MAX else opaque + 1
        return opaque

    def expect(self, command: RemotingCommand, peer: str) -> Awaited:
        """Number a request; return the future of its response, for `answer_to`.

        Raises:
            RemotingSendError: too many requests are waiting already.
        """
        if len(self._awaited) >= REQUESTS_PENDING_MAX:
            raise RemotingSendError(
                f"{len(self._awaited)} requests to {peer} wait for their answers"
            )
        opaque = command.opaque = self.new_opaque()
        future = self._awaited[opaque] = asyncio.get_running_loop().create_future()
        return future

    async def answer_to(
        self, command: RemotingCommand, awaited: Awaited, timeout_s: float, peer: str
    ) -> RemotingCommand:
        """Wait for the response to a request that was sent.

        Raises:
            RemotingTimeoutError: the response didn't arrive in time.
            RemotingSendError: the connection ended first.
        """

        def time_out() -> None:
            if not awaited.done():
                awaited.set_exception(
                    RemotingTimeoutError(
                        f"{peer} did not answer request {command.code} within {timeout_s:.3g} s"
                    )
                )

        timer = self._clock.call_at(self._clock.monotonic() + timeout_s, time_out)
        try:
            return await awaited
        finally:
            timer.cancel()
            self._awaited.pop(command.opaque, None)

    def resolve(self, answer: RemotingCommand) -> None:
        """Pass a response to its request; ignore a response that arrives after the timeout."""
        awaited = self._awaited.get(answer.opaque)
        if awaited is not None and not awaited.done():
            awaited.set_result(answer)

    def fail(self, peer: str) -> None:
        """Fail all waiting requests because the connection ended."""
        for awaited in self._awaited.values():
            if not awaited.done():
                awaited.set_exception(RemotingSendError(f"the connection to {peer} ended"))
