"""A report run: its states, its program, its end, whichever process dies first."""

from __future__ import annotations

import importlib
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.core.cache import cache
from django.db import OperationalError
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from console.data.pipeline.session import GRACE_S, session
from console.data.reports import catalog, progress, results, runner, schedules, tasks
from console.data.reports.models import (
    LOG_TAIL_CHARS_MAX,
    LOST_AFTER_S,
    LOST_SENTENCE,
    NOT_STARTED_SENTENCE,
    QUEUED_SECONDS_MAX,
    RESULT_ROWS_MAX,
    WORKING,
    ReportRun,
    RunState,
)
from console.processes import identity, is_running, start_ticks
from tests.support.waiting import SECONDS, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db

PROGRAM = Path(__file__).with_name("fake_analytics.py")


@pytest.fixture(autouse=True)
def program(settings: Settings, tmp_path: Path) -> Iterator[None]:
    cache.clear()
    settings.TREBUCHET_DATA = tmp_path
    settings.TREBUCHET_LAKE = ""
    settings.TREBUCHET_ANALYTICS_COMMAND = [sys.executable, str(PROGRAM)]
    yield
    session.end()


def perform(topic: str = "orders") -> ReportRun:
    run = ReportRun.objects.create(report="traffic", parameters={"topic": topic})
    tasks.perform(run, worker="test")
    run.refresh_from_db()
    return run


def test_a_run_is_done_with_its_rows_and_totals() -> None:
    run = perform()

    assert run.state == RunState.DONE
    assert run.result is not None
    assert run.result["totals"] == {"messages": "246", "bytes": "912"}
    assert [row["by"] for row in run.result["breakdown"]["rows"]] == ["orders-0", "orders-1"]
    assert (run.rows_read, run.bytes_read, run.progress_done) == (20, 200, 4)
    assert "Spark says hello" in run.log_tail
    assert run.process is None


def test_the_output_directory_is_removed_afterwards(tmp_path: Path) -> None:
    perform()

    assert not list((tmp_path / "reports").iterdir())


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.DONE], ids=["taken", "ended"])
def test_a_locked_database_is_waited_for_when_data_must_not_be_lost(
    monkeypatch: pytest.MonkeyPatch, state: RunState
) -> None:
    failed = has_locked(monkeypatch, state, times=3)
    monkeypatch.setattr(runner, "DATABASE_PAUSE_S", 0.0)

    assert perform().state == RunState.DONE
    assert failed == [state] * 3


def test_a_program_continues_while_the_database_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = has_locked(monkeypatch, RunState.RUNNING, times=3, cancel=True)
    monkeypatch.setattr(runner, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(runner, "CANCEL_POLL_S", 0.0)

    assert perform("hangs").state == RunState.CANCELLED
    assert failed == [RunState.RUNNING] * 3


def has_locked(
    monkeypatch: pytest.MonkeyPatch, state: RunState, *, times: int, cancel: bool = False
) -> list[RunState]:
    """Make the database locked for the next runs that move to a state; return the failures.

    Finally a user may try to cancel.
    """
    failed: list[RunState] = []
    move = ReportRun.move

    def moves(run: ReportRun, to: RunState, **values: Any) -> bool:
        if to == state and len(failed) < times:
            failed.append(to)
            if cancel and len(failed) == times:
                ReportRun.objects.filter(pk=run.pk).update(cancel_requested=True)
            raise OperationalError("database is locked")
        return move(run, to, **values)

    monkeypatch.setattr(ReportRun, "move", moves)
    return failed


def test_requests_waiting_for_the_database_give_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "DATABASE_SECONDS_MAX", 0.0)

    def fails() -> None:
        raise OperationalError("gone")

    with pytest.raises(OperationalError, match="gone"):
        runner.persistently(fails)


def test_a_failing_programs_reason_is_quoted() -> None:
    run = perform("fails")

    assert (run.state, run.failure) == (RunState.FAILED, "The store directory is empty.")


def test_a_program_that_crashes_fails_with_the_end_of_its_log() -> None:
    run = perform("crashes")

    assert run.state == RunState.FAILED
    assert "code 3, saying: java.lang.OutOfMemoryError" in run.failure
    # It only failed that job.
    assert perform().state == RunState.DONE


def test_a_result_of_an_unexpected_form_fails_the_run() -> None:
    run = perform("broken")

    assert run.state == RunState.FAILED
    assert "isn't valid" in run.failure


