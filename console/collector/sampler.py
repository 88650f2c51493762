"""Sampler: takes samples of every broker and of the appliance's processes, and writes them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from console.collector.figures import Figures, is_failover
from console.gateway.errors import GatewayError
from console.gateway.sample import BrokerSample, decoded, encoded
from console.history import metrics
from console.history.database import HistoryError
from console.history.metrics import Column, Subject
from console.history.status import Status
from console.history.store import Event, layout_of
from console.processes import used_by_appliance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from console.gateway.ports import SampleGateway
    from console.history.store import HistoryStore, Layout

    Ints = NDArray[np.int64]

logger = logging.getLogger(__name__)

CARRIED_MS_MAX = 300_000
"""What was added since the last sample is kept over a pause of this length; beyond it is a gap."""
ROUNDED_TO_MS = 1_000
NUMBERS_MAX = 2_000_000
"""Numbers a sample of a broker: one with more is not kept, and the collector says so."""
PROCESSES = "processes"
NOTICED = {each.code for each in (metrics.LAG, metrics.REWOUND, metrics.RETRIED, metrics.DEAD)}
"""Figures that let a subject be judged while they are above 0."""
NOTICED_MS = 3_600_000
RESTART, FAILOVER = "restart", "failover"


class Moment(NamedTuple):
    """A time by two clocks: the wall's may be set, the monotonic one is of this process only."""

    wall_ms: int
    monotonic_ms: int


@dataclass(slots=True)
class Source:
    """What is known of one source of samples. `accounted` is up to when counters are kept."""

    before: BrokerSample | None = None
    accounted: Moment | None = None
    wall_before: int | None = None
    keys: list[tuple[Subject, Column]] = field(default_factory=list)
    layout: Layout | None = None
    order: Ints | None = None


class Sampler:
    """One thread only.

    Attributes:
        noticed: when each subject last lagged, went back, retried or gave up, by the wall's clock.
    """

    def __init__(self, gateway: SampleGateway, store: HistoryStore) -> None:
        self._gateway = gateway
        self._store = store
        self._sources: dict[str, Source] = {}
        self._ids: dict[Subject, int] = {}
        self._processes: dict[str, dict[str, int]] = {}
        self._told: dict[str, str] = {}
        self.noticed: dict[Subject, int] = {}

    def take(self, now: Moment) -> Status:
        """Take one sample of everything; what fails is in the status, and a gap."""
        status = Status(at_ms=now.wall_ms, process=None)
        try:
            answers = self._gateway.take()
        except GatewayError as error:
            status.problems["*"] = error.what
            answers = {}
        for node, answer in answers.items():
            name = f"{node.broker_name}:{node.broker_id}"
            if isinstance(answer, GatewayError):
                status.problems[name] = answer.what
                continue
            try:
                status.numbers += self._keep(name, answer, now)
            except HistoryError as error:
                status.problems[""] = str(error)
        try:
            status.numbers += self._keep_processes(now)
        except HistoryError as error:
            status.problems[""] = str(error)
        self._tell(status.problems)
        return status

    def _keep(self, name: str, sample: BrokerSample, now: Moment) -> int:
        source = self._source(name)
        covered = covered_ms(source.accounted, source.wall_before, now)
        before = source.before if covered else None
        figures = list(Figures(before, sample))
        if len(figures) > NUMBERS_MAX:
            raise HistoryError(f"{name} has {len(figures)} figures, more than {NUMBERS_MAX}")
        self._write(name, source, figures, covered, now, encoded(sample))
        for subject, column, value in figures:
            if value and column.code in NOTICED:
                self.noticed[subject] = now.wall_ms
        was = source.before
        if was is not None and is_failover(was, sample):
            self._store.add_event(Event(sample.sampled_at, FAILOVER, sample.broker_name))
        elif was is not None and was.boot_timestamp != sample.boot_timestamp:
            self._store.add_event(Event(sample.boot_timestamp, RESTART, sample.broker_name))
        source.before = sample
        return len(figures)

    def _keep_processes(self, now: Moment) -> int:
        used = used_by_appliance()
        source = self._sources.setdefault(PROCESSES, Source())
        covered = covered_ms(source.accounted, source.wall_before, now)
        figures = []
        for name, each in used.items():
            subject = Subject(metrics.PROCESS, "", name)
            figures.append((subject, Column(metrics.RSS.code), each["rss"]))
            before = self._processes.get(name)
            if before is not None and before["ticks"] == each["ticks"] and covered:
                added = max(0, each["cpu_ms"] - before["cpu_ms"])
                figures.append((subject, Column(metrics.CPU.code), added))
        if figures:
            self._write(PROCESSES, source, figures, covered, now, b"{}")
        self._processes = used
        return len(figures)

    def _write(
        self,
        name: str,
        source: Source,
        figures: Iterable[tuple[Subject, Column, int]],
        covered: int,
        now: Moment,
        reading: bytes,
    ) -> None:
        rows = list(figures)
        keys = [(subject, column) for subject, column, _ in rows]
        if source.layout is None or source.order is None or keys != source.keys:
            self._know({subject for subject, _ in keys}, now.wall_ms)
            source.layout, source.order = layout_of(
                (self._ids[subject], column) for subject, column in keys
            )
            source.keys = keys
        values = np.array([value for _, _, value in rows], dtype=np.int64)[source.order]
        self._store.add_sample(name, now.wall_ms, covered, source.layout, values, reading)
        # Time is accounted for in whole seconds, and the rest of a second with the next sample.
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
        """Ask for the ids of subjects anew, which also says that they are still seen."""
        self._ids = {}
        recent = max(self.noticed.values(), default=0) - NOTICED_MS
        self.noticed = {each: at for each, at in self.noticed.items() if at >= recent}
        for source in self._sources.values():
            source.layout = None

    def _source(self, name: str) -> Source:
        """Return a source; the first time with what the last collector has read of it."""
        found = self._sources.get(name)
        if found is None:
            found = Source()
            kept = self._store.last_reading(name)
            if kept is not None:
                try:
                    found.before = decoded(kept[1])
                    found.wall_before = kept[0]
                except ValueError:
                    logger.warning(
                        "the last sample of %s cannot be read; counting begins anew", name
                    )
            self._sources[name] = found
        return found

    def _tell(self, problems: dict[str, str]) -> None:
        """Log what is new; a broker that stays away is not logged every ten seconds."""
        for name, what in problems.items():
            if self._told.get(name) != what:
                logger.warning("no sample: source=%s %s", name or "history", what)
        for name in self._told.keys() - problems.keys():
            logger.info("samples again: source=%s", name or "history")
        self._told = dict(problems)


def covered_ms(accounted: Moment | None, wall_before: int | None, now: Moment) -> int:
    """Return how much time a sample's counters cover, 0 when that is not known or too long.

    Within a process the monotonic clock says it; over a restart the wall's, if it went on.
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
