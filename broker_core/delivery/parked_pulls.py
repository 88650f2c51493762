"""Parked pulls: pulls that found no message and wait for a message or their timeout.

Source: broker/longpolling/PullRequestHoldService.java (4.9.7).
Differs: a parked pull whose filter skipped the arrivals remembers how far it looked, so that the
next arrival doesn't check them again. RocketMQ scans every five seconds; here one timer waits
for the first deadline. A pull of a client that doesn't read its answers stays parked until the
client reads again, so the answer doesn't use memory meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from broker_core.config.limits import LIMITS
from broker_core.delivery.deadlines import Deadlines, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig

QueueKey = tuple[str, int]
PARKED_PER_CONNECTION_MAX = 10_000
ATTEMPTS_AT_ONCE = 2_000
ATTEMPTS_S = 0.005
"""Maximum number of pulls, and maximum time, that one turn of the loop spends on retries."""
ATTEMPTS_PER_READING = 16
"""Number of attempts for each reading of the clock."""
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
        """The connection that sent the pull."""
        ...

    @property
    def group(self) -> str:
        """The consumer group of the pull."""
        ...

    @property
    def queue_offset(self) -> int:
        """The first queue offset that the pull hasn't checked."""
        ...

    @property
    def is_answerable(self) -> bool:
        """Whether the client reads its answers, or has disconnected."""
        ...

    def attempt(self, *, is_last: bool) -> bool:
        """Pull again; return whether the pull is finished. The last attempt always answers."""
        ...


class _ParkedPull:
    __slots__ = (
        "is_counted",
        "is_last",
        "is_waiting",
        "large_bytes",
        "pull",
        "queue_id",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int, pull: Parkable, large_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.pull = pull
        self.large_bytes = large_bytes
        self.is_counted = True
        self.is_waiting = True
        self.is_last = False


class ParkedPulls:
    """The parked pulls, by queue. Event loop only.

    An arrival only marks a queue. The pulls of marked queues are tried once per turn of the loop,
    so a burst of sends costs one answer instead of one per message. Large numbers are spread over
    several turns.

    Attributes:
        parked: waiting pulls by topic and queue; senders can skip arrivals for other queues.
        on_group_ended: called with a group that isn't allowed to consume any longer.
    """

    def __init__(self, clock: Clock, limits: LimitsConfig = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._count = 0
        self.parked: dict[str, dict[int, dict[_ParkedPull, None]]] = {}
        self.on_group_ended: Callable[[str], None] = lambda _group: None
        self._by_connection: dict[Hashable, set[_ParkedPull]] = {}
        self._large_bytes: Counter[Hashable] = Counter()
        self._large_bytes_of_all = 0
        # Pulls that wait until their client reads, in the order of the attempts.
        self._held: dict[Hashable, dict[_ParkedPull, None]] = {}
        self._ready: dict[QueueKey, int] = {}
        self._due: deque[_ParkedPull] = deque()
        self._is_attempt_due = False
        self._deadlines = Deadlines[_ParkedPull](clock, self._expire)

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
        """Park a pull until its queue grows past its offset or the timeout passes.

        `chars` is the length of the pull's expression and other texts; 0 if they are short.
        """
        parked = _ParkedPull(topic, queue_id, pull, _large_bytes(chars))
        if parked.large_bytes:
            self._large_bytes[pull.connection] += parked.large_bytes
            self._large_bytes_of_all += parked.large_bytes
        self.parked.setdefault(topic, {}).setdefault(queue_id, {})[parked] = None
        self._count += 1
        self._by_connection.setdefault(pull.connection, set()).add(parked)
        self._deadlines.add(parked, timeout_ms / 1000)

    def watch(self, topic: str, queue_id: int, watcher: Parkable) -> None:
        """Try a watcher whenever a queue grows, until it returns True; it doesn't count as parked.

        The last attempt is made when the topic ends.
        """
        parked = _ParkedPull(topic, queue_id, watcher, 0)
        parked.is_counted = False
        self.parked.setdefault(topic, {}).setdefault(queue_id, {})[parked] = None

    def on_arrival(self, topic: str, queue_id: int, max_offset_in_queue: int) -> None:
        """Note that a queue has grown. Called for every message, so keep it this short."""
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
        """Answer the pulls of a topic that was deleted, made unreadable or given other filters."""
        for waiting in self.parked.get(topic, {}).values():
            for parked in waiting:
                self._expire(parked)

    def end_group(self, group: str) -> None:
        """Answer the pulls of a group that isn't allowed to consume; its next pulls are refused.

        Differs: RocketMQ checks permissions again whenever a parked pull is tried.
        """
        for parked in self._all():
            if parked.pull.group == group:
                self._expire(parked)
        self.on_group_ended(group)

    def shutdown(self) -> None:
        """Answer every parked pull."""
        for parked in self._all():
            self._forget(parked)
            self._attempt(parked, is_last=True)
        self._deadlines.shutdown()

    def _all(self) -> list[_ParkedPull]:
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
    def _attempt(parked: _ParkedPull, *, is_last: bool) -> bool:
        return attempt(parked.pull, "a parked pull", parked.topic, parked.queue_id, is_last=is_last)

    def _expire(self, parked: _ParkedPull) -> None:
        parked.is_last = True
        self._due.append(parked)
        self._attempt_soon()

    def _forget(self, parked: _ParkedPull) -> None:
        self._unpark(parked)
        mine = self._by_connection.get(parked.pull.connection)
        if mine is not None:
            mine.discard(parked)
            if not mine:
                del self._by_connection[parked.pull.connection]

    def _unpark(self, parked: _ParkedPull) -> None:
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
        self._count -= parked.is_counted
        self._deadlines.trim(self._count)


def _large_bytes(chars: int) -> int:
    """Return the bytes that a parked pull counts as; 0 for a pull with short texts."""
    return chars * BYTES_PER_CHAR if chars > SMALL_CHARS else 0