def test_a_program_that_cannot_be_started_fails_the_run(settings: Settings) -> None:
    settings.TREBUCHET_ANALYTICS_COMMAND = ["/nonexistent/program"]

    run = perform()

    assert run.state == RunState.FAILED
    assert "start the analytics program /nonexistent/program: No such file" in run.failure


def test_a_long_result_is_truncated_and_marked() -> None:
    run = perform("many")

    assert run.result is not None
    assert (len(run.rows), run.result_rows, run.result_is_cut) == (RESULT_ROWS_MAX, 25_000, True)
    sums = [int(row["sums"][0]) for row in run.result["breakdown"]["rows"]]
    assert sum(sums) == 25_000 * 123


def test_the_log_is_bounded() -> None:
    run = perform("chats")

    assert run.state == RunState.DONE
    assert len(run.log_tail) <= LOG_TAIL_CHARS_MAX
    assert "line 4999" in run.log_tail
    assert "line 0\n" not in run.log_tail


def test_a_run_is_executed_once_however_often_it_is_delivered() -> None:
    run = perform()
    finished = run.finished_at

    tasks.run_report.run(run.pk)

    run.refresh_from_db()
    assert (run.state, run.finished_at) == (RunState.DONE, finished)


def test_a_deleted_run_does_no_harm() -> None:
    tasks.run_report.run(4711)


def hanging(tmp_path: Path, topic: str = "hangs") -> tuple[ReportRun, threading.Thread, int]:
    """Start a run that never ends automatically; return when its program runs."""
    run = ReportRun.objects.create(report="traffic", parameters={"topic": topic})
    thread = threading.Thread(target=tasks.perform, args=(run,), kwargs={"worker": "test"})
    thread.start()
    pid_file = tmp_path / "reports" / f"run-{run.pk}" / "pid"
    until(lambda: pid_file.is_file() and pid_file.read_text() != "", "the program's pid")
    return run, thread, int(pid_file.read_text())


@pytest.mark.django_db(transaction=True)
def test_cancelling_ends_the_job_and_leaves_the_session_for_the_next(tmp_path: Path) -> None:
    run, thread, pid = hanging(tmp_path)

    ReportRun.objects.filter(pk=run.pk).update(cancel_requested=True)
    thread.join(SECONDS)

    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert session.pid == pid
    assert perform().state == RunState.DONE
    assert session.pid == pid
    # A run that ends at once may be gone before it's measured.
    assert run.memory_bytes > 0


@pytest.mark.django_db(transaction=True)
def test_a_program_that_ignores_its_termination_is_killed_within_three_seconds(
    tmp_path: Path,
) -> None:
    run, thread, pid = hanging(tmp_path, "stubborn")

    ReportRun.objects.filter(pk=run.pk).update(cancel_requested=True)
    thread.join(SECONDS)

    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert start_ticks(pid) is None
    assert runner.CANCEL_POLL_S + GRACE_S < 3


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_shuts_down_ends_its_runs_with_an_explanation(tmp_path: Path) -> None:
    run, thread, pid = hanging(tmp_path)

    tasks.on_worker_shutting_down(sender="test")
    thread.join(SECONDS)

    run.refresh_from_db()
    assert (run.state, run.failure) == (RunState.FAILED, tasks.STOPPED_SENTENCE)
    assert session.pid == pid


def test_a_run_whose_worker_died_is_shown_and_recorded_as_failed() -> None:
    long_ago = timezone.now() - timedelta(seconds=LOST_AFTER_S + 1)
    run = ReportRun.objects.create(
        report="traffic", state=RunState.RUNNING, started_at=long_ago, heartbeat_at=long_ago
    )

    assert (run.shown_state, run.shown_failure) == (RunState.FAILED, LOST_SENTENCE)
    tasks.mark_lost()

    run.refresh_from_db()
    assert (run.state, run.failure) == (RunState.FAILED, LOST_SENTENCE)


