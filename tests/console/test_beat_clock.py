"""Beat with clock changes, by hand and by time zone: each slot has one run.

The real scheduler ticks through hours by a clock of the test; a worker runs its tasks at once.
"""

from __future__ import annotations

import json
import types
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import celery.app.base
import pytest
from django.utils import timezone
from django_celery_beat import schedulers, tzcrontab
from django_celery_beat.models import PeriodicTask

from console.celery import app
from console.data.reports import beat, schedules, tasks
from console.data.reports.models import ReportRun, RunState

if TYPE_CHECKING:
    from datetime import tzinfo

pytestmark = pytest.mark.django_db

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
SLEEP_S = 60.0
"""Beat's maximum sleep here, in place of five seconds."""
TICKS_A_HOUR_MAX = 100
TICK_S = 0.005
"""Duration of a tick: beat wakes up a little early, and polls until the time has come."""


class Clock:
    """A wall clock that can be set, and a monotonic clock that can't."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.monotonic_s = 1_000.0

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.monotonic_s += seconds

    def set_by(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of beat, of its schedules and of the worker."""
    clock = Clock(datetime(2026, 11, 20, 9, 0, 30, tzinfo=UTC))

    class Now(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return clock.now.astimezone(tz) if tz else clock.now.replace(tzinfo=None)

    monkeypatch.setattr(tzcrontab, "datetime", Now)
    monkeypatch.setattr(celery.app.base, "datetime", Now)
    monkeypatch.setattr(
        schedulers, "datetime", types.SimpleNamespace(datetime=Now, timedelta=timedelta)
    )
    monkeypatch.setattr(timezone, "now", lambda: clock.now)
    monkeypatch.setattr(beat, "time", types.SimpleNamespace(monotonic=lambda: clock.monotonic_s))
    return clock


class Beat(beat.Scheduler):
    """Beat with a worker that takes no time."""

    sent: Counter[str]

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **_: Any) -> None:
        if entry.task == schedules.SCHEDULED_TASK:
            self.sent[entry.name] += 1
            headers = {"periodic_task_name": entry.name}
            tasks.run_scheduled_report.apply(kwargs=entry.kwargs, headers=headers, throw=True)
        self.sync()


@pytest.fixture(autouse=True)
def done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    PeriodicTask.objects.all().delete()
    monkeypatch.setattr(Beat, "producer", None)
    # An in-memory database disappears with its connection.
    monkeypatch.setattr(schedulers, "close_old_connections", lambda: None)
    monkeypatch.setattr(tasks, "mark_lost", lambda: 0)
    monkeypatch.setattr(
        tasks,
        "perform",
        lambda run, worker: ReportRun.objects.filter(pk=run.pk).update(state=RunState.DONE),
    )


def started(sleep_s: float = SLEEP_S) -> Beat:
    made = Beat(app=app, max_interval=sleep_s, lazy=False)
    made.sent = Counter()
    return made


def tick_for(made: Beat, clock: Clock, hours: float) -> None:
    """Run beat for some time by the monotonic clock."""
    end, ticks = clock.monotonic_s + hours * 3_600, 0
    while clock.monotonic_s < end:
        clock.pass_s(max(made.tick(), TICK_S))
        ticks += 1
        assert ticks < TICKS_A_HOUR_MAX * (hours + 1), f"beat spins at {clock.now}"


def cron(text: str, zone: str = "UTC") -> PeriodicTask:
    schedule = PeriodicTask(
        name=f"{text} {zone}",
        task=schedules.SCHEDULED_TASK,
        kwargs=json.dumps({"report": "traffic"}),
    )
    schedules.set_cron(schedule, text, zone)
    return schedule


def slots(schedule: PeriodicTask) -> list[str]:
    """Return the times with a run, once per run."""
    runs = ReportRun.objects.filter(schedule=schedule, state=RunState.DONE).order_by("slot")
    return [str(run.slot).partition("@")[2] for run in runs]


