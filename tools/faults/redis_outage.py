"""Stop Redis for minutes: only reports wait, and they resume when it's back.

A report that was due meanwhile is created once; retries leak nothing. Clients send and read all
the time, and their history must be correct.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from websockets.sync.client import connect
from websockets.typing import Origin

from console.celery import REDIS_TRIED_EVERY_S
from deploy.machine import java, redis_server
from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.collector_state import sampled_at
from tests.support.long_timeouts import PATIENCE_S
from tests.support.processes import status_of
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults.appliance_clients import ApplianceClients
from tools.faults.checker import Report

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from tools.faults.real_clients import Programs

TOPIC = "without-redis"
SECONDS = 300.0
GONE_SECONDS = 75.0
"""The default; Celery's own backoff would have reached 18 s by then."""
LOOK_SECONDS = 5.0
MAKING_SECONDS = 30
"""Longer than it takes to create a schedule that beat has loaded."""
AFTER_DUE = timedelta(seconds=10)
SETTLED_SECONDS = 25.0
BACK_SECONDS = 10.0
"""Recovery time on an idle machine."""
PROCESSES = ("web", "collector", "worker", "beat")
GROWTH_MIB_MAX = 16.0
GROWTH_DESCRIPTORS_MAX = 20
"""A leak would be 25 or more. A thread that opens SQLite for the first time takes three."""
GONE = "isn&#x27;t responding. Reports can&#x27;t start until it does."
BANNER = 'class="banner"'
SENT_BEFORE, DUE_MEANWHILE = "sent before", "due meanwhile"
SENT = "schedule sent schedule="
MAKE_SCHEDULES = """
import json
from datetime import timedelta
from console.data.reports import schedules
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask
schedule = PeriodicTask(
    name="{DUE_MEANWHILE}",
    task=schedules.SCHEDULED_TASK,
    kwargs=json.dumps({{"report": "queues", "parameters": {{"hours": 1}}}}),
)
schedules.set_cron(schedule, "{cron}", "UTC")
days, _ = IntervalSchedule.objects.get_or_create(every=1, period="days")
PeriodicTask.objects.create(
    name="{SENT_BEFORE}",
    task="console.reports.run_report",
    args="[0]",
    interval=days,
    last_run_at=timezone.now() - timedelta(days=2),
)
"""
WAIT_TOLD = re.compile(r"[Tt]rying again in (\d+\.\d+) seconds")


@dataclass
class Findings:
    """A run's results; sizes are private memory in MiB and descriptors, by process.

    Attributes:
        gone: seconds without Redis.
        pages: seconds from its return until pages stopped mentioning the outage.
        made: seconds until the overdue report was created.
        history: the checker's result for all clients.
    """

    gone: float = 0.0
    pages: float = 0.0
    made: float = 0.0
    history: Report = field(default_factory=Report)
    at_first: dict[str, tuple[float, int]] = field(default_factory=dict)
    at_last: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        grown = " ".join(
            f"{name}={memory:.1f}->{self.at_last[name][0]:.1f}MiB"
            for name, (memory, _) in self.at_first.items()
        )
        return (
            f"gone={self.gone:.0f}s pages_back={self.pages:.1f}s report_made={self.made:.1f}s "
            f"{grown}\n{self.history}"
        )


class Redis:
    """A Redis started by the run instead of the appliance, so that only the run restarts it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        binary = redis_server.find()
        assert binary is not None
        self.socket = directory / "redis.sock"
        self._command = redis_server.command(binary, self.socket, directory)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        until(lambda: redis_server.answers(self.socket), "Redis to respond", seconds=SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.socket.unlink(missing_ok=True)


def sees_live(appliance: Appliance, visitor: Visitor) -> bool:
    """Open the live page's stream, send a message, and wait for a frame with it."""
    url = appliance.url.replace("http:", "ws:", 1) + "/live/stream/"
    with connect(
        url,
        origin=Origin(appliance.url),
        additional_headers={"Cookie": visitor.cookies},
        proxy=None,
    ) as stream:
        stream.send(json.dumps({"type": "filter", "topic": TOPIC, "sample": 1}))
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            send(appliance.port)
            try:
                frame = stream.recv(1.0)
            except TimeoutError:
                continue
            if TOPIC in str(frame) and '"events"' in str(frame):
                return True
    return False


def send(port: int) -> None:
    with RawClient(port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), b"on")
    assert answer.code == raw_remoting.SUCCESS, answer


def sizes(appliance: Appliance) -> dict[str, tuple[float, int]]:
    """Return private memory in MiB and descriptors of each process."""
    pids = {name: appliance.pid_of(name) for name in PROCESSES}
    return {
        name: (
            int(status_of(pid)["RssAnon"].split()[0]) / 1024,
            len(list(Path(f"/proc/{pid}/fd").iterdir())),
        )
        for name, pid in pids.items()
    }


def runs(data: Path) -> list[tuple[str, str, datetime]]:
    """Return slot, state and creation time of each scheduled run."""
    uri = f"{(data / 'console.sqlite3').as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        rows = database.execute(
            "SELECT slot, state, created_at FROM reports_reportrun WHERE slot IS NOT NULL"
        ).fetchall()
    return [
        (slot, state, datetime.fromisoformat(at).replace(tzinfo=UTC)) for slot, state, at in rows
    ]


