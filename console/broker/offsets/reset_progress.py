"""How far a group's consumers have followed a reset, by queue.

A consumer that was rewound may have read everything again between two checks, and its offset then
looks as if it had never moved. So observations are kept for the next checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django.core.cache import cache

from console.broker.offsets.plan import committed
from console.gateway.access import gateway
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue

if TYPE_CHECKING:
    from console.people.audit.models import Entry

# A client pauses for ten seconds, and sends its offsets to the broker every five.
FOLLOWED_MS_MAX = 20_000
WATCHED_MS_MAX = 120_000
SEEN_KEPT_S = 3_600


class Followed(StrEnum):
    """Whether the consumer of a queue has moved to the new offset."""

    WAITING = "waiting"
    REACHED = "there"
    PASSED = "passed"  # past the old offset: it has reread everything, or never moved


@dataclass(frozen=True, slots=True)
class QueueFollowing:
    """One queue: the consumer's offset before the reset, its target and current offset."""

    queue: BrokerQueue
    old: int | None
    target: int
    now: int | None
    age_ms: int
    was_reached: bool = False  # an earlier check saw it at the target

    @property
    def state(self) -> Followed:
        if self.was_reached:
            return Followed.REACHED
        if self.now is None:
            return Followed.WAITING
        if self.old is None or self.old == self.target:
            return Followed.REACHED
        if self.target > self.old:
            return Followed.REACHED if self.now >= self.target else Followed.WAITING
        if self.now < self.old:
            return Followed.REACHED
        return Followed.PASSED if self.age_ms > FOLLOWED_MS_MAX else Followed.WAITING


@dataclass(frozen=True, slots=True)
class Following:
    """All queues of a reset."""

    entry: Entry
    queues: tuple[QueueFollowing, ...]
    age_ms: int

    @property
    def waiting(self) -> int:
        return sum(each.state is Followed.WAITING for each in self.queues)

    @property
    def passed(self) -> int:
        return sum(each.state is Followed.PASSED for each in self.queues)

    @property
    def is_over(self) -> bool:
        """Whether no further changes are expected."""
        return not self.waiting or self.age_ms > WATCHED_MS_MAX


def following_of(entry: Entry, group: str, topic: str) -> Following:
    """Return the current progress of the consumers that a reset has moved."""
    now = committed(gateway().groups, group, topic)
    age_ms = now_ms() - int(entry.at.timestamp() * 1000)
    before = entry.before or {}
    key = f"offsets.followed.{entry.pk}.{entry.at.timestamp()}"
    seen: frozenset[str] = cache.get(key, frozenset())
    queues = []
    for name, target in sorted((entry.after or {}).items()):
        queue, old = BrokerQueue.parse(name), before.get(name)
        queues.append(
            QueueFollowing(
                queue,
                None if old is None else int(old),
                int(target),
                now.get(queue),
                age_ms,
                was_reached=name in seen,
            )
        )
    there = seen | {str(each.queue) for each in queues if each.state is Followed.REACHED}
    if there != seen:
        cache.set(key, there, SEEN_KEPT_S)
    return Following(entry, tuple(queues), age_ms)
