"""Celery tasks for reports; they validate their arguments, IDs and names again."""

from __future__ import annotations

import logging
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import redis
from celery.signals import worker_init, worker_ready, worker_shutting_down
from django.db import DatabaseError, connections
from django.utils import timezone
from django_celery_beat.models import PeriodicTask
from kombu.exceptions import OperationalError

from broker_core.isolation import isolated
from console.celery import app
from console.data.reports import schedules
from console.data.reports.models import (
    LOST_AFTER_S,
    LOST_SENTENCE,
    NOT_STARTED_SENTENCE,
    QUEUED_SECONDS_MAX,
    RUNS_KEPT,
    SENTENCE_CHARS_MAX,
    WORKING,
    ReportRun,
    RunState,
)
from console.data.reports.notifications import result_of
from console.data.reports.runner import Runner, persistently, remove_leftovers
from console.observe.alerts.result_delivery import queue_result
from console.processes import signal_group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from celery import Task

logger = logging.getLogger(__name__)

LOST_CHECK_S = LOST_AFTER_S / 2
STOPPED_SENTENCE = "The worker was stopped while it ran this report. Run the report again."
AGAIN = " again"
"""Suffix of the slot of a run that replaces one whose worker died; there is at most one."""


@app.task(bind=True, name="console.reports.run_report")
def run_report(self: Task[..., None], run_id: int) -> None:
    """Run a queued report; a second delivery of the message does nothing."""
    run = persistently(lambda: ReportRun.objects.filter(pk=int(run_id)).first())
    if run is None:
        logger.warning("report run not found run=%s", run_id)
        return
    perform(run, worker=str(self.request.hostname or ""))
    if run.state == RunState.DONE and run.schedule is not None:
        queue_result(schedules.channels_of(run.schedule), lambda: result_of(run))


def queue(run: ReportRun) -> str:
    """Queue a run; if that fails, mark it as failed and return why, else ""."""
    try:
        # No retries: a page must not wait for Redis while it is down.
        run_report.apply_async(args=(run.pk,), expires=QUEUED_SECONDS_MAX, retry=False)
    except (OperationalError, redis.RedisError, OSError) as error:
        sentence = f"Couldn't queue the report: {error}"[:SENTENCE_CHARS_MAX]
        run.move(
            RunState.FAILED,
            among=(RunState.QUEUED,),
            finished_at=timezone.now(),
            failure=sentence,
        )
        return sentence
    return ""


@app.task(bind=True, name=schedules.SCHEDULED_TASK)
def run_scheduled_report(
    self: Task[..., None],
    report: str,
    parameters: dict[str, Any] | None = None,
    catch_up: bool = True,
    channels: Sequence[int] = (),
) -> None:
    """Run a schedule's report once per slot, unless its last run is still active.

    Without `catch_up`, times that passed while beat or every worker was down are skipped. The
    results
    are sent to the channels.
    """
    persistently(mark_lost)
    sender = (self.request.headers or {}).get("periodic_task_name") or self.request.get(
        "periodic_task_name"
    )
    schedule = PeriodicTask.objects.filter(name=sender, task=schedules.SCHEDULED_TASK).first()
    if schedule is not None and ReportRun.objects.active().filter(schedule=schedule).exists():
        logger.warning("slot skipped, the last run is still active schedule=%s", schedule.name)
        return
    if schedule is not None and not catch_up and schedules.is_late(schedule, timezone.now()):
        logger.warning("slot skipped, its time has passed schedule=%s", schedule.name)
        return
    slot = None if schedule is None else schedules.slot(schedule, timezone.now())
    wanted = {"report": report, "parameters": parameters or {}, "schedule": schedule}
    run, is_new = persistently(
        lambda: (
            (ReportRun.objects.create(**wanted), True)
            if slot is None
            else ReportRun.objects.get_or_create(slot=slot, defaults=wanted)
        )
    )
    if not is_new:
        logger.warning("slot ran already slot=%s run=%s", slot, run.pk)
        return
    perform(run, worker=str(self.request.hostname or ""))
    if run.state == RunState.DONE:
        queue_result(channels, lambda: result_of(run))
    forget_old_runs()


def perform(run: ReportRun, *, worker: str) -> None:
    def take() -> bool:
        now = timezone.now()
        return run.move(
            RunState.STARTING,
            among=(RunState.QUEUED,),
            started_at=now,
            heartbeat_at=now,
            worker=worker[:200],
            stage="starting",
        )

    taken = persistently(take)
    if not taken:
        logger.warning("report run already started run=%s state=%s", run.pk, run.state)
        return
    try:
        Runner(run).run()
    except Exception:
        # The boundary: after any failure here, the page must not show a run that never ends.
        logger.exception("report run failed run=%s", run.pk)
        run.move(
            RunState.FAILED,
            among=WORKING,
            finished_at=timezone.now(),
            failure="The worker failed unexpectedly. See its log for details.",
        )


