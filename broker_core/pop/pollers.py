"""Pops that found no message and wait for a message until their timeout.

Unlike a pull, a pop waits for all queues of a topic and for the group's retries. This adds no cost
to puts: the watchers of the queues are in the table of parked pulls, which every put checks anyway.

Source: broker/longpolling/PopLongPollingService.java (5.3.3).
Differs: retries wake the pops of their group.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from broker_core.delivery.deadlines import Deadlines, attempt
from broker_core.message.names import pop_retry_topic

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig
    from broker_core.delivery.parked_pulls import ParkedPulls
    from broker_core.pop.checkpoint import QueueKey

PER_KEY_MAX = 1_024
PER_CONNECTION_MAX = 10_000
ATTEMPTS_AT_ONCE = 500
"""Attempts in one turn of the event loop."""


class Poll(Protocol):
    """A waiting pop."""

    @property
    def connection(self) -> Hashable:
        """The client's connection."""
        ...

    @property
    def is_answerable(self) -> bool:
        """Whether the client reads its answers or has disconnected."""
        ...

    def attempt(self, *, is_last: bool) -> bool:
        """Pop again; return whether the pop is finished. The last attempt always answers."""
        ...


class _WaitingPoll:
    __slots__ = ("is_expired", "is_waiting", "key", "poll")

    def __init__(self, key: QueueKey, poll: Poll) -> None:
        self.key = key
        self.poll = poll
        self.is_waiting = True
        self.is_expired = False


class _Watcher:
    """Represents all waiting pops of one queue in the table of parked pulls."""

    __slots__ = ("_pollers", "_queue_id", "_topic")

    def __init__(self, pollers: Pollers, topic: str, queue_id: int) -> None:
        self._pollers = pollers
        self._topic = topic
        self._queue_id = queue_id

    @property
    def connection(self) -> Hashable:
        return self

    @property
    def group(self) -> str:
        return ""

    @property
    def queue_offset(self) -> int:
        return -1

    @property
    def is_answerable(self) -> bool:
        return True

    def attempt(self, *, is_last: bool) -> bool:
        if is_last:
            return self._pollers.watch_ended(self._topic, self._queue_id)
        return not self._pollers.on_arrival(self._topic, self._queue_id)


