"""The faults of a chaos run and their times: a pure function of its seed.

Faults come from a bag: each kind once, in random order, before any is repeated, so that a long run
has about as many of each. A quiet time follows each fault, and the two take the same share of a
run. Recovery time depends on the cluster and isn't part of the schedule.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import NamedTuple, TypeAlias

FAULT_SECONDS = (0.3, 3.0)


class Role(StrEnum):
    """The target of a fault; the master changes during a run."""

    MASTER = "master"
    SLAVE = "slave"
    NAMESRV = "name server"
    CLIENTS = "clients"
    ALL = "all"


class FaultKind(StrEnum):
    """The effect on the target, until it's healed."""

    KILL = "kill -9"
    STOP = "stop"
    PAUSE = "pause"
    FAILOVER = "failover"
    PARTITION = "partition"
    ONE_WAY = "one-way partition"
    FLAPPING = "flapping link"
    LOSSY = "lossy link"
    SLOW = "slow link"
    DISK_FULL = "full disk"
    DISK_SLOW = "slow disk"
    DISK_FAILS = "failing disk"
    CLOCK = "clock step"
    POWER = "power cut"


class Fault(NamedTuple):
    """One fault, its duration, and the quiet time after it; seconds.

    `other` is the far end of a link; `size` chooses among faults of a kind, from 0 up to 1.
    """

    kind: FaultKind
    role: Role
    other: Role | None
    seconds: float
    quiet_seconds: float
    size: float

    def __str__(self) -> str:
        to = "" if self.other is None else f" to {self.other}"
        return f"{self.kind} of {self.role}{to} for {self.seconds:.1f} s"


BROKERS = (Role.MASTER, Role.SLAVE)
LINKS = (
    (Role.MASTER, Role.SLAVE),
    (Role.SLAVE, Role.MASTER),
    (Role.CLIENTS, Role.MASTER),
    (Role.MASTER, Role.NAMESRV),
    (Role.CLIENTS, Role.NAMESRV),
)
Targets: TypeAlias = "dict[FaultKind, tuple[tuple[Role, Role | None], ...]]"
TARGETS: Targets = {
    FaultKind.KILL: tuple((role, None) for role in (*BROKERS, Role.NAMESRV, Role.ALL)),
    FaultKind.STOP: tuple((role, None) for role in (*BROKERS, Role.ALL)),
    FaultKind.PAUSE: tuple((role, None) for role in (*BROKERS, Role.NAMESRV, Role.ALL)),
    FaultKind.FAILOVER: ((Role.MASTER, None),),
    **dict.fromkeys((FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.FLAPPING), LINKS),
    FaultKind.LOSSY: LINKS,
    FaultKind.SLOW: tuple((role, None) for role in BROKERS),
    **{
        kind: tuple((role, None) for role in BROKERS)
        for kind in (
            FaultKind.DISK_FULL,
            FaultKind.DISK_SLOW,
            FaultKind.DISK_FAILS,
            FaultKind.CLOCK,
        )
    },
    FaultKind.POWER: tuple((role, None) for role in (*BROKERS, Role.ALL)),
}


def schedule(seed: int, seconds: float, targets: Targets = TARGETS) -> list[Fault]:
    """Return at least one fault, for a run of about `seconds` without recovery.

    `targets` are the possible kinds, each with its possible targets.
    """
    dice = Random(seed)
    bag: list[FaultKind] = []
    found: list[Fault] = []
    left = seconds
    while left > 0 or not found:
        if not bag:
            bag = list(targets)
            dice.shuffle(bag)
        kind = bag.pop()
        role, other = dice.choice(targets[kind])
        for_seconds = dice.uniform(*FAULT_SECONDS)
        quiet_seconds = dice.uniform(*FAULT_SECONDS)
        found.append(Fault(kind, role, other, for_seconds, quiet_seconds, dice.random()))
        left -= for_seconds + quiet_seconds
    return found
