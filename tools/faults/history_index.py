"""A history, indexed for the checks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tools.faults.operations import (
    Acked,
    Bounds,
    Cause,
    Consumed,
    Delivered,
    DiskFailed,
    Ended,
    Faulty,
    GaveBack,
    Happened,
    Kind,
    Log,
    Outcome,
    Progress,
    Replayed,
    Sent,
    Started,
    Status,
    Stored,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.faults.operations import Operation

REMAKING = (Cause.CRASH, Cause.FAILOVER)
"""After these, the broker may put a message again that it had put itself."""


class Finding(NamedTuple):
    """A failure, by invariant."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


class Place(NamedTuple):
    """A message's location."""

    topic: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}@{self.queue_offset}"


def at_of(one: Delivered | GaveBack | Happened | Progress | Replayed) -> int:
    return one.at


class History:
    """A history, indexed for the checks."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.sent: defaultdict[str, list[Sent]] = defaultdict(list)
        self.by_client: defaultdict[str, list[Sent]] = defaultdict(list)
        self.ends: defaultdict[str, list[Ended]] = defaultdict(list)
        self.delivered: list[Delivered] = []
        self.consumed: set[tuple[str, str]] = set()
        self.gave_back: defaultdict[tuple[str, str], list[GaveBack]] = defaultdict(list)
        self.replayed: defaultdict[tuple[str, str], list[Replayed]] = defaultdict(list)
        self.progress: defaultdict[tuple[str, str, int], list[Progress]] = defaultdict(list)
        self.causes: defaultdict[str, list[Happened]] = defaultdict(list)
        self.stored: dict[Place, Stored] = {}
        self.stored_twice: list[Place] = []
        self.places: defaultdict[str, list[Place]] = defaultdict(list)
        self.bounds: defaultdict[tuple[str, int], list[Bounds]] = defaultdict(list)
        self.unknown: list[Unknown] = []
        self.acked: list[Acked] = []
        self.disks_failed: list[DiskFailed] = []
        self.starts: defaultdict[str, list[int]] = defaultdict(list)
        self.faults: list[Faulty] = []
        self.logs: list[Log] = []
        for one in operations:
            self._add(one)
        for sends in self.sent.values():
            for each in sends:
                self.by_client[each.client].append(each)
        for sends in self.by_client.values():
            sends.sort(key=lambda one: one.invoked)
        self.delivered.sort(key=at_of)
        for causes in self.causes.values():
            causes.sort(key=at_of)
        for progress in self.progress.values():
            progress.sort(key=at_of)
        for backs in self.gave_back.values():
            backs.sort(key=at_of)
        for replays in self.replayed.values():
            replays.sort(key=at_of)

    def _add(self, one: Operation) -> None:
        match one:
            case Sent():
                sends = self.sent[one.id]
                begun = sends[-1] if sends else None
                if begun and (begun.client, begun.invoked) == (one.client, one.invoked):
                    sends.pop()
                sends.append(one)
            case Ended():
                self.ends[one.id].append(one)
            case Delivered():
                self.delivered.append(one)
            case Consumed():
                self.consumed.add((one.group, one.id))
            case GaveBack():
                self.gave_back[one.group, one.id].append(one)
            case Replayed():
                self.replayed[one.group, one.id].append(one)
            case Progress():
                self.progress[one.group, one.topic, one.queue_id].append(one)
            case Happened():
                self.causes[one.group].append(one)
            case Bounds():
                self.bounds[one.topic, one.queue_id].append(one)
            case Unknown():
                self.unknown.append(one)
            case Acked():
                self.acked.append(one)
            case DiskFailed():
                self.disks_failed.append(one)
            case Started():
                self.starts[one.server].append(one.at)
            case Faulty():
                self.faults.append(one)
            case Log():
                self.logs.append(one)
            case Stored():
                place = Place(one.topic, one.queue_id, one.queue_offset)
                if place in self.stored:
                    self.stored_twice.append(place)
                self.stored[place] = one
                self.places[one.id].append(place)

    def outcome_of(self, message_id: str) -> Outcome | None:
        """Return the outcome that was requested first, or None without one."""
        ends = self.ends.get(message_id)
        return min(ends, key=lambda one: one.invoked).outcome if ends else None

    def is_remade(self, message_id: str, since: int, until: int) -> bool:
        """Whether the broker may have put a deferred message again between two times."""
        sends = self.sent.get(message_id)
        is_deferred = bool(sends and sends[0].kind is not Kind.PLAIN)
        return is_deferred and self.crashed(since, until)

    def crashed(self, since: int, until: int) -> bool:
        """Whether a broker may have forgotten its latest puts between two times."""
        return any(one.cause in REMAKING and since <= one.at <= until for one in self.causes[""])

    def is_promised(self, message_id: str) -> bool:
        """Whether a message must be stored: acknowledged, and if half, only committed.

        The end of a transaction has no answer; after two different requests either outcome is
        valid.
        """
        sends = self.sent[message_id]
        if not any(one.status is Status.OK for one in sends):
            return False
        return sends[0].kind is not Kind.HALF