class Pollers:
    """Waiting pops by group, topic and queue, -1 for all queues. Event loop only."""

    def __init__(self, parked_pulls: ParkedPulls, clock: Clock, limits: LimitsConfig) -> None:
        self._parked_pulls = parked_pulls
        self._limits = limits
        self._count = 0
        self._by_key: dict[QueueKey, OrderedDict[_WaitingPoll, None]] = {}
        self._by_topic: dict[str, dict[QueueKey, None]] = {}
        self._by_connection: dict[Hashable, dict[_WaitingPoll, None]] = {}
        self._watched: set[tuple[str, int]] = set()
        # Keys of pops whose clients don't read their answers.
        self._skipped: dict[Hashable, dict[QueueKey, None]] = {}
        self._ready: dict[QueueKey, None] = {}
        self._deadlines = Deadlines[_WaitingPoll](clock, self._expire)

    def __len__(self) -> int:
        return self._count

    def count_of(self, key: QueueKey) -> int:
        """Return the number of a group's pops that wait for a queue, or for all queues with -1."""
        return len(self._by_key.get(key, ()))

    def is_full(self, key: QueueKey, connection: Hashable) -> bool:
        """Return whether key, connection or broker has reached its limit of waiting pops."""
        return (
            self._count >= self._limits.parked_pop_nums_max
            or self.count_of(key) >= PER_KEY_MAX
            or len(self._by_connection.get(connection, ())) >= PER_CONNECTION_MAX
        )

    def wait(
        self, key: QueueKey, queues: Iterable[tuple[str, int]], poll: Poll, timeout_s: float
    ) -> None:
        """Let a pop wait for messages in `queues`, including the queues of its retry topic."""
        waiting = _WaitingPoll(key, poll)
        self._by_key.setdefault(key, OrderedDict())[waiting] = None
        self._by_connection.setdefault(poll.connection, {})[waiting] = None
        self._count += 1
        for topic in (key.topic, pop_retry_topic(key.group, key.topic)):
            self._by_topic.setdefault(topic, {})[key] = None
        for queue in queues:
            if queue not in self._watched:
                self._watched.add(queue)
                self._parked_pulls.watch(*queue, _Watcher(self, *queue))
        self._deadlines.add(waiting, timeout_s)

    def on_arrival(self, topic: str, queue_id: int) -> bool:
        """Retry the pops that wait for a queue; return whether there are any."""
        keys = self._by_topic.get(topic)
        if not keys:
            self._watched.discard((topic, queue_id))
            return False
        for key in keys:
            if key.topic != topic or key.queue_id in (-1, queue_id):
                self._mark_ready(key)
        return True

    def wake(self, topic: str, queue_id: int) -> None:
        """Retry the pops that wait for an ordered queue after it unblocked."""
        for key in self._by_topic.get(topic, {}):
            if key.queue_id in (-1, queue_id):
                self._mark_ready(key)

    def watch_ended(self, topic: str, queue_id: int) -> bool:
        """Answer the pops of a topic that was deleted or lost its read permission."""
        self._watched.discard((topic, queue_id))
        for key in list(self._by_topic.get(topic, ())):
            if key.topic == topic:
                self._answer_all(key)
        return True

    def end_group(self, group: str) -> None:
        """Answer the pops of a group that lost its permission to consume."""
        for key in [key for key in self._by_key if key.group == group]:
            self._answer_all(key)

    def resume(self, connection: Hashable) -> None:
        """Retry the pops of a connection whose client reads its answers again."""
        for key in self._skipped.pop(connection, ()):
            self._mark_ready(key)

    def close(self, connection: Hashable) -> None:
        """Drop the pops of a lost connection."""
        self._skipped.pop(connection, None)
        for waiting in list(self._by_connection.get(connection, ())):
            self._remove(waiting)

    def shutdown(self) -> None:
        """Answer every pop."""
        for key in list(self._by_key):
            self._answer_all(key)
        self._deadlines.shutdown()

    def _answer_all(self, key: QueueKey) -> None:
        for waiting in list(self._by_key.get(key, ())):
            self._remove(waiting)
            self._attempt(waiting, is_last=True)

    def _mark_ready(self, key: QueueKey) -> None:
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._attempt_ready)
        self._ready[key] = None

    def _attempt_ready(self) -> None:
        """Retry the pops of each ready key, oldest first, until one finds no message."""
        ready, self._ready = self._ready, {}
        left = ATTEMPTS_AT_ONCE
        for key in ready:
            for waiting in list(self._by_key.get(key, ())):
                if left == 0:
                    self._mark_ready(key)
                    break
                left -= 1
                if not waiting.is_waiting:
                    continue
                if not waiting.poll.is_answerable:
                    self._skip(waiting)
                    continue
                if not self._attempt(waiting, is_last=waiting.is_expired):
                    break
                self._remove(waiting)

    def _skip(self, waiting: _WaitingPoll) -> None:
        self._skipped.setdefault(waiting.poll.connection, {})[waiting.key] = None

    @staticmethod
    def _attempt(waiting: _WaitingPoll, *, is_last: bool) -> bool:
        key = waiting.key
        return attempt(waiting.poll, "a parked pop", key.topic, key.queue_id, is_last=is_last)

    def _expire(self, waiting: _WaitingPoll) -> None:
        if waiting.poll.is_answerable:
            self._remove(waiting)
            self._attempt(waiting, is_last=True)
        else:
            waiting.is_expired = True
            self._skip(waiting)

    def _remove(self, waiting: _WaitingPoll) -> None:
        if not waiting.is_waiting:
            return
        waiting.is_waiting = False
        key = waiting.key
        waits = self._by_key[key]
        del waits[waiting]
        if not waits:
            del self._by_key[key]
            for topic in (key.topic, pop_retry_topic(key.group, key.topic)):
                keys = self._by_topic[topic]
                del keys[key]
                if not keys:
                    del self._by_topic[topic]
        mine = self._by_connection[waiting.poll.connection]
        del mine[waiting]
        if not mine:
            del self._by_connection[waiting.poll.connection]
        self._count -= 1
        self._deadlines.trim(self._count)
