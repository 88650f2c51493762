"""The members of a chaos run's cluster (ours and RocketMQ's), its disks and clocks.

A seed chooses; explicit options take precedence. The members decide which findings count as
failures: `JUDGED` has the invariants that our parts guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tools.faults.schedules import TARGETS, FaultKind, Role, Targets

OURS = "ours"
ORIGINAL_SLAVE, ORIGINAL_MASTER = "original-slave", "original-master"
ORIGINAL_NAMESRV = "original-namesrv"
MEMBERS = (OURS, ORIGINAL_SLAVE, ORIGINAL_MASTER, ORIGINAL_NAMESRV)
SKEW_SECONDS = 45.0
JUDGED: dict[str, frozenset[str]] = {
    # The slave's messages and the order of its queues, and that it recovers.
    ORIGINAL_MASTER: frozenset({"I3", "I7", "I13", "I25", "I31"}),
}
"""By members; others are judged by all invariants. A RocketMQ slave or name server changes no
guarantee: our master stores what it acknowledges, and shows its own messages.
"""
OF_OUR_DISKS = frozenset({FaultKind.DISK_FULL, FaultKind.DISK_SLOW, FaultKind.DISK_FAILS})


@dataclass(frozen=True)
class Variant:
    """One cluster.

    Attributes:
        loses_power: the stores are on ext4, and one member or all lose power.
        skews: by how many seconds the clocks of name server, master and slave are ahead.
        has_real: RocketMQ's own clients, in Java and Go, take part.
        has_checks: transactions are checked during the faults, so raw clients, which can't answer
            checks, send none; otherwise they are checked when all faults are over.
    """

    members: str
    flush_disk_type: str
    loses_power: bool
    skews: tuple[float, float, float]
    has_real: bool
    has_checks: bool

    def __str__(self) -> str:
        words = [self.flush_disk_type, f"members={self.members}"]
        words += ["power cuts"] if self.loses_power else []
        words += [f"clocks={'/'.join(f'{each:+.1f}s' for each in self.skews)}"] if self.skew else []
        words += ["Java and Go clients"] if self.has_real else ["raw clients alone"]
        words += ["checks of transactions"] if self.has_checks else []
        return ", ".join(words)

    @property
    def skew(self) -> float:
        """The largest difference between two clocks, in seconds."""
        return max(self.skews) - min(self.skews)

    @property
    def targets(self) -> Targets:
        """The faults that this cluster can have, each with its possible targets."""
        without = {
            ORIGINAL_SLAVE: Role.SLAVE,
            ORIGINAL_MASTER: Role.MASTER,
        }.get(self.members)
        found: Targets = {}
        for kind, all_places in TARGETS.items():
            places = all_places
            if kind is FaultKind.POWER and not self.loses_power:
                continue
            # A pair with a RocketMQ member has no promotion, and its disk and clock can't be
            # changed.
            if without is not None and kind is FaultKind.FAILOVER:
                continue
            if kind in OF_OUR_DISKS or kind is FaultKind.CLOCK:
                places = tuple(place for place in places if place[0] is not without)
            found[kind] = places
        return found

    def is_judged(self, invariant: str) -> bool:
        return self.members not in JUDGED or invariant in JUDGED[self.members]


def variant(seed: int, members: str | None = None, *, has_real: bool = True) -> Variant:
    """Return the cluster of a seed; with None the seed chooses the members.

    Odd seeds flush before they acknowledge, and only those can lose power.
    """
    dice = Random(f"variant {seed}")
    flush_disk_type = "SYNC_FLUSH" if seed % 2 else "ASYNC_FLUSH"
    # Half of the clusters have only our members.
    chosen = dice.choice((OURS, OURS, *MEMBERS))
    members = chosen if members is None else members
    loses_power = dice.random() < 0.7 and flush_disk_type == "SYNC_FLUSH"
    skews = [dice.uniform(-SKEW_SECONDS, SKEW_SECONDS) for _ in range(3)]
    has_skew, wants_checks = dice.random() < 0.5, dice.random() < 0.5
    # RocketMQ members use the machine's clock.
    for number, one in enumerate((ORIGINAL_NAMESRV, ORIGINAL_MASTER, ORIGINAL_SLAVE)):
        if members == one or not has_skew:
            skews[number] = 0.0
    return Variant(
        members,
        flush_disk_type,
        # A RocketMQ broker that loses power may come back empty.
        loses_power and members in (OURS, ORIGINAL_NAMESRV),
        (skews[0], skews[1], skews[2]) if has_skew else (0.0, 0.0, 0.0),
        has_real,
        has_real and wants_checks,
    )
