"""A whole appliance under even load for hours: no messages are lost, and resources stay level.

Plain sends, delayed messages, transactions, retries, changing consumers, an open console, and
scheduled reports; the processes are killed or asked to stop in turn. Each minute memory,
descriptors, threads, the broker's tasks, disk and latencies are recorded. At the end the histories
of all clients are checked, and each quantity is level or isn't (`levels`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from deploy.machine import java, redis_server
from tests.support import processes, raw_remoting
from tests.support.appliance import Appliance
from tests.support.long_timeouts import PATIENT
from tests.support.ports import accepts, free_port
from tests.support.waiting import until
from tools.faults.appliance_kills import MAKE_SCHEDULE
from tools.faults.clients import Book, Sender, Server
from tools.faults.operations import Cause
from tools.soak import levels
from tools.soak.console import PAUSE_SECONDS, Viewers
from tools.soak.levels import MIB, Lives, Point, Verdict
from tools.soak.segment import DEFERRED_PART, Checked, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

BROKER = "broker"
VICTIMS = ("web", "collector", "pipeline", "worker", "beat", "redis", BROKER)
ALL = "all"
MAKERS = ("pipeline", "beat", "redis", ALL)
"""A schedule needs these to run."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
SEGMENT_SECONDS_MAX = 600.0
RESTART_MINUTES = 10.0
REPORT_MINUTES = 5
LOAD_PART = 0.3
CALIBRATION_SECONDS = 10.0
CALIBRATION_SENDERS = 8
SAMPLE_SECONDS = 5.0
SAMPLES_MIN = 60
TURN_SECONDS = 0.2
REPORT_TAKES_MAX = timedelta(minutes=4)
DISK_SECONDS = 20.0
BACK_SECONDS_MAX = 300.0
SWITCH_SECONDS = 0.001
"""The interpreter's thread switch interval, so that no reader delays a due sender."""
RUNS = "SELECT slot, state, failure FROM reports_reportrun WHERE slot IS NOT NULL"
SHOWN_MAX = 20


class Restart(NamedTuple):
    """Which process is restarted when, in seconds since the start, and how."""

    at: float
    victim: str
    signal: signal.Signals


@dataclass
class Minute:
    """A minute: send latencies in ms, the longest time without an answer in s, medians of the
    processes' resources, bytes of disk.
    """

    number: int
    acknowledged: int = 0
    p50: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    longest: float = 0.0
    gap: float = 0.0
    restarted: str = ""
    disk: dict[str, int] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    """By program and quantity."""

    def __str__(self) -> str:
        return (
            f"minute {self.number}: {self.acknowledged} acknowledged, p50 {self.p50:.2f} ms, "
            f"p99 {self.p99:.2f} ms, p99.9 {self.p999:.2f} ms, longest gap {self.gap:.1f} s"
        )


@dataclass
class Figures:
    """The results of a soak."""

    rate: float = 0.0
    seconds: float = 0.0
    minutes: list[Minute] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    frames: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    members: int = 0
    reports: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        return [one for each in self.checked for one in each.findings]

    @property
    def is_level(self) -> bool:
        return all(one.is_level for one in self.verdicts)

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.findings and self.is_level

    def total(self, what: str) -> Counter[str]:
        """Return the sum of a table of all parts."""
        found: Counter[str] = Counter()
        for each in self.checked:
            found.update(getattr(each, what))
        return found

    def __str__(self) -> str:
        lines = [
            f"{self.seconds / 60:.1f} min at {self.rate:g} messages/s",
            f"acknowledged={sum(one.acknowledged for one in self.checked)} "
            f"delivered={sum(one.delivered for one in self.checked)} "
            f"lost={self.total('lost').total()} "
            f"duplicates_explained={dict(self.total('explained'))} "
            f"duplicates_unexplained={sum(one.unexplained for one in self.checked)}",
            f"restarts={len(self.restarts)} members={self.members} pages={self.pages} "
            f"frames={dict(self.frames)} reports={dict(self.reports)}",
            *map(str, self.verdicts),
            *(f"found: {one}" for one in self.findings[:SHOWN_MAX]),
            *(f"wrong: {one}" for one in self.wrong[:SHOWN_MAX]),
        ]
        return "\n".join([*lines, "level" if self.is_level else "NOT LEVEL"])


