"""Flow: current rates from brokers through topics to groups, read from the history alone.

Brokers have no extra work: the collector samples them whether anyone is watching or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.observe.history.metrics import (
    CONSUMED,
    GROUP,
    LAG,
    MEMBERS,
    PROGRESS,
    PUT,
    TOPIC,
    Kind,
)
from console.observe.history.reading import Spark
from console.observe.history.series import Aspect, Line, values_of
from console.observe.history.tiers import FINE, HOUR_MS, MIDDLE
from console.observe.verdicts.judge import verdicts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from console.observe.history.metrics import Metric, Subject
    from console.observe.history.points import Points
    from console.observe.history.store import HistoryStore

NODES_MAX = 12
"""Nodes per column; further ones are only counted."""
RECENT_SLOTS = 6
"""A rate is the mean of the known values of the last minute."""
SPARK_SLOTS = HOUR_MS // MIDDLE.step_ms
RETRY_PREFIX = "%"
URGENCY = {"bad": 2, "warn": 1}


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, topic or group: messages per second, now and over the last hour."""

    name: str
    rate: float
    spark: Spark | None = None
    lag: float | None = None
    state: str = "ok"


@dataclass(frozen=True, slots=True)
class Ribbon:
    """The flow between two nodes; `stopped_ms` is when it stopped although messages are waiting.

    A `stopped_ms` of 0 means there was no flow within the last hour, as far as the history shows.
    """

    source: str
    target: str
    rate: float
    lag: float | None = None
    state: str = "ok"
    stopped_ms: int | None = None
    has_consumers: bool = True

    @property
    def is_issue(self) -> bool:
        """Whether the overview lists that it stopped; a slow message alone isn't an issue."""
        is_reported = self.state != "ok" or not self.has_consumers
        return self.stopped_ms is not None and is_reported


@dataclass(frozen=True, slots=True)
class Flow:
    """Three columns and their ribbons; `more_…` count the nodes that don't fit."""

    brokers: tuple[Node, ...]
    topics: tuple[Node, ...]
    groups: tuple[Node, ...]
    received: tuple[Ribbon, ...]
    consumed: tuple[Ribbon, ...]
    more_topics: int
    more_groups: int
    at_ms: int

    @property
    def is_empty(self) -> bool:
        return not self.topics


def flow_of(store: HistoryStore, now_ms: int) -> Flow:
    """Return the current flow.

    Raises:
        HistoryError: the history can't be read.
    """
    every = store.all_subjects()
    ids = {
        subject: number
        for subject, number in every.items()
        if subject.kind in {TOPIC, GROUP}
        or (subject.kind == PROGRESS and not topic_of(subject).startswith(RETRY_PREFIX))
    }
    points = store.read(
        list(ids.values()), FINE, now_ms // FINE.step_ms - RECENT_SLOTS, RECENT_SLOTS
    )
    recent = {subject: points[number] for subject, number in ids.items()}
    put = {
        subject: rate
        for subject in ids
        if subject.kind == TOPIC
        and not subject.name.startswith(RETRY_PREFIX)
        and (rate := level(recent[subject], PUT)) is not None
    }
    got = {
        subject: (rate, level(recent[subject], LAG))
        for subject in ids
        if subject.kind == PROGRESS and (rate := level(recent[subject], CONSUMED)) is not None
    }
    read_topics = {topic_of(subject) for subject in got}
    # Skip topics without producers or consumers.
    put = {
        subject: rate for subject, rate in put.items() if rate > 0 or subject.name in read_topics
    }
    topic_rates = summed((subject.name, rate) for subject, rate in put.items())
    group_rates = summed((group_of(subject), rate) for subject, (rate, _lag) in got.items())
    group_lags = summed((group_of(subject), lag or 0) for subject, (_rate, lag) in got.items())
    states = verdict_states(store)
    topics = busiest(topic_rates, {})
    # Groups with an issue always get a node, however little they consume.
    troubled = {name: URGENCY.get(states.get((GROUP, name), ""), 0) for name in group_rates}
    groups = busiest(group_rates, troubled, group_lags)
    brokers = summed((subject.broker, rate) for subject, rate in put.items())
    hours = hours_of(store, ids, {*topics}, {*groups}, now_ms)
    return Flow(
        brokers=tuple(Node(name, rate) for name, rate in sorted(brokers.items())[:NODES_MAX]),
        topics=tuple(
            Node(
                name,
                topic_rates[name],
                hours.spark(TOPIC, name, PUT, Aspect.MEAN),
                state=states.get((TOPIC, name), "ok"),
            )
            for name in topics
        ),
        groups=tuple(
            Node(
                name,
                group_rates[name],
                hours.spark(GROUP, name, LAG, Aspect.PEAK),
                group_lags[name],
                states.get((GROUP, name), "ok"),
            )
            for name in groups
        ),
        received=received_by(put, topics),
        consumed=consumed_by(got, topics, groups, states, hours, without_members(recent)),
        more_topics=len(topic_rates) - len(topics),
        more_groups=len(group_rates) - len(groups),
        at_ms=now_ms,
    )