def schedule_for_the_next_minute(appliance: Appliance) -> datetime:
    """Schedule a report for one minute of the day; return when beat has loaded the schedule.

    Beat has sent another task by then, so that it has an open connection that breaks.
    """
    now = datetime.now(UTC)
    due = (now + timedelta(seconds=60 + MAKING_SECONDS)).replace(second=0, microsecond=0)
    appliance.in_django(
        MAKE_SCHEDULES.format(
            cron=f"{due.minute} {due.hour} * * *",
            DUE_MEANWHILE=DUE_MEANWHILE,
            SENT_BEFORE=SENT_BEFORE,
        )
    )
    until(
        lambda: SENT + SENT_BEFORE in log_of(appliance, "beat"),
        "beat to load the schedules",
        seconds=SECONDS,
    )
    return due


def log_of(appliance: Appliance, name: str) -> str:
    return (appliance.data / "logs" / f"{name}.log").read_text(errors="replace")


def missing() -> str:
    """Return the missing prerequisites."""
    lacking = [] if redis_server.find() else ["redis-server"]
    return ", ".join([*lacking, *filter(None, [java.missing()])])


def run(
    directory: Path,
    gone_seconds: float = GONE_SECONDS,
    *,
    programs: Programs | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Start an appliance, stop Redis, start it again.

    With `programs`, RocketMQ's own clients work next to the raw ones.

    Raises:
        AssertionError: something stops, or doesn't recover.
    """
    with Redis(directory / "redis") as redis:
        appliance = Appliance(
            directory / "appliance",
            # An ingest that starts Spark, ahead of the report in the queue, would be included in
            # the time.
            TREBUCHET_PIPELINE_ENGINE="arrow",
            TREBUCHET_REDIS_URL=redis_server.url(redis.socket),
        )
        clients = ApplianceClients(appliance, directory / "clients", programs)
        appliance.start()
        try:
            clients.start()
            found = _work(appliance, redis, clients, gone_seconds, say)
        finally:
            clients.end()
            code = appliance.stop()
        assert code == 0, appliance.words
        return found


def _work(
    appliance: Appliance,
    redis: Redis,
    clients: ApplianceClients,
    gone_seconds: float,
    say: Callable[[str], None],
) -> Findings:
    visitor, found = Visitor(appliance.url), Findings()
    visitor.sign_in()
    raw_remoting.create_topic(appliance.port, TOPIC, queues=1)
    until(lambda: sampled_at(appliance.data) > 0, "a first sample", seconds=SECONDS)
    until(lambda: BANNER not in visitor.read("/reports/health/"), "a worker", seconds=SECONDS)
    clients.until_working()
    due = schedule_for_the_next_minute(appliance)
    pids = {name: appliance.pid_of(name) for name in PROCESSES}

    redis.kill()
    say("Redis is down")
    gone_at = time.monotonic()
    assert datetime.now(UTC) < due, "a machine too slow for this schedule"
    until(
        lambda: GONE in visitor.read("/reports/health/"), "the page to report it", seconds=SECONDS
    )
    assert visitor.read("/reports/health/").count(BANNER) == 1
    assert sees_live(appliance, visitor)
    time.sleep(max(0.0, gone_at + SETTLED_SECONDS - time.monotonic()))
    found.at_first, sampled_first = sizes(appliance), sampled_at(appliance.data)
    while time.monotonic() < gone_at + gone_seconds or datetime.now(UTC) < due + AFTER_DUE:
        for page in ("/", "/topics/", "/reports/", "/audit/"):
            visitor.read(page)
        send(appliance.port)
        time.sleep(LOOK_SECONDS)
    found.at_last = sizes(appliance)
    assert sampled_at(appliance.data) > sampled_first
    assert sees_live(appliance, visitor)
    assert runs(appliance.data) == []
    found.gone = time.monotonic() - gone_at

    # The last messages are read during the recovery.
    clients.rest()
    redis.start()
    say(f"Redis restarted after {found.gone:.0f} s")
    returned_at, began = datetime.now(UTC), time.monotonic()
    until(
        lambda: BANNER not in visitor.read("/reports/health/"),
        "the pages to show no problem",
        seconds=SECONDS,
    )
    found.pages = time.monotonic() - began
    until(
        lambda: any(state != "queued" for _, state, _ in runs(appliance.data)),
        "the report that was due to run",
        seconds=SECONDS,
    )
    ((slot, _, made_at),) = runs(appliance.data)
    found.made = (made_at - returned_at).total_seconds()

    assert log_of(appliance, "beat").count(SENT + DUE_MEANWHILE) == 1
    assert f"@{due:%Y-%m-%dT%H:%M}" in slot
    assert pids == {name: appliance.pid_of(name) for name in PROCESSES}
    for name, (memory, descriptors) in found.at_first.items():
        at_last = found.at_last[name]
        assert at_last[0] - memory < GROWTH_MIB_MAX, f"{name} grew: {found}"
        assert at_last[1] - descriptors < GROWTH_DESCRIPTORS_MAX, f"{name}: {found.at_last}"
    found.history = clients.judge()
    assert found.history.findings == []
    assert clients.refused() == []
    waits = {float(wait) for wait in WAIT_TOLD.findall(log_of(appliance, "worker"))}
    assert waits == {REDIS_TRIED_EVERY_S}
    return found