@pytest.mark.parametrize(
    ("text", "zone", "began", "expected"),
    [
        # At 02:00 the clock jumps to 03:00, so 02:30 doesn't exist.
        ("30 2 * * *", BERLIN, "2026-03-27T23:00", 3),
        ("15 3 * * *", BERLIN, "2026-03-27T23:00", 3),
        ("0 2 * * *", NEW_YORK, "2026-03-07T05:00", 3),
        # At 03:00 the clock goes back to 02:00, so 02:30 occurs twice.
        ("30 2 * * *", BERLIN, "2026-10-23T22:00", 3),
        ("0 3 * * *", BERLIN, "2026-10-23T22:00", 3),
        ("30 1 * * *", NEW_YORK, "2026-10-31T04:00", 3),
        # By half an hour only.
        ("15 2 * * *", LORD_HOWE, "2026-10-02T14:00", 3),
        ("45 1 * * *", LORD_HOWE, "2026-04-03T13:00", 3),
        # Each elapsed hour has its run.
        ("0 * * * *", BERLIN, "2026-03-28T12:00", 24),
        ("0 * * * *", BERLIN, "2026-10-24T12:00", 24),
        ("*/30 * * * *", NEW_YORK, "2026-11-01T00:00", 48),
    ],
)
def test_each_time_has_one_run_when_the_clocks_of_a_zone_change(
    clock: Clock, text: str, zone: str, began: str, expected: int
) -> None:
    clock.now = datetime.fromisoformat(f"{began}:30+00:00")
    schedule = cron(text, zone)
    hours = 72 if expected == 3 else 24

    # No clock step or schedule change happens meanwhile.
    tick_for(started(sleep_s=3_600), clock, hours)

    found = slots(schedule)
    assert len(found) == len(set(found)) == expected, found


def test_runs_from_before_a_clock_step_back_run_on_time_and_none_twice(
    clock: Clock,
) -> None:
    """An hour ahead, then correct again, like a machine whose clock was wrong at its start."""
    quarters, daily = cron("*/15 * * * *"), cron("45 9 * * *", BERLIN)
    made = started()
    tick_for(made, clock, 0.25)
    assert slots(quarters) == ["2026-11-20T09:15:00Z"]
    clock.set_by(hours=1)
    tick_for(made, clock, 0.25)
    ahead = slots(quarters)
    assert ahead[-1] == "2026-11-20T10:30:00Z"

    clock.set_by(hours=-1)
    tick_for(made, clock, 3)

    # The clock step skipped 09:30, whose last run was caught up.
    hours = [
        "09:15",
        "09:45",
        "10:00",
        "10:15",
        "10:30",
        "10:45",
        "11:00",
        "11:15",
        "11:30",
        "11:45",
        "12:00",
        "12:15",
        "12:30",
    ]
    assert slots(quarters) == [f"2026-11-20T{each}:00Z" for each in hours]
    assert slots(daily) == []


@pytest.mark.parametrize("is_started_again", [False, True])
def test_tomorrows_daily_run_does_not_replace_todays(clock: Clock, is_started_again: bool) -> None:
    schedule = cron("0 12 * * *")
    made = started(sleep_s=900)
    tick_for(made, clock, 0.5)
    clock.set_by(hours=30)
    tick_for(made, clock, 0.1)
    assert slots(schedule) == ["2026-11-21T12:00 UTC"]

    clock.set_by(hours=-30)
    if is_started_again:
        made = started(sleep_s=900)
    tick_for(made, clock, 30)

    assert slots(schedule) == ["2026-11-20T12:00 UTC", "2026-11-21T12:00 UTC"]


def test_a_time_skipped_by_the_clock_is_caught_up_immediately(clock: Clock) -> None:
    schedule = cron("0 10 * * *")
    made = started()
    tick_for(made, clock, 0.5)

    clock.set_by(hours=5)
    tick_for(made, clock, 0.1)

    assert slots(schedule) == ["2026-11-20T10:00 UTC"]
    assert made.sent[schedule.name] == 1


def test_a_time_missed_by_beat_is_caught_up_at_its_start_hours_later(
    clock: Clock,
) -> None:
    schedule = cron("0 10 * * *", NEW_YORK)
    tick_for(started(), clock, 0.1)
    clock.pass_s(11 * 3_600)

    tick_for(started(), clock, 0.1)

    assert slots(schedule) == ["2026-11-20T10:00 America/New_York"]


def test_a_schedule_changed_after_a_clock_step_back_applies_immediately(
    clock: Clock,
) -> None:
    schedule = cron("0 23 * * *")
    made = started()
    tick_for(made, clock, 0.1)
    clock.set_by(hours=-3)
    tick_for(made, clock, 0.1)

    schedules.set_cron(schedule, "30 6 * * *", "UTC")
    tick_for(made, clock, 1)

    assert slots(schedule) == ["2026-11-20T06:30 UTC"]


def test_an_unreadable_schedule_does_not_affect_the_others_times(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, odd = cron("0 * * * *"), cron("*/15 * * * *"), cron("*/30 * * * *")
    PeriodicTask.objects.filter(pk=bad.pk).update(headers="no JSON")
    cron_at = schedules.cron_at

    def fail_for_one(crontab: Any, now: datetime) -> Any:
        if crontab.minute == "*/30":
            raise KeyError("a zone that no longer exists")
        return cron_at(crontab, now)

    monkeypatch.setattr(schedules, "cron_at", fail_for_one)

    tick_for(started(), clock, 2.5)

    assert slots(good) == ["2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z"]
    assert slots(bad) == slots(odd) == []
