"""The collector's main loop: takes samples, and uses the time in between for deferrable work.

That work is folding and expiring history, and writing complete hours for the lake.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from broker_core.isolation import FAILURES, isolated
from console.lib.moment import now_ms
from console.observe.collector.sampler import Moment, Sampler
from console.observe.history.database import HistoryError
from console.observe.history.points import NOMINAL_MS
from console.observe.history.status import STATUS
from console.processes import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from console.gateway.ports import SampleGateway
    from console.observe.history.metrics import Subject
    from console.observe.history.store import HistoryStore

    Facts = Callable[[Subject], Mapping[str, str]]
    Judging = Callable[[int, Mapping[Subject, int], Facts], None]
    Writing = Callable[[int], Iterator[object]]

logger = logging.getLogger(__name__)

FOLD_EVERY = 30
"""Samples between two folds, which limits the unfolded rows that a page reads."""
EXPIRE_EVERY = 360
WRITE_EVERY = 6
"""Samples between two checks for hours to write."""
SOONEST_MS = 500
"""A sample taken this close to the next ten seconds also counts for those."""


def monotonic_ms() -> int:
    """Return the time of the monotonic clock."""
    return int(time.monotonic() * 1000)


class CollectorClock(Protocol):
    """The current time, and a wait that a signal ends."""

    def now(self) -> Moment: ...

    def wait_ms(self, milliseconds: int, stop: threading.Event) -> None: ...


class SystemTime:
    """The machine's clocks."""

    def now(self) -> Moment:
        return Moment(now_ms(), monotonic_ms())

    def wait_ms(self, milliseconds: int, stop: threading.Event) -> None:
        stop.wait(milliseconds / 1000)


class Collector:
    """Call `run`; it returns when `stop` is set. Not thread-safe."""

    def __init__(
        self,
        gateway: SampleGateway,
        store: HistoryStore,
        clock: CollectorClock,
        pid: int,
        judge: Judging = lambda _now, _noticed, _facts: None,
        write_hours: Writing = lambda _now: iter(()),
    ) -> None:
        """`judge` is called after each sample with the time, the time each subject was noticed, and
        a function that returns facts about a subject. `write_hours` is called with the time and
        writes complete hours in steps.
        """
        self.stop = threading.Event()
        self._store = store
        self._clock = clock
        self._pid = pid
        self._judge = judge
        self._write_hours = write_hours
        self._sampler = Sampler(gateway, store)
        self._folding: Iterator[int] | None = None
        self._writing: Iterator[object] | None = None
        self._samples = 0

    def run(self) -> None:
        while not self.stop.is_set():
            self.turn()
            self._work_until_next_sample()
            self._clock.wait_ms(until_next_ms(self._clock.now().wall_ms), self.stop)

    def turn(self) -> None:
        """Take a sample, evaluate it, and start work that is due."""
        began = self._clock.now()
        status = self._sampler.take(began)
        self._samples += 1
        try:
            with isolated("applying the rules to the history") as judging:
                self._judge_history(began.wall_ms)
            if judging.error is not None:
                status.problems.setdefault("", f"the rules failed: {judging.error!r}"[:200])
            status.took_ms = self._clock.now().monotonic_ms - began.monotonic_ms
            status.process = identity(self._pid)
            self._store.note(STATUS, msgspec.json.encode(status))
            if self._samples % EXPIRE_EVERY == 0:
                self._store.expire(began.wall_ms)
                self._sampler.forget_ids()
        except HistoryError as error:
            logger.warning("history not stored error=%s", error)
        except Exception as error:  # noqa: BLE001  the next sample is ten seconds away
            FAILURES.report("a turn of the collector", "", error)
        if self._samples % FOLD_EVERY == 0 and self._folding is None:
            self._folding = self._store.fold()
        if self._samples % WRITE_EVERY == 0 and self._writing is None:
            self._writing = self._write_hours(began.wall_ms)

    def _judge_history(self, now_ms: int) -> None:
        try:
            self._judge(now_ms, self._sampler.noticed, self._sampler.facts)
        except HistoryError as error:
            logger.warning("rules not applied to the history error=%s", error)

    def fold(self) -> None:
        """Fold all pending samples at once."""
        for _ in self._folding or self._store.fold():
            continue
        self._folding = None

    def _work_until_next_sample(self) -> None:
        """Fold and write in steps until the next sample is due; continue after that sample."""
        until = self._clock.now()
        room_ms = until_next_ms(until.wall_ms) - SOONEST_MS
        done = object()
        try:
            while (steps := self._folding or self._writing) is not None:
                passed = self._clock.now().monotonic_ms - until.monotonic_ms
                if passed >= room_ms or self.stop.is_set():
                    return
                if next(steps, done) is done:
                    self._end(steps)
        except (HistoryError, OSError) as error:
            if self._folding:
                logger.warning("samples not folded, will retry error=%s", error)
            else:
                logger.warning("hours not written for the lake, will retry error=%s", error)
            self._end(self._folding or self._writing)
        except Exception as error:  # noqa: BLE001  sampling continues, and this work is tried again
            what = "folding samples" if self._folding else "writing an hour to the lake"
            self._end(self._folding or self._writing)
            FAILURES.report(what, "", error)

    def _end(self, steps: Iterator[object] | None) -> None:
        if steps is self._folding:
            self._folding = None
        else:
            self._writing = None


def until_next_ms(wall_ms: int) -> int:
    """Return the time until the wall clock's next ten seconds."""
    left = NOMINAL_MS - wall_ms % NOMINAL_MS
    return left if left >= SOONEST_MS else left + NOMINAL_MS