@pytest.mark.django_db(transaction=True)
def test_a_returning_worker_fails_the_job_it_was_killed_on(tmp_path: Path) -> None:
    """The row, the program and the output of its run are cleaned up without a visitor."""
    run, thread, pid = hanging(tmp_path)
    output = tmp_path / "reports" / f"run-{run.pk}"

    tasks.mark_lost(restarted="another")
    run.refresh_from_db()
    assert (run.state in WORKING, output.is_dir()) == (True, True)
    tasks.on_worker_ready(sender=SimpleNamespace(hostname="test"))

    run.refresh_from_db()
    assert (run.state, run.failure) == (RunState.FAILED, LOST_SENTENCE)
    thread.join(SECONDS)
    assert start_ticks(pid) is None
    assert not output.exists()


def test_only_a_killed_workers_leftovers_are_removed(tmp_path: Path) -> None:
    working = ReportRun.objects.create(
        report="traffic", state=RunState.RUNNING, heartbeat_at=timezone.now()
    )
    done = ReportRun.objects.create(report="traffic", state=RunState.DONE)
    reports = tmp_path / "reports"
    for name in (f"run-{working.pk}", f"run-{done.pk}", "run-999999", "run-notes", "other"):
        (reports / name).mkdir(parents=True)

    tasks.look_for_lost()

    left = sorted(path.name for path in reports.iterdir())
    assert left == sorted(["other", f"run-{working.pk}", "run-notes"])


def test_a_worker_looks_for_lost_runs_as_long_as_it_lives() -> None:
    repeated: list[tuple[float, object]] = []
    timer = SimpleNamespace(call_repeatedly=lambda *arguments: repeated.append(arguments))

    tasks.on_worker_ready(sender=SimpleNamespace(hostname="test", timer=timer))

    assert repeated == [(LOST_AFTER_S / 2, tasks.look_for_lost)]


def test_the_program_is_told_where_the_log_and_the_lake_are(settings: Settings) -> None:
    settings.TREBUCHET_COMMIT_LOG = "/data/log"
    settings.TREBUCHET_LAKE = "/data/lake"
    settings.TREBUCHET_SPARK_BROKERS = "192.0.2.7:9876 tls=true"

    run = perform()

    where = "--commit-log /data/log --brokers 192.0.2.7:9876 tls=true --lake /data/lake"
    assert where in run.log_tail


def test_a_run_that_no_worker_accepts_within_an_hour_has_failed() -> None:
    run = ReportRun.objects.create(
        report="traffic", created_at=timezone.now() - timedelta(seconds=QUEUED_SECONDS_MAX + 1)
    )

    tasks.mark_lost()

    run.refresh_from_db()
    assert (run.state, run.failure) == (RunState.FAILED, NOT_STARTED_SENTENCE)


def test_a_run_with_a_heartbeat_is_left_alone() -> None:
    run = ReportRun.objects.create(
        report="traffic", state=RunState.RUNNING, heartbeat_at=timezone.now()
    )

    assert tasks.mark_lost() == 0
    assert run.shown_state == RunState.RUNNING


def test_a_process_is_distinguished_from_a_later_one_with_its_pid() -> None:
    ours = identity(1)

    assert is_running(ours)
    assert not is_running({**(ours or {}), "ticks": -5})
    assert not is_running(None)


def default_schedule() -> PeriodicTask:
    """Return the migration's schedule; an earlier transactional test may have flushed it."""
    hourly, _ = CrontabSchedule.objects.get_or_create(minute="0", hour="*", timezone="UTC")
    schedule: PeriodicTask
    schedule, _ = PeriodicTask.objects.get_or_create(
        name="Traffic of the last 24 hours",
        defaults={
            "task": schedules.SCHEDULED_TASK,
            "crontab": hourly,
            "kwargs": '{"report": "traffic"}',
        },
    )
    return schedule


def run_scheduled(schedule: PeriodicTask) -> None:
    tasks.run_scheduled_report.apply(
        kwargs={"report": "traffic", "parameters": {"hours": 24}},
        headers={"periodic_task_name": schedule.name},
        throw=True,
    )


def test_a_slot_runs_once() -> None:
    schedule = default_schedule()

    run_scheduled(schedule)
    run_scheduled(schedule)

    # The second of two a minute apart would have a different slot.
    runs = list(ReportRun.objects.filter(schedule=schedule))
    assert len({run.slot for run in runs}) == len(runs)
    assert all(run.state == RunState.DONE for run in runs)


def test_a_slot_is_skipped_while_the_last_run_is_active() -> None:
    schedule = default_schedule()
    ReportRun.objects.create(
        report="traffic", schedule=schedule, state=RunState.RUNNING, heartbeat_at=timezone.now()
    )

    run_scheduled(schedule)

    assert ReportRun.objects.filter(schedule=schedule).count() == 1


