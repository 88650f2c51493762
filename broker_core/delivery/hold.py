"""Pulls that found nothing and wait for a message, or for their time to pass.

Source: broker/longpolling/PullRequestHoldService.java (4.9.7).
Differs: a held pull whose filter skipped the arrivals keeps how far it looked, so that the next
arrival does not make it look at them again; the original scans every five seconds, here each pull
has its own time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from broker_core.clock import Clock, Timer

QueueKey = tuple[str, int]
HELD_PER_CONNECTION_MAX = 10_000


class HeldPull(Protocol):
    """A pull that can be tried again."""

    @property
    def connection(self) -> Hashable:
        """Whose pull it is."""
        ...

    @property
    def queue_offset(self) -> int:
        """Where it goes on."""
        ...

    def attempt(self, *, is_last: bool) -> bool:
        """Pull again; True when it was answered. The last attempt always answers."""
        ...


class _Parked:
    __slots__ = ("handle", "key", "pull")

    def __init__(self, key: QueueKey, pull: HeldPull) -> None:
        self.key = key
        self.pull = pull
        self.handle: Timer | None = None


class PullHold:
    """The parked pulls, by queue. Event loop only.

    Arrivals only mark a queue; the marked queues are woken once a turn of the loop, so that a burst
    of sends costs one answer and not one for each message.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parked: dict[QueueKey, list[_Parked]] = {}
        self._by_connection: dict[Hashable, set[_Parked]] = {}
        self._ready: dict[QueueKey, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def is_full(self, connection: Hashable) -> bool:
        return len(self._by_connection.get(connection, ())) >= HELD_PER_CONNECTION_MAX

    def hold(self, topic: str, queue_id: int, pull: HeldPull, timeout_ms: int) -> None:
        """Park a pull until its queue grows beyond its offset or the timeout passes."""
        parked = _Parked((topic, queue_id), pull)
        self._parked.setdefault(parked.key, []).append(parked)
        self._by_connection.setdefault(pull.connection, set()).add(parked)
        when = self._clock.monotonic() + timeout_ms / 1000
        parked.handle = self._clock.call_at(when, lambda: self._expire(parked))

    def on_arrival(self, topic: str, queue_id: int, max_offset_in_queue: int) -> None:
        """Note that a queue has grown. Called for every message: it must stay this short."""
        key = (topic, queue_id)
        if key in self._parked:
            if not self._ready:
                asyncio.get_running_loop().call_soon(self._wake_ready)
            self._ready[key] = max_offset_in_queue

    def close(self, connection: Hashable) -> None:
        """Drop what a lost connection left waiting."""
        for parked in self._by_connection.pop(connection, ()):
            self._unpark(parked)

    def shutdown(self) -> None:
        """Answer everything that waits with what there is."""
        for parked in [one for held in self._parked.values() for one in held]:
            self._expire(parked)

    def _wake_ready(self) -> None:
        ready, self._ready = self._ready, {}
        for key, max_offset in ready.items():
            for parked in list(self._parked.get(key, ())):
                if parked.pull.queue_offset < max_offset and parked.pull.attempt(is_last=False):
                    self._forget(parked)

    def _expire(self, parked: _Parked) -> None:
        self._forget(parked)
        parked.pull.attempt(is_last=True)

    def _forget(self, parked: _Parked) -> None:
        self._unpark(parked)
        mine = self._by_connection.get(parked.pull.connection)
        if mine is not None:
            mine.discard(parked)
            if not mine:
                del self._by_connection[parked.pull.connection]

    def _unpark(self, parked: _Parked) -> None:
        if parked.handle is not None:
            parked.handle.cancel()
        held = self._parked.get(parked.key)
        if held is not None and parked in held:
            held.remove(parked)
            if not held:
                del self._parked[parked.key]
