"""kill -9 of each process of an appliance, one after the other, with clients and a schedule.

The schedule creates a report each minute. At the end the clients' history must be correct, each
minute must have had its report, no minute may have two finished ones, and each process must have
restarted automatically.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import msgspec

from console.observe.history.database import SqliteDatabase
from console.observe.history.status import STATUS, Status
from console.observe.history.store import HistoryStore
from deploy.machine import java, redis_server
from tests.support.appliance import Appliance, Visitor
from tests.support.ports import accepts
from tests.support.processes import is_alive
from tests.support.waiting import until
from tools.faults.appliance_clients import TOPIC, ApplianceClients
from tools.faults.checker import Report

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tools.faults.real_clients import Programs

JAVA = "java"
SUPERVISOR = "supervisor"
VICTIMS = (
    *("web", "collector", "pipeline", "worker", "beat", "redis", "broker"),
    *(JAVA, SUPERVISOR),
)
BACK_SECONDS_MAX = 180.0
RUN_SECONDS_MAX = 300.0
FIRST_PAUSE_SECONDS = 2.0
MAKERS = ("beat", "pipeline", "redis", SUPERVISOR)
"""A schedule needs these to run; a minute without one of them gets no report."""
READY_WORDS = {
    "pipeline": "pipeline standing by",
    "worker": " ready.",
    "beat": "beat: Starting",
}
WORKING = ("starting", "running", "writing")
MAKE_SCHEDULE = """
import json
from console.data.reports import schedules
from django_celery_beat.models import PeriodicTask
schedule = PeriodicTask(
    name="each minute",
    task=schedules.SCHEDULED_TASK,
    kwargs=json.dumps({"report": "queues", "parameters": {"hours": 1}}),
)
schedules.set_cron(schedule, "* * * * *", "UTC")
"""
RAISED = re.compile(
    r"^\w+ +\|  (?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Empty|Lost)\b.*$", re.MULTILINE
)
"""The last line of a traceback as the terminal shows it: indented, after the process name."""
OF_THIS_RUN = re.compile(r"redis|kombu|database is locked|Connection|BrokenPipe|WorkerLost")
RUNS = """
SELECT slot, state, failure, started_at, finished_at, process FROM reports_reportrun
JOIN django_celery_beat_periodictask schedule ON schedule.id = schedule_id
WHERE slot IS NOT NULL AND schedule.name = 'each minute' ORDER BY reports_reportrun.id
"""


@dataclass(frozen=True)
class Run:
    """A row of the console's table of runs."""

    slot: str
    state: str
    failure: str
    started_at: datetime
    finished_at: datetime
    pid: int | None

    @property
    def minute(self) -> datetime:
        text = self.slot.partition("@")[2].partition(" ")[0]
        return datetime.fromisoformat(text)


@dataclass
class Findings:
    """The results of the kills, with the seconds until each process worked again."""

    history: Report = field(default_factory=Report)
    back_seconds: dict[str, list[float]] = field(default_factory=dict)
    runs: int = 0
    done: int = 0
    run_again: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        back = " ".join(
            f"{victim}={max(seconds):.1f}s" for victim, seconds in sorted(self.back_seconds.items())
        )
        return (
            f"{self.history}\nruns={self.runs} done={self.done} run_again={self.run_again} "
            f"back_at_most: {back} wrong={self.wrong[:20]}"
        )