class Meter:
    """Latencies by minute. Any thread can add one; one thread collects a minute's."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._last = time.monotonic()
        self._gap = 0.0
        self._lock = threading.Lock()
        self.acknowledged = 0

    def begin(self) -> None:
        self._last = time.monotonic()

    def note(self, seconds: float) -> None:
        now = time.monotonic()
        with self._lock:
            self._seconds.append(seconds)
            self._gap = max(self._gap, now - self._last)
            self._last = now
            self.acknowledged += 1

    def take(self, minute: Minute) -> None:
        """Collect latencies since the previous call into a minute."""
        with self._lock:
            seconds, self._seconds = self._seconds, []
            minute.gap = max(self._gap, time.monotonic() - self._last)
            self._gap = 0.0
        seconds.sort()
        minute.acknowledged = len(seconds)
        if seconds:
            last = len(seconds) - 1
            minute.p50, minute.p99, minute.p999, minute.longest = (
                seconds[int(last * part)] * 1e3 for part in (0.5, 0.99, 0.999, 1.0)
            )


class Soak:
    """One run."""

    def __init__(
        self,
        directory: Path,
        minutes: float,
        dice: Random,
        keep: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self._metrics_port = free_port()
        self.appliance = Appliance(directory / "appliance", TREBUCHET_LAKE="true")
        self.appliance.set_keys(
            metricsListenPort=self._metrics_port,
            # The recorder is full, and level, by the end of a life's first fifth.
            traceRecorderMaxBytes=MIB,
            traceRecorderMinutes=1,
            **PATIENT,
        )
        self._directory = directory
        self._keep = keep
        self._seconds = minutes * 60
        self._minute_seconds = min(60.0, self._seconds / 10)
        self._sample_seconds = min(SAMPLE_SECONDS, self._seconds / SAMPLES_MIN)
        self._dice = dice
        self._say = say
        self._viewers = Viewers(self.appliance, min(PAUSE_SECONDS, self._seconds / 10))
        self._meter = Meter()
        self._lives = Lives(self.appliance.data / "store")
        self._used: list[Point] = []
        self._acknowledged: list[Point] = []
        self._segments: list[Segment] = []
        self._resting: list[threading.Thread] = []
        self._over = threading.Event()
        self._is_away = threading.Event()
        """Set while the whole appliance is down and there are no processes to measure."""
        self._restarted: list[str] = []
        self._excused: list[tuple[datetime, datetime]] = []
        self._began = 0.0
        self.figures = Figures()

    def run(
        self,
        rate: float | None,
        part_seconds: float,
        restarts: Sequence[Restart],
        beside: Callable[[Appliance], None],
    ) -> Figures:
        appliance, figures = self.appliance, self.figures
        appliance.start()
        try:
            figures.rate = rate or self._calibrated()
            self._say(f"up, {figures.rate:g} messages/s")
            appliance.in_django(MAKE_SCHEDULE.replace("* * * * *", f"*/{REPORT_MINUTES} * * * *"))
            scheduled = datetime.now(UTC)
            self._viewers.start()
            beside(appliance)
            self._soak(part_seconds, deque(restarts))
            self._check_reports(scheduled)
        finally:
            code = appliance.stop()
        if code != 0:
            figures.wrong.append(f"the appliance ended with {code}")
        return figures

    def _calibrated(self) -> float:
        """Return a part of the maximum rate of all clients together.

        Senders that only wait for answers determine the maximum; readers, retries and recording
        cost more, and share this machine.
        """
        meter = Meter()
        segment = self._segment("calibration", CALIBRATION_SECONDS, self._sends_max(), meter)
        segment.start()
        time.sleep(CALIBRATION_SECONDS)
        done = meter.acknowledged / (1 - DEFERRED_PART) / CALIBRATION_SECONDS
        segment.end_sends()
        self.figures.checked.append(segment.come_to_rest())
        return round(LOAD_PART * done)

    def _sends_max(self) -> float:
        """Return how many messages a second senders alone get acknowledged."""
        book = Book()
        raw_remoting.create_topic(self.appliance.port, "Calibration", queues=CALIBRATION_SENDERS)
        senders = [
            Sender(self._find, f"calibration-{each}", book, ("Calibration", each))
            for each in range(CALIBRATION_SENDERS)
        ]
        for sender in senders:
            sender.start()
        time.sleep(CALIBRATION_SECONDS)
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.join()
        return book.codes[raw_remoting.SUCCESS] / CALIBRATION_SECONDS

    def _find(self) -> Server:
        return Server("broker-a", "127.0.0.1", self.appliance.port)

    def _soak(self, part_seconds: float, restarts: deque[Restart]) -> None:
        self._began = time.monotonic()
        segment_seconds = self._seconds / max(1, round(self._seconds / part_seconds))
        watch = [
            threading.Thread(target=self._sample, name="sample", daemon=True),
            threading.Thread(target=self._measure_disk, name="disk", daemon=True),
        ]
        self._next_segment(segment_seconds)
        self._meter.begin()
        for thread in watch:
            thread.start()
        try:
            while (now := self._now()) < self._seconds:
                if now >= segment_seconds * len(self._segments):
                    before = self._segments[-1]
                    self._next_segment(segment_seconds)
                    self._rest(before)
                elif restarts and now >= restarts[0].at:
                    self._restart(restarts.popleft())
                time.sleep(min(TURN_SECONDS, self._sample_seconds))
            self.figures.seconds = self._now()
            self._rest(self._segments[-1])
        finally:
            self._over.set()
            for thread in (*watch, *self._resting):
                thread.join()
            self._viewers.stop()
        self._judge()

    def _judge(self) -> None:
        figures = self.figures
        figures.frames = self._viewers.frames
        figures.wrong += self._viewers.wrong
        figures.pages = self._viewers.pages.total()
        figures.members = sum(one.members_came for one in self._segments)
        figures.verdicts = [
            *self._lives.verdicts(),
            *levels.disk_verdict(self._used, self._acknowledged),
        ]

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _next_segment(self, seconds: float) -> None:
        number = len(self._segments)
        # Names of one length, so that stored messages take the same space in the last part.
        segment = self._segment(f"{number:03}", seconds, self.figures.rate, self._meter)
        segment.start()
        self._segments.append(segment)

    def _segment(self, name: str, seconds: float, rate: float, meter: Meter) -> Segment:
        return Segment(name, self._find, self._directory, self._dice, seconds, rate, meter.note)

    def _rest(self, segment: Segment) -> None:
        """Let a part finish during the next one."""
        segment.end_sends()

        def rest() -> None:
            try:
                checked = segment.come_to_rest()
            except Exception as error:  # noqa: BLE001  the run continues, and counts as failed
                self.figures.wrong.append(f"part {segment.name} didn't end: {error!r}")
                return
            self.figures.checked.append(checked)
            if checked.findings:
                self._say("\n".join(checked.findings))
                if self._keep is not None:
                    self._keep.mkdir(parents=True, exist_ok=True)
                    shutil.copy(segment.file, self._keep)
                    self._say(f"history saved to {self._keep / segment.file.name}")
            segment.file.unlink()

        thread = threading.Thread(target=rest, name=f"rest-{segment.name}", daemon=True)
        self._resting.append(thread)
        thread.start()

    def _restart(self, restart: Restart) -> None:
        victim, number = restart.victim, restart.signal
        # The final reads of a part need a running broker.
        for thread in self._resting:
            thread.join()
        began, began_at = time.monotonic(), datetime.now(UTC)
        self._viewers.excuse()
        if victim == ALL:
            self._is_away.set()
            self.appliance.stop(number)
            self.appliance.start()
            self._is_away.clear()
        else:
            self._signal(victim, number)
        self._viewers.excuse()
        if victim in MAKERS:
            self._excused.append((began_at, datetime.now(UTC)))
        self._restarted.append(victim)
        text = f"{victim} {number.name}, restarted after {time.monotonic() - began:.1f} s"
        self.figures.restarts.append(text)
        self._say(f"{self._now() / 60:.1f} min: {text}")

    def _signal(self, victim: str, number: signal.Signals) -> None:
        """Signal a process and wait for its successor."""
        pids: list[int] = []

        def is_sent() -> bool:
            pids[:] = [self.appliance.pid_of(victim)]
            # A process that has just exited on its own is replaced soon.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[0], number)
                # Record it at once: a kill loses data that isn't on disk, a stop loses nothing.
                if victim == BROKER and number is signal.SIGKILL:
                    self._note(Cause.CRASH)
                return True
            return False

        def is_back() -> bool:
            return self.appliance.pid_of(victim) not in pids and self._serves(victim)

        until(is_sent, f"a {victim} to restart", seconds=BACK_SECONDS_MAX)
        until(is_back, f"{victim} to restart", seconds=BACK_SECONDS_MAX)

    def _note(self, cause: Cause) -> None:
        for segment in self._segments:
            segment.note(cause)

    def _serves(self, victim: str) -> bool:
        ports = {"web": self.appliance.web_port, BROKER: self.appliance.port}
        return victim not in ports or accepts(ports[victim])

    def _sample(self) -> None:
        """Measure all processes periodically, and close each minute."""
        minute = Minute(0)
        seen: defaultdict[str, list[float]] = defaultdict(list)
        while not self._over.wait(self._sample_seconds):
            now = self._now()
            if not self._is_away.is_set():
                self._look(now, seen)
            if now >= (minute.number + 1) * self._minute_seconds:
                self._close(minute, seen)
                minute, seen = Minute(minute.number + 1), defaultdict(list)

    def _look(self, now: float, seen: defaultdict[str, list[float]]) -> None:
        appliance = self.appliance
        pids = {name: processes.tree(appliance.pid_of(name)) for name in VICTIMS}
        pids["up"] = [appliance.pid]
        tasks = levels.tasks_of(self._metrics_port)
        for key, value in self._lives.note(now, pids, tasks).items():
            seen[key].append(value)

    def _close(self, minute: Minute, seen: defaultdict[str, list[float]]) -> None:
        self._meter.take(minute)
        minute.restarted, self._restarted = " ".join(self._restarted), []
        minute.seen = {key: statistics.median(values) for key, values in sorted(seen.items())}
        minute.disk = self._disk()
        self.figures.minutes.append(minute)
        self._say(str(minute))

    def _disk(self) -> dict[str, int]:
        return levels.disk_of(self.appliance.data)

    def _measure_disk(self) -> None:
        pause = min(DISK_SECONDS, self._sample_seconds * 2)
        while not self._over.wait(pause):
            used = sum(self._disk().values())
            now = self._now()
            self._used.append(Point(now, used))
            self._acknowledged.append(Point(now, self._meter.acknowledged))

    def _check_reports(self, scheduled: datetime) -> None:
        """Check that each scheduled time has one finished run, unless its makers were down."""
        path = self.appliance.data / "console.sqlite3"
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(RUNS).fetchall()
        figures = self.figures
        done: Counter[datetime] = Counter()
        made: Counter[tuple[str, datetime]] = Counter()
        for slot, state, failure in rows:
            schedule, _, time_slot = slot.partition("@")
            at = datetime.fromisoformat(time_slot.partition(" ")[0])
            figures.reports[state] += 1
            done[at] += state == "done"
            # At a full hour the default schedule creates one, too.
            made[schedule, at] += state == "done"
            if state == "failed" and not self._is_excused(at):
                figures.wrong.append(f"the report of {at} failed: {failure}")
        figures.wrong += [
            f"the report of {at} ran twice" for (_, at), times in made.items() if times > 1
        ]
        at = scheduled.replace(minute=0, second=0, microsecond=0)
        while at < datetime.now(UTC) - REPORT_TAKES_MAX:
            if at > scheduled and not done[at] and not self._is_excused(at):
                figures.wrong.append(f"the report of {at} didn't run")
            at += timedelta(minutes=REPORT_MINUTES)

    def _is_excused(self, at: datetime) -> bool:
        return any(
            began - REPORT_TAKES_MAX < at < ended + timedelta(minutes=1)
            for began, ended in self._excused
        )


def restarts_of(
    minutes: float,
    every_minutes: float,
    dice: Random,
    victims: Sequence[str] = (),
) -> list[Restart]:
    """Return which process is restarted when, and how; cycles through `victims`.

    By default the whole appliance is first, then each process, alternately killed or asked to stop,
    then each in the other way. Restarts are in the middle of the parts, so that their ends are
    quiet.
    """
    shuffled = list(VICTIMS)
    dice.shuffle(shuffled)
    signals = {name: number % 2 for number, name in enumerate(shuffled)}
    order = cycle(victims or (*shuffled, *shuffled))
    found = []
    at = every_minutes / 2
    turn: Counter[str] = Counter()
    if not victims:
        found.append(Restart(at * 60, ALL, signal.SIGTERM))
        at += every_minutes
    while at < minutes:
        victim = next(order)
        number = SIGNALS[(signals[victim] + turn[victim]) % 2]
        turn[victim] += 1
        found.append(Restart(at * 60, victim, number))
        at += every_minutes
    return found


def missing() -> str:
    """Return the missing prerequisites."""
    lacking = [] if redis_server.find() else ["redis-server"]
    return ", ".join([*lacking, *filter(None, [java.missing()])])


def run(
    directory: Path,
    minutes: float,
    dice: Random,
    *,
    rate: float | None = None,
    restart_minutes: float = RESTART_MINUTES,
    victims: Sequence[str] = (),
    keep: Path | None = None,
    beside: Callable[[Appliance], None] = lambda _appliance: None,
    say: Callable[[str], None] = lambda text: None,
) -> Figures:
    """Run a soak; without a rate, at a part of the rate found by a short calibration.

    `keep` is the file for the history of a failed part; `beside` is called when the appliance is
    up.
    """
    restarts = restarts_of(minutes, restart_minutes, dice, victims)
    part_seconds = min(SEGMENT_SECONDS_MAX, restart_minutes * 60)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        soak = Soak(directory, minutes, dice, keep, say)
        return soak.run(rate, part_seconds, restarts, beside)
    finally:
        sys.setswitchinterval(before)
