"""Plan: the broker's mode and the faults with their times, drawn from a seed."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import NamedTuple

LIAR_SHARE = 0.3
DURATION_S = (2.0, 7.0)
FAULTS = (1, 4)
WALL_STEP_MS = 3_600_000
MASTER, SLAVE = "10.0.0.1", "10.0.0.2"


class Fault(StrEnum):
    """A kind of fault in a simulated run."""

    KILL = "kill"
    CUT = "cut"
    STOP = "stop"
    PART = "part"
    BREAK = "break"
    STEP = "step"
    DISK = "disk"


class Event(NamedTuple):
    """A fault, its host, and its time."""

    at: float
    fault: Fault
    host: str
    call: int
    """KILL and CUT: at the n-th call of the disk from then on; 0 at once."""
    kept: float
    """CUT: the share of unflushed sectors that the disk keeps."""
    duration: float


class Plan(NamedTuple):
    """The plan of a run."""

    is_sync: bool
    role: str
    """ASYNC_MASTER or SYNC_MASTER with a slave; ALONE without one."""
    ack_mode: str
    is_pooled: bool
    is_extended: bool
    is_guarded: bool
    is_native: bool
    delays: bool
    producers: int
    duration: float
    is_master_lost: bool
    """At the end the master's disk is lost, and its slave is read."""
    events: tuple[Event, ...]
    is_mixed: bool = False
    """Groups with filters and retries, and transactions, take part."""
    has_liar: bool = False
    """A liar pretends to be a slave."""

    @property
    def has_slave(self) -> bool:
        return self.role != "ALONE"


def dice_of(seed: int) -> Random:
    """Return the random generator of a seed's plan."""
    return Random(f"plan {seed}")


def drawn(dice: Random) -> Plan:
    """Draw a plan."""
    return _with_liar(_drawn(dice), dice)


def _drawn(dice: Random) -> Plan:
    role = dice.choice(("ALONE", "ALONE", "ASYNC_MASTER", "SYNC_MASTER"))
    is_sync = dice.random() < 0.5
    duration = dice.uniform(*DURATION_S)
    steps = dice.random() < 0.15
    hosts = (MASTER,) if role == "ALONE" else (MASTER, MASTER, SLAVE)
    ack_mode = dice.choice(("received", "flushed"))
    is_master_lost = role == "SYNC_MASTER" and dice.random() < 0.5
    faults = [Fault.KILL, Fault.CUT, Fault.STOP, Fault.BREAK]
    faults += [Fault.PART] * 2 if role != "ALONE" else []
    faults += [Fault.STEP] * 2 if steps else []
    if dice.random() < 0.1:
        faults.append(Fault.DISK)
    events = []
    for _ in range(dice.randint(*FAULTS)):
        fault, host = dice.choice(faults), dice.choice(hosts)
        if is_master_lost and fault is Fault.CUT and host == SLAVE and ack_mode == "received":
            # A power cut may lose data that a slave has only received.
            fault = Fault.KILL
        events.append(
            Event(
                at=dice.uniform(0.5, duration),
                fault=fault,
                host=host,
                call=dice.choice((0, dice.randint(1, 10), dice.randint(1, 80))),
                kept=dice.choice((0.0, 0.1, 0.5, 0.9, 1.0)),
                duration=dice.uniform(0.25, 4.0),
            )
        )
    return Plan(
        is_sync=is_sync,
        role=role,
        ack_mode=ack_mode,
        is_pooled=not is_sync and dice.random() < 0.3,
        is_extended=dice.random() < 0.3,
        is_guarded=dice.random() < 0.3,
        is_native=dice.random() < 0.5,
        delays=not (steps or is_master_lost) and dice.random() < 0.6,
        producers=dice.randint(1, 2),
        duration=duration,
        is_master_lost=is_master_lost,
        events=tuple(sorted(events)),
    )


def mixed(dice: Random) -> Plan:
    """Draw a plan with `groups` whose faults must not lose acknowledged messages."""
    plan = _drawn(dice)
    has_slave = dice.random() < 0.3
    steps = dice.random() < 0.2
    faults = [Fault.STEP] if steps else [Fault.KILL, Fault.STOP, Fault.BREAK, Fault.BREAK]
    if plan.is_sync and not steps:
        faults += [Fault.CUT, Fault.DISK]
    if has_slave:
        faults.append(Fault.PART)
    events = [
        Event(
            at=dice.uniform(0.5, plan.duration),
            fault=dice.choice(faults),
            host=MASTER,
            call=dice.choice((0, dice.randint(1, 80))),
            kept=dice.choice((0.0, 0.5, 1.0)),
            duration=dice.uniform(0.25, 2.0),
        )
        for _ in range(dice.randint(*FAULTS))
    ]
    plan = plan._replace(
        role="SYNC_MASTER" if has_slave else "ALONE",
        is_pooled=False,
        is_native=dice.random() < 0.3,
        delays=True,
        is_master_lost=False,
        events=tuple(sorted(events)),
        is_mixed=True,
    )
    return _with_liar(plan, dice)


def _with_liar(plan: Plan, dice: Random) -> Plan:
    """Draw last whether there is a liar, so that all other draws stay the same."""
    return plan._replace(has_liar=plan.has_slave and dice.random() < LIAR_SHARE)
