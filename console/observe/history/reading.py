"""History data for pages: charts, sparklines, marks and collector status."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from console.gateway.answers import MASTER_ID
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import (
    BROKER,
    CLUSTER,
    GROUP,
    LAG,
    MEMBERS,
    PROGRESS,
    PUT,
    PUT_BYTES,
    QUEUE,
    REWOUND,
    TOPIC,
    QueuePlace,
    pair,
)
from console.observe.history.series import Aspect, Line, trend_of, values_of
from console.observe.history.status import STATUS, Status
from console.observe.history.tiers import COARSE, HOUR_MS, MIDDLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from console.observe.history.charts import Chart
    from console.observe.history.metrics import Metric, Subject
    from console.observe.history.points import Points
    from console.observe.history.range import TimeRange
    from console.observe.history.series import Values
    from console.observe.history.tiers import Tier

logger = logging.getLogger(__name__)

SILENT_MS = 45_000
"""A collector without a sample for this long counts as down."""
GROUPS_MARKED_MAX = 20
"""With more groups, the rebalance marks would hide a topic's chart."""
SPARK_SLOTS = HOUR_MS // MIDDLE.step_ms
SHOWN_MIN = 10
IGNORED_SHARE = 0.1
"""A figure that lacks less than this share of its line isn't called younger."""


class Mark(NamedTuple):
    """An event at a time on a chart; `what` is its kind, a key of `words`.

    `group` is the group it belongs to, on a chart about several groups.
    """

    at_ms: int
    what: str
    detail: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class ChartData:
    """A chart's values, one list per line, at the start of each slot; the same number of `earlier`
    ones.
    """

    step_ms: int
    times_ms: list[int]
    lines: list[Values]
    earlier: list[Values] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Spark:
    """A figure's last hour by the minute, or last day by ten minutes.

    A figure that is younger than that fills the line with the time there is: at least SHOWN_MIN
    values, and `since_ms` is when it begins.
    """

    values: Values
    trend: int | None
    is_day: bool = False
    begins_ms: int = 0

    @classmethod
    def of(cls, values: Values, first: int, tier: Tier = MIDDLE) -> Spark:
        """Return the sparkline of values from slot `first` on."""
        return cls(values, trend_of(values), tier is COARSE, first * tier.step_ms)

    @property
    def is_known(self) -> bool:
        return any(value is not None for value in self.values)

    @property
    def shown(self) -> Values:
        """The values that the line shows."""
        return self.values[max(0, min(self._unknown, len(self.values) - SHOWN_MIN)) :]

    @property
    def since_ms(self) -> int | None:
        """When a younger figure begins; None if it is as old as the line."""
        if self._unknown <= len(self.values) * IGNORED_SHARE or not self.is_known:
            return None
        step_ms = (COARSE if self.is_day else MIDDLE).step_ms
        return self.begins_ms + self._unknown * step_ms

    @property
    def _unknown(self) -> int:
        """The number of unknown values before the first known one."""
        return next((at for at, each in enumerate(self.values) if each is not None), 0)


@dataclass(frozen=True, slots=True)
class CollectorState:
    """The collector's latest status; `status` is None if it never ran."""

    status: Status | None
    now_ms: int
    problem: str = ""

    @property
    def is_alive(self) -> bool:
        return self.status is not None and abs(self.now_ms - self.status.at_ms) <= SILENT_MS

    @property
    def last_ms(self) -> int | None:
        return None if self.status is None else self.status.at_ms


def collector_state(now_ms: int) -> CollectorState:
    try:
        data = history_store().noted(STATUS)
        status = None if data is None else msgspec.json.decode(data, type=Status)
    except (HistoryError, msgspec.DecodeError) as error:
        return CollectorState(None, now_ms, str(error))
    return CollectorState(status, now_ms)


