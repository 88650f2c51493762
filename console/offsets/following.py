"""How far the members of a group have followed a reset, queue by queue.

A member that was sent back may have read everything again between two looks, and its offset then
says the same as if it had never moved: so what a look has seen is kept for the next ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django.core.cache import cache

from console.gateway.access import gateway
from console.gateway.answers import BrokerQueue
from console.gateway.moment import now_ms
from console.offsets.plan import committed

if TYPE_CHECKING:
    from console.audit.models import Entry

# A client stands still for ten seconds, and tells the broker its offsets every five.
FOLLOWED_MS_MAX = 20_000
WATCHED_MS_MAX = 120_000
SEEN_KEPT_S = 3_600


class Followed(StrEnum):
    """Whether a queue's member has gone where it was sent."""

    WAITING = "waiting"
    THERE = "there"
    PASSED = "passed"  # behind the old offset again: it has read all of it, or never moved


@dataclass(frozen=True, slots=True)
class QueueFollowing:
    """One queue: where its member was, was sent, and is."""

    queue: BrokerQueue
    old: int | None
    target: int
    now: int | None
    age_ms: int
    was_there: bool = False  # an earlier look has seen it follow

    @property
    def state(self) -> Followed:
        if self.was_there:
            return Followed.THERE
        if self.now is None:
            return Followed.WAITING
        if self.old is None or self.old == self.target:
            return Followed.THERE
        if self.target > self.old:
            return Followed.THERE if self.now >= self.target else Followed.WAITING
        if self.now < self.old:
            return Followed.THERE
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
        """Whether nothing more is to be expected."""
        return not self.waiting or self.age_ms > WATCHED_MS_MAX


def following_of(entry: Entry, group: str, topic: str) -> Following:
    """Return where the members are by now that an entry's reset has sent away."""
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
                was_there=name in seen,
            )
        )
    there = seen | {str(each.queue) for each in queues if each.state is Followed.THERE}
    if there != seen:
        cache.set(key, there, SEEN_KEPT_S)
    return Following(entry, tuple(queues), age_ms)
