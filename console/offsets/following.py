"""How far the members of a group have followed a reset, queue by queue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from console.gateway.access import gateway
from console.gateway.answers import BrokerQueue
from console.gateway.moment import now_ms
from console.offsets.plan import committed

if TYPE_CHECKING:
    from console.audit.models import Entry

# A client stands still for ten seconds, and tells the broker its offsets every five.
FOLLOWED_MS_MAX = 20_000
WATCHED_MS_MAX = 120_000


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

    @property
    def state(self) -> Followed:
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
    def is_over(self) -> bool:
        """Whether nothing more is to be expected."""
        return not self.waiting or self.age_ms > WATCHED_MS_MAX


def following_of(entry: Entry, group: str, topic: str) -> Following:
    """Return where the members are by now that an entry's reset has sent away."""
    now = committed(gateway().groups, group, topic)
    age_ms = now_ms() - int(entry.at.timestamp() * 1000)
    before = entry.before or {}
    queues = []
    for key, target in sorted((entry.after or {}).items()):
        queue, old = BrokerQueue.parse(key), before.get(key)
        queues.append(
            QueueFollowing(
                queue, None if old is None else int(old), int(target), now.get(queue), age_ms
            )
        )
    return Following(entry, tuple(queues), age_ms)
