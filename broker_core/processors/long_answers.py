"""Answers about very many queues, groups or offsets, made over several turns of the event loop.

A processor makes such an answer's content in a generator, which yields once for each small piece of
work and returns the content. Mostly that ends at once. What takes longer goes on in later turns,
one answer at a time, and its text is made in a thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from broker_core.errors import RequestRefusedError
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.steps import run_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from broker_core.clock import Clock
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

    Steps = Generator[None, None, Any]
    """Yields after each piece of work of some microseconds; returns the answer's content, or its
    text."""

AT_ONCE_S = 0.002
"""How long an answer's steps run before it counts as a long one."""
WAITING_MAX = 256
"""Long answers that wait for their turn; one connection may have half of them."""


class LongAnswers:
    """Makes answers of steps. Event loop only.

    Between two turns the tables change: steps must go by copies, or bear it.
    """

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._one_at_a_time = asyncio.Lock()
        self._waiting: Counter[Connection] = Counter()

    def answer(
        self, request: RemotingCommand, connection: Connection, steps: Steps
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Answer SUCCESS with what the steps return as body, without a body for None.

        Raises:
            RequestRefusedError: a step refuses; or SYSTEM_BUSY, when too many such answers wait.
        """
        end = run_for(AT_ONCE_S, self._monotonic, steps)
        if end is not None:
            return _answer(request, _text(end.value))
        here, all_together = self._waiting[connection], self._waiting.total()
        if here >= WAITING_MAX // 2 or all_together >= WAITING_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{all_together} long answers are being made, {here} of them for this client; "
                "ask again when they have come",
            )
        self._waiting[connection] += 1
        return self._answer_later(request, connection, steps)

    async def _answer_later(
        self, request: RemotingCommand, connection: Connection, steps: Steps
    ) -> RemotingCommand:
        try:
            async with self._one_at_a_time:
                value = await connection.run(_while_open(steps, connection))
                return _answer(request, await asyncio.to_thread(_text, value))
        finally:
            self._waiting[connection] -= 1
            if not self._waiting[connection]:
                del self._waiting[connection]


def _while_open(steps: Steps, connection: Connection) -> Steps:
    """Yield and return as the steps do while the connection is open."""
    while connection.is_open:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        yield
    return None


def _text(value: Any) -> bytes:
    if value is None:
        return b""
    return value if isinstance(value, bytes) else java_json.encode(value)


def _answer(request: RemotingCommand, body: bytes) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, body=body)
