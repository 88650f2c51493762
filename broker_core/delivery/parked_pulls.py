"""Parked pulls: pulls that found no message and wait for one or for their timeout.

Source: broker/longpolling/PullRequestHoldService.java (4.9.7).
Differs: a parked pull whose filter skipped the arrivals remembers how far it looked, so that the
next arrival doesn't make it look at them again. The original scans every five seconds; here one
timer waits for the first deadline. A pull of a client that doesn't read its answers stays parked
until the client reads again, so that memory doesn't hold the answer meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from broker_core.config.limits import LIMITS
from broker_core.isolation import FAILURES

if TYPE_CHECKING:
    from collections.abc import Hashable

    from broker_core.clock import Clock, Timer
    from broker_core.config.limits import LimitsConfig

QueueKey = tuple[str, int]
PARKED_PER_CONNECTION_MAX = 10_000
EARLY_S = 0.001
"""The loop's timers count milliseconds."""
ENDED_MAX = 1_000
"""So many deadlines of pulls that wait no more are kept, beside as many as pulls that wait."""
ATTEMPTS_AT_ONCE = 2_000
ATTEMPTS_S = 0.005
"""One turn of the loop tries at most this many pulls again, and for at most this long."""
ATTEMPTS_PER_READING = 16
"""How many attempts share one reading of the clock."""
SMALL_CHARS = 1_024
BYTES_PER_CHAR = 32
"""A pull with more than SMALL_CHARS characters of text counts as this many bytes per character,
because it holds an expression and its filter."""
LARGE_BYTES_PER_CONNECTION_MAX = 4 << 20
LARGE_BYTES_MAX = 64 << 20


class Parkable(Protocol):
    """A pull that can be parked and tried again."""

    @property
    def connection(self) -> Hashable:
        """The connection that the pull came from."""
        ...

    @property
    def group(self) -> str:
        """The consumer group of the pull."""
        ...

    @property
    def queue_offset(self) -> int:
        """The first queue_offset that it has not looked at."""
        ...

    @property
    def is_answerable(self) -> bool:
        """Whether the client reads its answers, or has disconnected."""
        ...

    def attempt(self, *, is_last: bool) -> bool:
        """Pull again; return whether the pull is done; the last attempt always answers."""
        ...


