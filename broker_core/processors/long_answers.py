"""Answers about very many queues, groups or offsets, built over several turns of the event loop.

A processor builds such an answer in a generator, which yields after each small piece of work and
returns the content. Usually it finishes immediately. Longer work continues in later turns, one
answer at a time, and its text is encoded in a thread.
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
    """Yields after each piece of work of some microseconds; returns the answer's content or its
    text.
    """

AT_ONCE_S = 0.002
"""How long an answer's steps run before it counts as long."""
WAITING_MAX = 256
"""Maximum number of waiting long answers; one connection may have half of them."""


class LongAnswers:
    """Builds answers in steps. Event loop only.

    Tables can change between turns: steps must work on copies or tolerate changes.
    """

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._one_at_a_time = asyncio.Lock()
        self._waiting: Counter[Connection] = Counter()

    def answer(
        self, request: RemotingCommand, connection: Connection, steps: Steps
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Answer SUCCESS with the result of the steps as body; no body for None.

        Raises:
            RequestRefusedError: a step refuses, or too many long answers are waiting (SYSTEM_BUSY).
        """
        end = run_for(AT_ONCE_S, self._monotonic, steps)
        if end is not None:
            return _answer(request, _text(end.value))
        here, all_together = self._waiting[connection], self._waiting.total()
        if here >= WAITING_MAX // 2 or all_together >= WAITING_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"the broker is preparing {all_together} long answers, {here} of them for this "
                "client; try again after they arrive",
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
    """Run the steps while the connection is open."""
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