def subjects_of(kind: str, name: str) -> dict[Subject, int]:
    """Return a page's subject on each broker that has it; a broker's name is name:id."""
    if kind == CLUSTER:
        every = history_store().all_subjects()
        return {subject: each for subject, each in every.items() if subject.kind == BROKER}
    if kind == QUEUE:
        place = QueuePlace.parse(name)
        if place is None:
            return {}
        found = history_store().find(PROGRESS, [pair(place.group, place.topic)])
        return {subject: each for subject, each in found.items() if subject.broker == place.broker}
    if kind != BROKER:
        return history_store().find(kind, [name])
    broker, _, number = name.rpartition(":")
    found = history_store().find(kind, [number])
    return {subject: each for subject, each in found.items() if subject.broker == broker}


def is_kept(kind: str, name: str) -> bool:
    """Whether the history has a page's subject; False if the history can't be read."""
    try:
        return bool(subjects_of(kind, name))
    except HistoryError:
        return False


def chart_data(chart: Chart, name: str, asked: TimeRange) -> ChartData:
    """Return a chart's data; read failures are returned as a problem, not raised."""
    tier = asked.tier
    first = asked.low_ms // tier.step_ms
    # An incomplete slot would show too small a sum.
    slots = max(1, asked.high_ms // tier.step_ms - first)
    times = [(first + index) * tier.step_ms for index in range(slots)]
    earlier: list[Values] = []
    if chart.kind == QUEUE and (place := QueuePlace.parse(name)) is not None:
        chart = chart.of_part(place.queue_id)
    try:
        subjects = subjects_of(chart.kind, name)
        numbers = list(subjects.values())
        read = history_store().read(numbers, tier, first, slots)
        if asked.earlier:
            before = first - asked.earlier_by_ms // tier.step_ms
            read_before = history_store().read(numbers, tier, before, slots)
            earlier = lines_of(chart, subjects, read_before, slots)
        events = history_store().events(asked.low_ms, asked.high_ms)
    except HistoryError as error:
        logger.warning("history unreadable error=%s", error)
        return ChartData(tier.step_ms, times, lines_of(chart, {}, {}, slots), problem=str(error))
    found = list(read.values())
    brokers = {subject.broker for subject in subjects}
    marks = [
        Mark(event.at_ms, event.what, event.broker)
        for event in events
        if event.broker in brokers or not brokers
    ]
    if chart.kind == GROUP:
        marks += [*rewinds(found, times), *rebalances(found, times)]
    elif chart.kind in (TOPIC, QUEUE):
        marks += group_marks(groups_about(chart.kind, name), tier, first, slots)
    return ChartData(
        tier.step_ms, times, lines_of(chart, subjects, read, slots), earlier, sorted(marks)
    )


def lines_of(
    chart: Chart, subjects: Mapping[Subject, int], read: Mapping[int, Points], slots: int
) -> list[Values]:
    lines = []
    for each in chart.lines:
        numbers = counted(subjects, each.line.metric) if chart.kind == CLUSTER else subjects
        parts = [read[number] for number in numbers.values()]
        lines.append(values_of(parts, each.line) or [None] * slots)
    return lines


def counted(brokers: Mapping[Subject, int], metric: Metric) -> Mapping[Subject, int]:
    """Return the subjects to sum over brokers: not slaves, which would count twice."""
    if metric not in (PUT, PUT_BYTES):
        return brokers
    master = str(MASTER_ID)
    return {subject: number for subject, number in brokers.items() if subject.name == master}


def rewinds(found: Sequence[Points], times: Sequence[int]) -> list[Mark]:
    """Return a mark for each time a group's offsets were rewound."""
    back = values_of(found, Line("", REWOUND, Aspect.SUM))
    return [
        Mark(at, "back", str(round(count))) for at, count in zip(times, back, strict=False) if count
    ]


def groups_about(kind: str, name: str) -> list[str]:
    """Return the groups whose rebalances and rewinds belong on a chart."""
    if kind == QUEUE:
        place = QueuePlace.parse(name)
        return [place.group] if place is not None else []
    found = {
        subject.name.partition("@")[0]
        for subject in history_store().all_subjects()
        if subject.kind == PROGRESS and subject.name.endswith(f"@{name}")
    }
    return sorted(found)[:GROUPS_MARKED_MAX]


def group_marks(groups: Sequence[str], tier: Tier, first: int, slots: int) -> list[Mark]:
    """Return the rebalances and rewinds of some groups, each with its group's name."""
    subjects = history_store().find(GROUP, groups)
    read = history_store().read(list(subjects.values()), tier, first, slots)
    times = [(first + index) * tier.step_ms for index in range(slots)]
    by_group: dict[str, list[Points]] = {}
    for subject, number in subjects.items():
        by_group.setdefault(subject.name, []).append(read[number])
    return [
        mark._replace(group=name)
        for name, found in by_group.items()
        for mark in (*rewinds(found, times), *rebalances(found, times))
    ]


def rebalances(found: Sequence[Points], times: Sequence[int]) -> list[Mark]:
    """Return a mark for each change in a group's number of consumers, which moves queues."""
    marks: list[Mark] = []
    last: int | None = None
    for at, value in zip(times, values_of(found, Line("", MEMBERS, Aspect.PEAK)), strict=False):
        if value is None:
            continue
        members = round(value)
        if last is not None and members != last:
            marks.append(Mark(at, "rebalance", f"{last} \u2192 {members}"))
        last = members
    return marks


def sparks(kind: str, names: Sequence[str], line: Line, now_ms: int) -> dict[str, Spark]:
    """Return the last hour of a figure by name; empty if it can't be read."""
    first = now_ms // MIDDLE.step_ms - SPARK_SLOTS
    try:
        subjects = history_store().find(kind, names)
        read = history_store().read(list(subjects.values()), MIDDLE, first, SPARK_SLOTS)
    except HistoryError as error:
        logger.warning("history unreadable error=%s", error)
        return {}
    by_name: dict[str, list[Points]] = {}
    for subject, number in subjects.items():
        by_name.setdefault(subject.name, []).append(read[number])
    made = {}
    for name, parts in by_name.items():
        values = values_of(parts, line)
        made[name] = Spark.of(values, first)
    return made


def subject_sparks(
    kind: str, name: str, lines: Mapping[str, Line], now_ms: int
) -> dict[str, Spark]:
    """Return the last hour of some figures of one subject, by line name."""
    first = now_ms // MIDDLE.step_ms - SPARK_SLOTS
    try:
        numbers = list(subjects_of(kind, name).values())
        parts = list(history_store().read(numbers, MIDDLE, first, SPARK_SLOTS).values())
    except HistoryError as error:
        logger.warning("history unreadable error=%s", error)
        return {}
    made = {key: values_of(parts, line) for key, line in lines.items()}
    return {key: Spark.of(values, first) for key, values in made.items()}


def queue_sparks(
    kind: str, name: str, line: Line, now_ms: int
) -> Callable[[str, int], Spark | None]:
    """Return a function that gives the last hour of a figure by broker and queue ID."""
    first = now_ms // MIDDLE.step_ms - SPARK_SLOTS
    try:
        subjects = history_store().find(kind, [name])
        read = history_store().read(list(subjects.values()), MIDDLE, first, SPARK_SLOTS)
    except HistoryError as error:
        logger.warning("history unreadable error=%s", error)
        return lambda _broker, _queue_id: None
    by_broker = {subject.broker: read[number] for subject, number in subjects.items()}

    def spark_of(broker: str, queue_id: int) -> Spark | None:
        points = by_broker.get(broker)
        if points is None:
            return None
        values = values_of([points], line._replace(part=queue_id))
        return Spark.of(values, first)

    return spark_of


def lag_sparks(group: str, topic: str, now_ms: int) -> Callable[[str, int], Spark | None]:
    """Return a function that gives the last hour of a group's lag in each queue of a topic."""
    return queue_sparks(PROGRESS, pair(group, topic), Line("lag", LAG, Aspect.PEAK), now_ms)


def fill_sparks(topic: str, now_ms: int) -> Callable[[str, int], Spark | None]:
    """Return a function that gives the write rate of each queue of a topic in the last hour."""
    return queue_sparks(TOPIC, topic, Line("received", PUT), now_ms)


def last_of(spark: Spark | None) -> float | None:
    """Return the newest known value, or None."""
    known = [value for value in spark.values if value is not None] if spark else []
    return known[-1] if known else None
