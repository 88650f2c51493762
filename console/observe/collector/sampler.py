"""Takes samples of every broker and of the appliance's processes, and stores them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.isolation import FAILURES
from console.gateway.errors import GatewayError
from console.gateway.sample import BrokerSample, decoded, encoded
from console.observe.collector.facts import facts_of
from console.observe.collector.figures import Figures, is_failover
from console.observe.collector.pace import Pace
from console.observe.collector.reading import Reading, indices
from console.observe.history import metrics
from console.observe.history.database import HistoryError
from console.observe.history.metrics import Subject
from console.observe.history.points import MISSING
from console.observe.history.status import Status
from console.observe.history.store import Event, layout_of
from console.processes import used_by_appliance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from console.gateway.answers import BrokerNode
    from console.gateway.ports import SampleGateway
    from console.observe.history.store import HistoryStore, Layout

    Ints = NDArray[np.int64]

logger = logging.getLogger(__name__)

CARRIED_MS_MAX = 300_000
"""Increases since the last sample are kept across a pause up to this long, otherwise there is a
gap.
"""
ROUNDED_TO_MS = 1_000
NUMBERS_MAX = 2_000_000
"""The maximum of numbers per broker and sample; a larger sample is dropped and logged."""
PROCESSES = "processes"
NOTICED = {
    metrics.LAG: 100,
    metrics.LAG_AGE: 30_000,
    metrics.REWOUND: 1,
    metrics.RETRIED: 1,
    metrics.DEAD: 1,
    metrics.GOT_COLD: 1,
    metrics.LARGEST: 1,
    metrics.HOT_QUEUE: 1,
    metrics.HOT_KEY: 1,
    metrics.VERSIONS: 2,
    metrics.MISMATCHED: 1,
}
"""The value from which a metric's subject is evaluated; no rule applies below it."""
NOTICED_MS = 3_600_000
RESTART, FAILOVER = "restart", "failover"


class Moment(NamedTuple):
    """A time on both clocks: the wall clock may be set, the monotonic one is per process."""

    wall_ms: int
    monotonic_ms: int


@dataclass(slots=True)
class Source:
    """The state of a source of samples. `accounted` is the time up to which counters are stored."""

    before: Reading | None = None
    pace: Pace = field(default_factory=Pace)
    accounted: Moment | None = None
    wall_before: int | None = None
    subjects: list[Subject] = field(default_factory=list)
    ids: Ints | None = None
    """The IDs of the subjects."""
    keys: Ints | None = None
    """By owner, code and part, in the order of the metrics; layout and order derive from them."""
    layout: Layout | None = None
    order: Ints | None = None


class Columns(NamedTuple):
    """The meaning of each number in a sample: index of its subject, metric and part."""

    subjects: list[Subject]
    owners: Ints
    codes: Ints
    parts: Ints