def test_next_runs_follow_the_schedule() -> None:
    schedule = default_schedule()
    now = timezone.now().replace(minute=20, second=0, microsecond=0)

    times = schedules.next_runs(schedule, now)

    first = now.replace(minute=0) + timedelta(hours=1)
    assert times == [first + timedelta(hours=number) for number in range(5)]
    schedule.enabled = False
    assert schedules.next_runs(schedule, now) == []


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 * * * *", "every hour, on the hour (UTC)"),
        ("30 6 * * 1-5", "at 06:30, monday through friday (UTC)"),
    ],
)
def test_a_schedule_is_described_in_words(cron: str, words: str) -> None:
    schedule = default_schedule()

    schedules.set_cron(schedule, cron)

    assert schedules.in_words(schedule).lower() == words.lower()


def test_parameters_are_options_in_the_order_of_the_description() -> None:
    parameters = {"topic": "orders", "hours": 2, "another report's": 1, "group": None}

    command = catalog.words(catalog.reports()["traffic"], parameters, Path("/out"))

    assert command[:1] == ["traffic"]
    assert command[-4:] == ["--hours", "2", "--topic", "orders"]


def test_a_reports_deleted_run_is_explained() -> None:
    run = ReportRun.objects.create(report="yesterdays", parameters={})

    tasks.perform(run, worker="test")

    run.refresh_from_db()
    assert run.failure == "The report yesterdays no longer exists."


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"event":"done","rows":3}', progress.Done(3)),
        (b'{"event":"failed","message":"No."}', progress.Failed("No.")),
        (
            b'{"event":"progress","stage":"s","done":1,"total":-2,"rows":"5","bytes":null}',
            progress.Progress("s", 1, 0, 5, 0),
        ),
        (b"24/11/21 WARN something", None),
        (b"[1]", None),
        (b'{"event":"new"}', None),
    ],
)
def test_a_line_is_an_event_or_a_log_line(line: bytes, event: Any) -> None:
    assert progress.parse(line) == event


def test_a_result_from_before_self_description_is_migrated() -> None:
    migration = importlib.import_module(
        "console.data.reports.migrations.0003_results_describe_themselves"
    )
    row = {"topic": "a", "minute": "2026-11-21T10:00:00Z", "messages": "5", "bytes": "50"}
    old = {
        "rows": [row],
        "messages": "5",
        "bytes": "50",
        "topics": [{"topic": "a", "messages": "5", "bytes": "50"}],
        "topicCount": 1,
        "chart": {
            "stepMinutes": 5,
            "times": [1_795_251_300],
            "series": [{"label": "other topics", "counts": [5]}],
        },
    }
    run = ReportRun.objects.create(report="traffic", state=RunState.DONE, result=old, result_rows=1)

    migration.describe(apps, None)

    run.refresh_from_db()
    assert run.result is not None
    results.check(catalog.report_of(run.result["report"]), run.result)
    assert run.result["breakdown"] == {
        "rows": [{"by": "a", "sums": ["5", "50"]}],
        "count": 1,
    }
    assert run.result["totals"] == {"messages": "5", "bytes": "50", "topics": "1", "rows": "1"}
    assert run.result["chart"] == {
        "stepSeconds": 300,
        "times": [1_795_251_300],
        "series": [{"label": None, "values": [5]}],
    }


def test_a_run_that_cannot_be_marked_as_lost_does_not_affect_others(monkeypatch) -> None:
    long_ago = timezone.now() - timedelta(seconds=LOST_AFTER_S + 1)
    runs = [
        ReportRun.objects.create(
            report="traffic", state=RunState.RUNNING, started_at=long_ago, heartbeat_at=long_ago
        )
        for _ in range(2)
    ]
    move = ReportRun.move

    def fail_for_one(self: ReportRun, *arguments: Any, **values: Any) -> bool:
        if self.pk == runs[0].pk:
            raise KeyError("of a bug")
        return move(self, *arguments, **values)

    monkeypatch.setattr(ReportRun, "move", fail_for_one)

    assert tasks.mark_lost() == 1

    for run in runs:
        run.refresh_from_db()
    assert [run.state for run in runs] == [RunState.RUNNING, RunState.FAILED]
