"""Share the event loop between connections, a few milliseconds at a time.

One connection can send thousands of requests in one buffer, and thousands of connections can send
one request each, all in the same round of the event loop. The code of a request says little about
its cost, so its time is measured. A connection serves requests until its turn is over. Then it
stops reading, keeps the bytes it has received, and continues after the other connections' turns.
The requests of one connection keep their order.

A round is one iteration of the event loop. Turns shorter than a millisecond don't count, because
they are the loop's normal work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from broker_core.steps import run_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from broker_core.clock import Clock

    TurnCallback = Callable[[], None]

T = TypeVar("T")

TURN_S = 0.002
"""How long one connection serves requests while others wait; its current request may finish."""
ROUND_S = 0.01
"""How long a round serves queued turns, and long turns that weren't queued."""
LONG_S = 0.001
"""Minimum length of a turn that counts towards its round."""


class Turns:
    """The turns of all connections of one process. Event loop only.

    Attributes:
        is_spent: whether this round has used its time. A connection that receives requests then
            queues them instead of serving them.
    """

    __slots__ = ("_is_round_due", "_long", "_monotonic", "_short", "_spent_s", "is_spent")

    def __init__(self, clock: Clock) -> None:
        self.is_spent = False
        self._monotonic = clock.monotonic
        self._spent_s = 0.0
        self._is_round_due = False
        # Connections whose last turn was long wait behind all others.
        self._short: deque[TurnCallback] = deque()
        self._long: deque[TurnCallback] = deque()

    def __len__(self) -> int:
        """Return the number of connections and running steps that wait for their turn."""
        return len(self._short) + len(self._long)

    def note(self, seconds: float) -> None:
        """Count a turn that wasn't queued."""
        if seconds < LONG_S:
            return
        self._spent_s += seconds
        self.is_spent = self._spent_s >= ROUND_S
        self._note_round()

    def queue(self, take_turn: TurnCallback, *, is_long: bool) -> None:
        """Call a function when its turn comes; it must return soon after TURN_S and not raise.

        `is_long` says whether its last turn was long.
        """
        (self._long if is_long else self._short).append(take_turn)
        self._note_round()

    def run(self, steps: Generator[None, None, T]) -> asyncio.Future[T]:
        """Run a generator in turns; return a future for its result or exception.

        The generator must yield every few microseconds. Cancelling the future ends it.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue_steps(steps, done)
        return done

    def _queue_steps(self, steps: Generator[None, None, Any], done: asyncio.Future[Any]) -> None:
        self.queue(lambda: self._run_some(steps, done), is_long=True)

    def _run_some(self, steps: Generator[None, None, Any], done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            steps.close()
            return
        try:
            end = run_for(TURN_S, self._monotonic, steps)
        except Exception as error:  # noqa: BLE001
            # The caller that awaits the steps gets their exception.
            done.set_exception(error)
            return
        if end is None:
            self._queue_steps(steps, done)
        else:
            done.set_result(end.value)

    def _note_round(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._is_round_due = False
        begun = self._monotonic()
        try:
            self._serve(self._short, begun)
            self._serve(self._long, begun)
        finally:
            self._spent_s = self._monotonic() - begun
            self.is_spent = self._spent_s >= ROUND_S
            if self.is_spent or self._spent_s >= LONG_S or self._short or self._long:
                self._note_round()

    def _serve(self, waiting: deque[TurnCallback], begun: float) -> None:
        """Call at least one waiting function, and more until the round's time is used."""
        left = len(waiting)
        while left:
            waiting.popleft()()
            left -= 1
            if self._monotonic() - begun >= ROUND_S:
                return
