"""What the cluster of a chaos run is made of: members of ours and of the original, disks, clocks.

A seed chooses, and what is asked for by name takes precedence. What the run then may blame depends
on who is a member: `JUDGED` has the invariants that our parts promise.
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
    # What the slave stores and shows, its queues' order, and that it comes back.
    ORIGINAL_MASTER: frozenset({"I3", "I7", "I13", "I25", "I31"}),
}
"""By members; whoever is not here is judged by all. The original as a slave or a name server takes
no promise away: what our master acknowledges it has itself, and what it shows is its own."""
OF_OUR_DISKS = frozenset({FaultKind.DISK_FULL, FaultKind.DISK_SLOW, FaultKind.DISK_FAILS})


@dataclass(frozen=True)
class Variant:
    """One cluster.

    Attributes:
        loses_power: the stores are on ext4, and powers fail, of one member or of all.
        skews: by how many seconds the clocks of name server, master and slave are ahead.
        has_real: clients of RocketMQ's own, in Java and Go, are there besides.
        has_checks: transactions are checked while faults come, so that raw clients, whom nobody can
            ask, have none; else they are checked when all faults are over.
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
        """The most that two clocks differ by, in seconds."""
        return max(self.skews) - min(self.skews)

    @property
    def targets(self) -> Targets:
        """The faults that this cluster can have, each with whom it can hit."""
        without = {
            ORIGINAL_SLAVE: Role.SLAVE,
            ORIGINAL_MASTER: Role.MASTER,
        }.get(self.members)
        found: Targets = {}
        for kind, all_places in TARGETS.items():
            places = all_places
            if kind is FaultKind.POWER and not self.loses_power:
                continue
            # A pair with an original has no promotion, and its disk and clock are not reached.
            if without is not None and kind is FaultKind.FAILOVER:
                continue
            if kind in OF_OUR_DISKS or kind is FaultKind.CLOCK:
                places = tuple(place for place in places if place[0] is not without)
            found[kind] = places
        return found

    def is_judged(self, invariant: str) -> bool:
        return self.members not in JUDGED or invariant in JUDGED[self.members]


def variant(seed: int, members: str | None = None, *, has_real: bool = True) -> Variant:
    """Return the cluster of a seed; None leaves the choice of its members to it.

    Odd seeds flush before they acknowledge, and only those can lose power.
    """
    dice = Random(f"variant {seed}")
    flush_disk_type = "SYNC_FLUSH" if seed % 2 else "ASYNC_FLUSH"
    # As often only ours as not.
    chosen = dice.choice((OURS, OURS, *MEMBERS))
    members = chosen if members is None else members
    loses_power = dice.random() < 0.7 and flush_disk_type == "SYNC_FLUSH"
    skews = [dice.uniform(-SKEW_SECONDS, SKEW_SECONDS) for _ in range(3)]
    has_skew, wants_checks = dice.random() < 0.5, dice.random() < 0.5
    # The clock of an original is the machine's.
    for number, one in enumerate((ORIGINAL_NAMESRV, ORIGINAL_MASTER, ORIGINAL_SLAVE)):
        if members == one or not has_skew:
            skews[number] = 0.0
    return Variant(
        members,
        flush_disk_type,
        # An original that loses power may come back with nothing.
        loses_power and members in (OURS, ORIGINAL_NAMESRV),
        (skews[0], skews[1], skews[2]) if has_skew else (0.0, 0.0, 0.0),
        has_real,
        has_real and wants_checks,
    )