class Sampler:
    """Not thread-safe.

    Attributes:
        noticed: when each subject last had lag, went back, retried or gave up, by the wall clock.
    """

    def __init__(self, gateway: SampleGateway, store: HistoryStore) -> None:
        self._gateway = gateway
        self._store = store
        self._sources: dict[str, Source] = {}
        self._ids: dict[Subject, int] = {}
        self._processes: dict[str, dict[str, int]] = {}
        self._last_problems: dict[str, str] = {}
        self.noticed: dict[Subject, int] = {}

    def take(self, now: Moment) -> Status:
        """Sample all sources; failures are recorded in the status and leave a gap."""
        status = Status(at_ms=now.wall_ms, process=None)
        answers: Mapping[BrokerNode, BrokerSample | GatewayError] = {}
        try:
            answers = self._gateway.take()
        except GatewayError as error:
            status.problems["*"] = error.what
        except Exception as error:  # noqa: BLE001  the next sample is ten seconds away
            FAILURES.report("asking the brokers for samples", "", error)
            status.problems["*"] = "couldn't query the brokers; see the collector's log"
        for node, answer in answers.items():
            name = f"{node.broker_name}:{node.broker_id}"
            if isinstance(answer, GatewayError):
                status.problems[name] = answer.what
                continue
            try:
                status.numbers += self._keep(name, answer, now)
            except HistoryError as error:
                status.problems[""] = str(error)
            except Exception as error:  # noqa: BLE001  one broker's answer must not affect the others
                FAILURES.report("storing a broker's sample", name, error)
                status.problems[name] = "couldn't store its answer; see the collector's log"
                # Don't compare its next sample with this one.
                self._sources.pop(name, None)
        try:
            status.numbers += self._keep_processes(now)
        except HistoryError as error:
            status.problems[""] = str(error)
        except (OSError, ValueError, OverflowError) as error:
            FAILURES.report("reading the resource usage of processes", PROCESSES, error)
            status.problems[PROCESSES] = str(error)
        self._log_change(status.problems)
        return status

    def _keep(self, name: str, sample: BrokerSample, now: Moment) -> int:
        source = self._source(name)
        covered = covered_ms(source.accounted, source.wall_before, now)
        reading = Reading(sample, source.before)
        figures = Figures(source.before if covered else None, reading, source.pace)
        if len(figures) > NUMBERS_MAX:
            raise HistoryError(f"{name} has {len(figures)} figures, more than {NUMBERS_MAX}")
        columns = Columns(figures.subjects, figures.owners, figures.codes, figures.parts)
        self._write(name, source, columns, figures.values, covered, now, encoded(sample))
        for subject in noticed_subjects(figures):
            self.noticed[subject] = now.wall_ms
        was = source.before.sample if source.before is not None else None
        if was is not None and is_failover(was, sample):
            self._store.add_event(Event(sample.sampled_at, FAILOVER, sample.broker_name))
        elif was is not None and was.boot_timestamp != sample.boot_timestamp:
            self._store.add_event(Event(sample.boot_timestamp, RESTART, sample.broker_name))
        source.before = reading
        return len(figures)

    def facts(self, subject: Subject) -> dict[str, str]:
        """Return facts from the newest sample about a subject: names, locations, versions."""
        found: dict[str, str] = {}
        for source in self._sources.values():
            if source.before is not None:
                found |= facts_of(source.before.sample, subject)
        return found

    def _keep_processes(self, now: Moment) -> int:
        used = used_by_appliance()
        source = self._sources.setdefault(PROCESSES, Source())
        covered = covered_ms(source.accounted, source.wall_before, now)
        rows = []
        for index, (name, each) in enumerate(used.items()):
            rows.append((index, metrics.RSS.code, each["rss"]))
            before = self._processes.get(name)
            if before is not None and before["ticks"] == each["ticks"] and covered:
                added = max(0, each["cpu_ms"] - before["cpu_ms"])
                rows.append((index, metrics.CPU.code, added))
        if rows:
            subjects = [Subject(metrics.PROCESS, "", name) for name in used]
            owners, codes, values = np.array(rows, dtype=np.int64).T
            columns = Columns(subjects, owners, codes, np.full(len(rows), metrics.WHOLE))
            self._write(PROCESSES, source, columns, values, covered, now, b"{}")
        self._processes = used
        return len(rows)

    def _write(
        self,
        name: str,
        source: Source,
        columns: Columns,
        values: Ints,
        covered: int,
        now: Moment,
        reading: bytes,
    ) -> None:
        if source.ids is None or columns.subjects != source.subjects:
            self._know(set(columns.subjects), now.wall_ms)
            source.subjects = columns.subjects
            source.ids = indices(self._ids[each] for each in columns.subjects)
            source.keys = None
        keys = np.stack([columns.owners, columns.codes, columns.parts])
        if (
            source.layout is None
            or source.order is None
            or source.keys is None
            or not np.array_equal(keys, source.keys)
        ):
            source.layout, source.order = layout_of(source.ids[keys[0]], keys[1], keys[2])
            source.keys = keys
        ordered = values[source.order]
        self._store.add_sample(name, now.wall_ms, covered, source.layout, ordered, reading)
        # Count whole seconds; the remainder goes to the next sample.
        source.accounted = (
            Moment(now.wall_ms, source.accounted.monotonic_ms + covered)
            if source.accounted is not None and covered
            else now
        )
        source.wall_before = None

    def _know(self, subjects: set[Subject], now_ms: int) -> None:
        if not subjects <= self._ids.keys():
            self._ids = self._store.subject_ids(subjects, now_ms)

    def forget_ids(self) -> None:
        """Look subject IDs up again, which also marks the subjects as still present."""
        self._ids = {}
        recent = max(self.noticed.values(), default=0) - NOTICED_MS
        self.noticed = {each: at for each, at in self.noticed.items() if at >= recent}
        for source in self._sources.values():
            source.ids = None

    def _source(self, name: str) -> Source:
        """Return a source; the first time with the state that the last collector stored."""
        found = self._sources.get(name)
        if found is None:
            found = Source()
            kept = self._store.last_reading(name)
            if kept is not None:
                try:
                    found.before = Reading(decoded(kept[1]))
                    found.wall_before = kept[0]
                except (ValueError, OverflowError):
                    logger.warning("last sample unreadable, counting starts again source=%s", name)
            self._sources[name] = found
        return found

    def _log_change(self, problems: dict[str, str]) -> None:
        """Log changes only, so that an unreachable broker isn't logged every ten seconds."""
        for name, what in problems.items():
            if self._last_problems.get(name) != what:
                logger.warning("source not sampled source=%s reason=%s", name or "history", what)
        for name in self._last_problems.keys() - problems.keys():
            logger.info("source sampled again source=%s", name or "history")
        self._last_problems = dict(problems)


def noticed_subjects(figures: Figures) -> list[Subject]:
    """Return subjects that a rule may apply to, including those of unknown age."""
    least = np.full(max(metrics.ALL) + 1, np.iinfo(np.int64).max)
    for metric, value in NOTICED.items():
        least[metric.code] = value
    is_unknown = (figures.codes == metrics.LAG_AGE.code) & (figures.values == MISSING)
    is_noticed = (figures.values >= least[figures.codes]) | is_unknown
    return [figures.subjects[owner] for owner in np.unique(figures.owners[is_noticed]).tolist()]


def covered_ms(accounted: Moment | None, wall_before: int | None, now: Moment) -> int:
    """Return how much time a sample's counters cover, or 0 if that is unknown or too long.

    Uses the monotonic clock within a process, and the wall clock across a restart if it advanced.
    """
    if accounted is not None:
        passed = max(0, now.monotonic_ms - accounted.monotonic_ms)
    elif wall_before is not None and wall_before < now.wall_ms:
        passed = now.wall_ms - wall_before
    else:
        return 0
    if passed > CARRIED_MS_MAX:
        return 0
    return max(ROUNDED_TO_MS, round(passed / ROUNDED_TO_MS) * ROUNDED_TO_MS)