class _Parked:
    __slots__ = ("is_last", "is_waiting", "large_bytes", "pull", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, pull: Parkable, large_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.pull = pull
        self.large_bytes = large_bytes
        self.is_waiting = True
        self.is_last = False


class ParkedPulls:
    """The parked pulls, by queue. Event loop only.

    An arrival only marks a queue. The pulls of marked queues are tried once a turn of the loop, so
    that a burst of sends costs one answer and not one for each message. Very many are tried over
    several turns.

    Attributes:
        parked: what waits, by topic and queue; who puts may pass over the arrivals of others.
    """

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._count = 0
        self.parked: dict[str, dict[int, dict[_Parked, None]]] = {}
        self._by_connection: dict[Hashable, set[_Parked]] = {}
        self._large_bytes: Counter[Hashable] = Counter()
        self._large_bytes_of_all = 0
        # Pulls that wait until their client reads, in the order of the attempts.
        self._held: dict[Hashable, dict[_Parked, None]] = {}
        self._ready: dict[QueueKey, int] = {}
        self._due: deque[_Parked] = deque()
        self._is_attempt_due = False
        # A heap. What ends before its deadline stays in it for a while: most do.
        self._deadlines: list[tuple[float, int, _Parked]] = []
        self._numbers = itertools.count()
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return self._count

    def is_full(self, connection: Hashable, chars: int = 0) -> bool:
        """Return whether the connection's limit or the total refuses a pull of this length."""
        if (
            self._count >= self._limits.parked_pull_nums_max
            or len(self._by_connection.get(connection, ())) >= PARKED_PER_CONNECTION_MAX
        ):
            return True
        size = _large_bytes(chars)
        return size > 0 and (
            self._large_bytes[connection] + size > LARGE_BYTES_PER_CONNECTION_MAX
            or self._large_bytes_of_all + size > LARGE_BYTES_MAX
        )

    def park(
        self, topic: str, queue_id: int, pull: Parkable, timeout_ms: int, chars: int = 0
    ) -> None:
        """Park a pull until its queue grows beyond its offset or the timeout passes.

        `chars` is the length of the pull's expression and other texts; 0 if they are short.
        """
        parked = _Parked(topic, queue_id, pull, _large_bytes(chars))
        if parked.large_bytes:
            self._large_bytes[pull.connection] += parked.large_bytes
            self._large_bytes_of_all += parked.large_bytes
        self.parked.setdefault(topic, {}).setdefault(queue_id, {})[parked] = None
        self._count += 1
        self._by_connection.setdefault(pull.connection, set()).add(parked)
        when = self._clock.monotonic() + timeout_ms / 1000
        heapq.heappush(self._deadlines, (when, next(self._numbers), parked))
        if self._timer is None or when < self._timer_at:
            self._wait_until(when)

    def on_arrival(self, topic: str, queue_id: int, max_offset_in_queue: int) -> None:
        """Note that a queue has grown. Called for every message: it must stay this short."""
        if topic in self.parked and queue_id in self.parked[topic]:
            if not self._ready:
                asyncio.get_running_loop().call_soon(self._wake_ready)
            self._ready[topic, queue_id] = max_offset_in_queue

    def resume(self, connection: Hashable) -> None:
        """Try a connection's pulls again after its client has started to read again."""
        held = self._held.pop(connection, None)
        if held:
            self._due.extend(held)
            self._attempt_soon()

    def close(self, connection: Hashable) -> None:
        """Drop the pulls of a lost connection."""
        self._held.pop(connection, None)
        for parked in self._by_connection.pop(connection, ()):
            self._unpark(parked)

    def end(self, topic: str) -> None:
        """Answer the pulls of a topic that is deleted, read no more, or filtered otherwise."""
        for waiting in self.parked.get(topic, {}).values():
            for parked in waiting:
                self._expire(parked)

    def end_group(self, group: str) -> None:
        """Answer the pulls of a group that may not consume any more: their next ones are refused.

        Differs: the original looks at rights again whenever a parked pull is tried.
        """
        for parked in self._all():
            if parked.pull.group == group:
                self._expire(parked)

    def shutdown(self) -> None:
        """Answer every parked pull."""
        for parked in self._all():
            self._forget(parked)
            self._attempt(parked, is_last=True)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _all(self) -> list[_Parked]:
        return [
            parked
            for queues in self.parked.values()
            for waiting in queues.values()
            for parked in waiting
        ]

    def _wake_ready(self) -> None:
        ready, self._ready = self._ready, {}
        for (topic, queue_id), max_offset in ready.items():
            self._due.extend(
                parked
                for parked in self.parked.get(topic, {}).get(queue_id, ())
                if parked.pull.queue_offset < max_offset
            )
        if not self._is_attempt_due:
            self._attempt_some()

    def _attempt_some(self) -> None:
        due = self._due
        until = 0.0
        for number in range(min(len(due), ATTEMPTS_AT_ONCE)):
            parked = due.popleft()
            # Skip a pull that was answered or whose connection closed in the meantime.
            if parked.is_waiting:
                pull = parked.pull
                if self._attempt(parked, is_last=parked.is_last):
                    self._forget(parked)
                elif not pull.is_answerable:
                    self._held.setdefault(pull.connection, {})[parked] = None
            if number % ATTEMPTS_PER_READING == ATTEMPTS_PER_READING - 1:
                now = self._clock.monotonic()
                until = until or now + ATTEMPTS_S
                if now >= until:
                    break
        self._is_attempt_due = False
        if due:
            self._attempt_soon()

    def _attempt_soon(self) -> None:
        if not self._is_attempt_due:
            self._is_attempt_due = True
            asyncio.get_running_loop().call_soon(self._attempt_some)

    @staticmethod
    def _attempt(parked: _Parked, *, is_last: bool) -> bool:
        """Try a pull; log it if it fails, and drop it."""
        try:
            return parked.pull.attempt(is_last=is_last)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  one pull of thousands
            FAILURES.report("a parked pull", f"{parked.topic} {parked.queue_id}", error)
            return True

    def _wait_until(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._expire_due)

    def _expire_due(self) -> None:
        self._timer = None
        deadlines = self._deadlines
        due = self._clock.monotonic() + EARLY_S
        while deadlines:
            when, _, parked = deadlines[0]
            if parked.is_waiting and when > due:
                self._wait_until(when)
                break
            heapq.heappop(deadlines)
            if parked.is_waiting:
                self._expire(parked)

    def _expire(self, parked: _Parked) -> None:
        parked.is_last = True
        self._due.append(parked)
        self._attempt_soon()

    def _forget(self, parked: _Parked) -> None:
        self._unpark(parked)
        mine = self._by_connection.get(parked.pull.connection)
        if mine is not None:
            mine.discard(parked)
            if not mine:
                del self._by_connection[parked.pull.connection]

    def _unpark(self, parked: _Parked) -> None:
        if not parked.is_waiting:
            return
        parked.is_waiting = False
        if parked.large_bytes:
            connection = parked.pull.connection
            self._large_bytes[connection] -= parked.large_bytes
            self._large_bytes_of_all -= parked.large_bytes
            if not self._large_bytes[connection]:
                del self._large_bytes[connection]
        queues = self.parked[parked.topic]
        waiting = queues[parked.queue_id]
        del waiting[parked]
        if not waiting:
            del queues[parked.queue_id]
            if not queues:
                del self.parked[parked.topic]
        self._count -= 1
        if len(self._deadlines) > 2 * self._count + ENDED_MAX:
            self._deadlines = [each for each in self._deadlines if each[2].is_waiting]
            heapq.heapify(self._deadlines)


def _large_bytes(chars: int) -> int:
    """Return the bytes that a parked pull counts as; 0 for one with short texts."""
    return chars * BYTES_PER_CHAR if chars > SMALL_CHARS else 0