class Killing:
    """One appliance and the kills of its processes."""

    def __init__(
        self,
        directory: Path,
        dice: Random,
        programs: Programs | None,
        say: Callable[[str], None],
    ) -> None:
        # On a busy machine an ingest that starts Spark takes longer than the schedule's minute.
        self._appliance = Appliance(directory, TREBUCHET_PIPELINE_ENGINE="arrow")
        self._clients = ApplianceClients(self._appliance, directory / "clients", programs)
        self._dice = dice
        self._say = say
        self._away: list[tuple[datetime, datetime]] = []
        self.findings = Findings()

    def run(self, rounds: int) -> Findings:
        appliance = self._appliance
        appliance.start()
        try:
            self._clients.start()
            visitor = Visitor(appliance.url)
            visitor.sign_in()
            until(lambda: self._is_sampled(0), "a first sample", seconds=BACK_SECONDS_MAX)
            appliance.in_django(MAKE_SCHEDULE)
            self._clients.until_working()
            for _ in range(rounds):
                victims = list(VICTIMS)
                self._dice.shuffle(victims)
                for victim in victims:
                    self._kill(victim, visitor)
            self._redis_hangs(visitor)
            self._database_is_locked(visitor)
            self._clients.rest()
            self._wait_for_run(lambda one: one.state == "done", "a report after all faults")
            self._check_runs()
            self.findings.history = self._clients.judge()
            self.findings.wrong += map(str, self.findings.history.findings)
            self.findings.wrong += self._clients.refused()
        finally:
            self._clients.end()
            code = appliance.stop()
        if code != 0:
            self.findings.wrong.append(f"the appliance ended with {code}")
        self.findings.wrong += [
            f"a traceback unrelated to this run's faults: {line}"
            for line in RAISED.findall(appliance.words)
            if not OF_THIS_RUN.search(line)
        ]
        return self.findings

    def _kill(self, victim: str, visitor: Visitor) -> None:
        if victim == JAVA:
            self._kill_java()
            return
        if victim == "pipeline":
            # The kill comes in the middle of its work.
            self._wait_for_run(lambda one: one.state in WORKING, "a running report")
        else:
            time.sleep(self._dice.uniform(0, FIRST_PAUSE_SECONDS))
        ready = self._times_ready(victim)
        broker = self._pid_of("broker")
        began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
        os.kill(self._pid_of(victim), signal.SIGKILL)
        # A killed broker is recorded by the killer; after a supervisord kill its broker ends a
        # little later.
        is_noted = victim not in ("broker", SUPERVISOR)

        def is_back() -> bool:
            nonlocal is_noted
            if not is_noted and not is_alive(broker):
                is_noted = True
                self._clients.note_crash()
            return self._times_ready(victim) > ready and self._serves(victim, began_ms, visitor)

        until(is_back, f"{victim} to restart", seconds=BACK_SECONDS_MAX)
        if victim in MAKERS:
            self._away.append((datetime.fromtimestamp(began_ms / 1000, UTC), datetime.now(UTC)))
        self._note(victim, time.monotonic() - began)

    def _pid_of(self, victim: str) -> int:
        if victim == SUPERVISOR:
            return int((self._appliance.data / "run" / "supervisord.pid").read_text())
        return self._appliance.pid_of(victim)

    def _kill_java(self) -> None:
        """Kill a running report's Java process: the run fails, and the next gets a new Java."""
        found = self._wait_for_run(
            lambda one: one.state in WORKING and bool(_javas_of(one)), "a report with its Java"
        )
        began = time.monotonic()
        for pid in _javas_of(found):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait_for_run(
            lambda one: one.slot == found.slot and one.state not in WORKING,
            "the report without its Java to end",
        )
        self._note(JAVA, time.monotonic() - began)

    def _note(self, victim: str, seconds: float) -> None:
        self.findings.back_seconds.setdefault(victim, []).append(seconds)
        self._say(f"{victim} killed, restarted after {seconds:.1f} s")

    def _redis_hangs(self, visitor: Visitor) -> None:
        """Stop Redis over the start of a minute, when beat sends tasks."""
        now = datetime.now(UTC)
        time.sleep(max(0.0, 55 - now.second))
        self._appliance.pause("redis")
        try:
            until(
                lambda: "Redis" in visitor.read("/reports/health/"),
                "the page to report that Redis isn't responding",
                seconds=BACK_SECONDS_MAX,
            )
            time.sleep(10)
        finally:
            self._appliance.resume("redis")
        until(
            lambda: "Redis" not in visitor.read("/reports/health/"),
            "the page to stop reporting it",
            seconds=BACK_SECONDS_MAX,
        )

    def _database_is_locked(self, visitor: Visitor) -> None:
        """Lock the console's database for longer than any process waits for it."""
        path = self._appliance.data / "console.sqlite3"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            until(lambda: _locks(database), "a lock on the database", seconds=BACK_SECONDS_MAX)
            try:
                visitor.post("/reports/start/", report="queues", **{"queues-hours": "1"})
            except HTTPError as error:
                page = error.read().decode()
                if error.code != 503 or "has locked the console&#x27;s database" not in page:
                    self.findings.wrong.append(f"a locked database: {error.code} {page[:2000]}")
            else:
                self.findings.wrong.append("the locked database was written to")
            database.execute("ROLLBACK")
        if TOPIC not in visitor.read("/topics/"):
            self.findings.wrong.append("the page with a locked database")

    def _serves(self, victim: str, began_ms: int, visitor: Visitor) -> bool:
        with contextlib.suppress(OSError):
            if victim == "web":
                return TOPIC in visitor.read("/topics/")
            if victim == "collector":
                return self._is_sampled(began_ms)
            if victim in ("redis", "pipeline", "worker"):
                return "banner" not in visitor.read("/reports/health/")
            if victim == SUPERVISOR:
                each = ("web", "collector", "pipeline", "worker", "broker")
                return all(self._serves(one, began_ms, visitor) for one in each)
            return victim != "broker" or accepts(self._appliance.port)
        return False

    def _times_ready(self, victim: str) -> int:
        """Return how often a process logged that it was ready, or was started."""
        logs = self._appliance.data / "logs"
        if victim in READY_WORDS:
            return (logs / f"{victim}.log").read_text(errors="replace").count(READY_WORDS[victim])
        log = (logs / "supervisord.log").read_text()
        if victim == SUPERVISOR:
            return self._appliance.words.count("Everything is running again.")
        return len(re.findall(rf"spawned: '{victim}'", log))

    def _is_sampled(self, since_ms: int) -> bool:
        path = self._appliance.data / "history.sqlite3"
        if not path.exists():
            return False
        database = SqliteDatabase(path)
        try:
            data = HistoryStore(database).noted(STATUS)
        finally:
            database.close()
        status = None if data is None else msgspec.json.decode(data, type=Status)
        return status is not None and not status.problems and status.at_ms > since_ms

    def _runs(self) -> list[Run]:
        path = self._appliance.data / "console.sqlite3"
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(RUNS).fetchall()
        now = datetime.now(UTC)
        return [
            Run(
                slot,
                state,
                failure,
                _moment(started_at) or now,
                _moment(finished_at) or now,
                json.loads(process)["pid"] if process and process != "null" else None,
            )
            for slot, state, failure, started_at, finished_at, process in rows
        ]

    def _wait_for_run(self, matches: Callable[[Run], bool], what: str) -> Run:
        since = datetime.now(UTC) - timedelta(minutes=1)
        found: list[Run] = []

        def is_there() -> bool:
            found[:] = [one for one in self._runs() if one.minute >= since and matches(one)]
            return bool(found)

        until(is_there, what, seconds=RUN_SECONDS_MAX)
        return found[-1]

    def _check_runs(self) -> None:
        """Compare the runs with the minutes since the first of them."""
        runs, findings = self._runs(), self.findings
        findings.runs = len(runs)
        findings.done = sum(one.state == "done" for one in runs)
        findings.run_again = sum(one.slot.endswith(" again") for one in runs)
        for one in runs:
            if one.state == "failed" and not one.failure:
                findings.wrong.append(f"{one.slot} failed without a reason")
        done = [one.minute for one in runs if one.state == "done"]
        findings.wrong += [f"{minute} ran twice" for minute in {*done} if done.count(minute) > 1]
        had = {one.minute for one in runs}
        minute, last = min(had), max(had)
        while minute < last:
            # A run that is still going at its next scheduled time isn't started twice.
            is_taken = any(
                one.minute < minute
                and one.started_at <= minute + timedelta(minutes=1)
                and one.finished_at >= minute
                for one in runs
            )
            is_taken |= any(
                began <= minute and minute + timedelta(minutes=1) <= ended
                for began, ended in self._away
            )
            if minute not in had and not is_taken:
                findings.wrong.append(f"{minute} has no run")
            minute += timedelta(minutes=1)
        lost = [one for one in runs if "worker" in one.failure and not one.slot.endswith(" again")]
        for one in lost:
            if not any(each.slot == f"{one.slot} again" for each in runs):
                findings.wrong.append(f"{one.slot} was lost and not repeated")


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


def _locks(database: sqlite3.Connection) -> bool:
    try:
        database.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    return True


def _javas_of(run: Run) -> list[int]:
    """Return the pids of Java in the process group of a report's program."""
    found = []
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(each.name)
            if (each / "comm").read_text().strip() == JAVA and os.getpgid(pid) == run.pid:
                found.append(pid)
    return found


def missing() -> str:
    """Return the missing prerequisites."""
    lacking = [] if redis_server.find() else ["redis-server"]
    return ", ".join([*lacking, *filter(None, [java.missing()])])


def run(
    directory: Path,
    rounds: int,
    dice: Random,
    *,
    programs: Programs | None = None,
    say: Callable[[str], None],
) -> Findings:
    """Kill each process of an appliance `rounds` times.

    With `programs`, RocketMQ's own clients work next to the raw ones.
    """
    return Killing(directory, dice, programs, say).run(rounds)