def without_members(recent: Mapping[Subject, Points]) -> set[str]:
    """Return the groups that have no consumers; a group with unknown ones isn't among them."""
    members = summed(
        (subject.name, count)
        for subject, points in recent.items()
        if subject.kind == GROUP and (count := level(points, MEMBERS)) is not None
    )
    return {name for name, count in members.items() if not count}


@dataclass(frozen=True, slots=True)
class Hours:
    """The last hour of the visible subjects, by the minute."""

    first: int
    points: Mapping[Subject, Points]

    def spark(self, kind: str, name: str, metric: Metric, aspect: Aspect) -> Spark | None:
        parts = [
            each
            for subject, each in self.points.items()
            if (subject.kind, subject.name) == (kind, name)
        ]
        values = values_of(parts, Line("", metric, aspect)) if parts else []
        return Spark.of(values, self.first) if values else None

    def stopped_ms(self, subjects: Iterable[Subject]) -> int:
        """Return the time of the last consumption, or 0 if it wasn't within the hour."""
        parts = [self.points[subject] for subject in subjects if subject in self.points]
        values = values_of(parts, Line("", CONSUMED, Aspect.SUM)) if parts else []
        busy = [index for index, value in enumerate(values) if value]
        return (self.first + busy[-1] + 1) * MIDDLE.step_ms if busy else 0


def hours_of(
    store: HistoryStore, ids: Mapping[Subject, int], topics: set[str], groups: set[str], now_ms: int
) -> Hours:
    wanted = {
        subject: number
        for subject, number in ids.items()
        if (subject.kind == TOPIC and subject.name in topics)
        or (subject.kind == GROUP and subject.name in groups)
        or (
            subject.kind == PROGRESS and group_of(subject) in groups and topic_of(subject) in topics
        )
    }
    first = now_ms // MIDDLE.step_ms - SPARK_SLOTS
    points = store.read(list(wanted.values()), MIDDLE, first, SPARK_SLOTS)
    return Hours(first, {subject: points[number] for subject, number in wanted.items()})


def received_by(put: Mapping[Subject, float], topics: Sequence[str]) -> tuple[Ribbon, ...]:
    return tuple(
        Ribbon(subject.broker, subject.name, rate)
        for subject, rate in sorted(put.items())
        if subject.name in topics and rate > 0
    )


def consumed_by(
    got: Mapping[Subject, tuple[float, float | None]],
    topics: Sequence[str],
    groups: Sequence[str],
    states: Mapping[tuple[str, str], str],
    hours: Hours,
    deserted: set[str],
) -> tuple[Ribbon, ...]:
    by_name: dict[str, list[Subject]] = {}
    for subject in got:
        if topic_of(subject) in topics and group_of(subject) in groups:
            by_name.setdefault(subject.name, []).append(subject)
    ribbons = []
    for name, subjects in sorted(by_name.items()):
        rate = sum(got[each][0] for each in subjects)
        lags = [lag for each in subjects if (lag := got[each][1]) is not None]
        lag = sum(lags) if lags else None
        is_stopped = not rate and bool(lag)
        ribbons.append(
            Ribbon(
                topic_of(subjects[0]),
                group_of(subjects[0]),
                rate,
                lag,
                states.get((PROGRESS, name), "ok"),
                hours.stopped_ms(subjects) if is_stopped else None,
                group_of(subjects[0]) not in deserted,
            )
        )
    return tuple(ribbons)


def verdict_states(store: HistoryStore) -> dict[tuple[str, str], str]:
    """Return the worst verdict on each topic, group and progress."""
    states: dict[tuple[str, str], str] = {}
    for verdict in verdicts_of(store).verdicts:
        about = [(verdict.kind, verdict.name)]
        if verdict.kind == PROGRESS:
            about.append((GROUP, verdict.name.partition("@")[0]))
        for each in about:
            known = URGENCY.get(states.get(each, ""), 0)
            if URGENCY.get(verdict.severity, 0) > known:
                states[each] = verdict.severity
    return states


def busiest(
    rates: Mapping[str, float], urgency: Mapping[str, int], lags: Mapping[str, float] | None = None
) -> list[str]:
    """Return the names that get a node, sorted."""
    lags = lags or {}
    ranked = sorted(
        rates,
        key=lambda name: (-urgency.get(name, 0), -rates[name], -lags.get(name, 0), name),
    )
    return sorted(ranked[:NODES_MAX], key=str.lower)


def level(points: Points, metric: Metric) -> float | None:
    """Return the mean of the known values; for a gauge, the last value."""
    known = [value for value in values_of([points], Line("", metric)) if value is not None]
    if not known:
        return None
    return known[-1] if metric.kind is Kind.GAUGE else sum(known) / len(known)


def summed(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, value in pairs:
        sums[name] = sums.get(name, 0) + value
    return sums


def group_of(subject: Subject) -> str:
    return subject.name.partition("@")[0]


def topic_of(subject: Subject) -> str:
    return subject.name.partition("@")[2]
