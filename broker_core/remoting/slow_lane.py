"""SlowLane: requests that may take milliseconds, spread over turns of the event loop.

One connection can send thousands of requests in one buffer, and thousands of connections one each,
all in one turn of the loop. Sends, pulls and other requests that cost microseconds may: serving
them is what the loop is for. All others pass through here. They are served at once until a turn has
spent its time on them; then they wait in their order, and each turn serves about one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.remoting.overload import PULL_CODES, SEND_CODES, TRANSACTION_CODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.clock import Clock
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.dispatch import Answer, Handler

QUICK_CODES = frozenset(
    {
        *SEND_CODES,
        *PULL_CODES,
        *TRANSACTION_CODES,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    }
)
"""Requests whose cost is bounded by some microseconds, their bytes and what they read."""
TURN_S = 0.02
"""How long one turn serves other requests; the one that reaches it is finished."""
WAITING_MAX = 10_000
WAITING_PER_CONNECTION_MAX = 1_000
WAITING_BYTES_MAX = 16 << 20


class SlowLane:
    """The requests of one process that may take longer. Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent_s = 0.0
        self._is_turn_noted = False
        self._turns: deque[asyncio.Future[None]] = deque()
        self._waiting = 0
        self._waiting_bytes = 0
        self._per_connection: Counter[Connection] = Counter()

    def __len__(self) -> int:
        """Return how many requests wait."""
        return self._waiting

    def around(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return the table with the lane before each handler that is not quick."""
        return {
            code: handler if code in QUICK_CODES else self._lined_up(handler)
            for code, handler in handlers.items()
        }

    def _lined_up(self, handler: Handler) -> Handler:
        def serve(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
            if self._spent_s < TURN_S and not self._waiting:
                return self._timed(handler, request, connection)
            self._line_up(request, connection)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            return self._later(handler, request, connection, turn)

        return serve

    def _timed(
        self, handler: Handler, request: RemotingCommand, connection: Connection
    ) -> Answer | Awaitable[Answer]:
        if not self._is_turn_noted:
            self._note_turn()
        started = self._clock.monotonic()
        try:
            return handler(request, connection)
        finally:
            self._spent_s += self._clock.monotonic() - started

    async def _later(
        self,
        handler: Handler,
        request: RemotingCommand,
        connection: Connection,
        turn: asyncio.Future[None],
    ) -> Answer:
        try:
            await turn
            while self._spent_s >= TURN_S:
                turn = asyncio.get_running_loop().create_future()
                self._turns.appendleft(turn)
                await turn
        finally:
            self._leave(request, connection)
        if not connection.is_open:
            return None
        answer = self._timed(handler, request, connection)
        if isinstance(answer, Awaitable):
            return await answer
        return answer

    def _line_up(self, request: RemotingCommand, connection: Connection) -> None:
        """Count a request that waits.

        Raises:
            RequestRefusedError: SYSTEM_BUSY, when too many wait.
        """
        here = self._per_connection[connection]
        if (
            here >= WAITING_PER_CONNECTION_MAX
            or self._waiting >= WAITING_MAX
            or self._waiting_bytes + len(request.body) > WAITING_BYTES_MAX
        ):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{self._waiting} requests that take longer wait already, {here} of them of this "
                "client; ask again later",
            )
        self._waiting += 1
        self._waiting_bytes += len(request.body)
        self._per_connection[connection] += 1
        if not self._is_turn_noted:
            self._note_turn()

    def _leave(self, request: RemotingCommand, connection: Connection) -> None:
        self._waiting -= 1
        self._waiting_bytes -= len(request.body)
        self._per_connection[connection] -= 1
        if not self._per_connection[connection]:
            del self._per_connection[connection]

    def _note_turn(self) -> None:
        self._is_turn_noted = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._spent_s = 0.0
        self._is_turn_noted = False
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                self._note_turn()
                return