def mark_lost(*, restarted: str = "") -> int:
    """Fail the runs whose worker is gone, end their programs, delete their output.

    `restarted` is a worker that has just started, so its earlier runs are lost. Returns the number
    of
    lost runs.
    """
    marked = 0
    lost = ReportRun.objects.lost(timezone.now())
    if restarted:
        lost |= ReportRun.objects.filter(state__in=WORKING, worker=restarted)
    for run in lost:
        with isolated("marking a run that lost its worker", run.pk) as one:
            marked += _mark_lost(run)
        if isinstance(one.error, DatabaseError):
            raise one.error
    if marked:
        logger.warning("reports lost their worker runs=%d", marked)
    remove_leftovers()
    return marked


def _mark_lost(run: ReportRun) -> bool:
    process = run.process
    was_queued = run.state == RunState.QUEUED
    is_moved = run.move(
        RunState.FAILED,
        among=(RunState(run.state),),
        finished_at=run.heartbeat_at or timezone.now(),
        process=None,
        failure=NOT_STARTED_SENTENCE if was_queued else LOST_SENTENCE,
    )
    signal_group(process, signal.SIGKILL)
    return is_moved


def requeue_lost_runs() -> int:
    """Requeue scheduled runs that ended with their worker, once each; return the number.

    Nobody watches a schedule, so the report for that time would simply be missing.
    """
    now = timezone.now()
    lost = ReportRun.objects.filter(
        state=RunState.FAILED,
        failure__in=(LOST_SENTENCE, STOPPED_SENTENCE),
        schedule__enabled=True,
        slot__isnull=False,
        created_at__gt=now - timedelta(seconds=QUEUED_SECONDS_MAX),
    ).exclude(slot__endswith=AGAIN)
    count = 0
    for run in lost.select_related("schedule", "schedule__crontab", "schedule__interval"):
        with isolated("repeating a run", run.pk) as one:
            count += _run_again(run, now)
        if isinstance(one.error, DatabaseError):
            raise one.error
    return count


def _run_again(run: ReportRun, now: datetime) -> bool:
    schedule = run.schedule
    catches_up = schedules.arguments(schedule).get("catch_up", True)
    if not catches_up and schedules.is_late(schedule, now):
        return False
    again, is_new = ReportRun.objects.get_or_create(
        slot=f"{run.slot}{AGAIN}",
        defaults={"report": run.report, "parameters": run.parameters, "schedule": schedule},
    )
    if is_new:
        logger.warning("run queued again, its worker ended slot=%s", run.slot)
        queue(again)
    return bool(is_new)


def forget_old_runs() -> None:
    """Delete all but the newest RUNS_KEPT runs."""
    kept = ReportRun.objects.order_by("-created_at", "-id").values_list("pk", flat=True)
    oldest_kept = list(kept[RUNS_KEPT - 1 : RUNS_KEPT])
    if oldest_kept:
        ReportRun.objects.filter(pk__lt=oldest_kept[0]).exclude(
            state__in=[RunState.QUEUED, *WORKING]
        ).delete()


@worker_init.connect
def on_worker_init(**_: object) -> None:
    """Requeue the tasks of a killed worker.

    Redis itself would only do this after hours. Tasks of other workers are requeued too; they are
    skipped when they turn out to be taken.
    """
    try:
        with app.connection_for_write() as connection:
            requeue_tasks(connection.default_channel)
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("tasks of a killed worker not requeued error=%s", error)


def requeue_tasks(channel: Any) -> None:
    unacknowledged = channel.qos
    with channel.conn_or_acquire() as client:
        for tag in client.zrange(unacknowledged.unacked_index_key, 0, -1):
            unacknowledged.restore_by_tag(tag, client)


@worker_ready.connect
def on_worker_ready(sender: Any = None, **_: object) -> None:
    mark_lost(restarted=str(getattr(sender, "hostname", "")))
    requeue_lost_runs()
    timer = getattr(sender, "timer", None)
    if timer is not None:
        # A process of this worker's pool can be killed while the worker itself survives.
        timer.call_repeatedly(LOST_CHECK_S, look_for_lost)


def look_for_lost() -> None:
    try:
        mark_lost()
        requeue_lost_runs()
    except Exception:
        logger.exception("lost report runs not checked")
    finally:
        # Processes that the pool forks later must not share this connection.
        connections.close_all()


@worker_shutting_down.connect
def on_worker_shutting_down(sender: str, **_: object) -> None:
    """End this worker's reports cleanly; otherwise the shutdown waits minutes for them."""
    ReportRun.objects.filter(state__in=WORKING, worker=sender).update(stop_reason=STOPPED_SENTENCE)
