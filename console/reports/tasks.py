"""The Celery tasks of the reports; arguments are ids and names, checked again here."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Any

from celery.signals import worker_ready, worker_shutting_down
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from console.celery import app
from console.processes import signal_group
from console.reports import catalog, schedules
from console.reports.models import (
    LOST_SENTENCE,
    NOT_TAKEN_SENTENCE,
    RUNS_KEPT,
    WORKING,
    ReportRun,
    RunState,
)
from console.reports.runner import Runner

if TYPE_CHECKING:
    from celery import Task

logger = logging.getLogger(__name__)

STOPPED_SENTENCE = "The worker was stopped while this report ran; start the report again."


@app.task(bind=True, name="console.reports.run_report")
def run_report(self: Task[..., None], run_id: int) -> None:
    """Run a queued report; a second delivery of the same message finds it taken."""
    run = ReportRun.objects.filter(pk=int(run_id)).first()
    if run is None:
        logger.warning("report run is gone: run=%s", run_id)
        return
    perform(run, worker=str(self.request.hostname or ""))


@app.task(bind=True, name=schedules.SCHEDULED_TASK)
def run_scheduled_report(
    self: Task[..., None], report: str, parameters: dict[str, Any] | None = None
) -> None:
    """Run what a schedule asks for, once a slot, and not while its last run still works."""
    if report not in catalog.REPORTS:
        logger.error("a schedule names an unknown report: report=%s", report)
        return
    mark_lost()
    sender = (self.request.headers or {}).get("periodic_task_name") or self.request.get(
        "periodic_task_name"
    )
    schedule = PeriodicTask.objects.filter(name=sender, task=schedules.SCHEDULED_TASK).first()
    if schedule is not None and ReportRun.objects.active().filter(schedule=schedule).exists():
        logger.warning("slot passed over, the last run still works: schedule=%s", schedule.name)
        return
    slot = None if schedule is None else schedules.slot(schedule, timezone.now())
    run, is_new = (
        ReportRun.objects.get_or_create(
            slot=slot,
            defaults={"report": report, "parameters": parameters or {}, "schedule": schedule},
        )
        if slot is not None
        else (ReportRun.objects.create(report=report, parameters=parameters or {}), True)
    )
    if not is_new:
        logger.warning("slot ran already: slot=%s run=%s", slot, run.pk)
        return
    perform(run, worker=str(self.request.hostname or ""))
    forget_old_runs()


def perform(run: ReportRun, *, worker: str) -> None:
    now = timezone.now()
    taken = run.move(
        RunState.STARTING,
        among=(RunState.QUEUED,),
        started_at=now,
        heartbeat_at=now,
        worker=worker[:200],
        stage="starting",
    )
    if not taken:
        logger.warning("report run was taken before: run=%s state=%s", run.pk, run.state)
        return
    try:
        Runner(run).run()
    except Exception:
        # The boundary: whatever broke here, the page must not show a run that works for ever.
        logger.exception("report run broke: run=%s", run.pk)
        run.move(
            RunState.FAILED,
            among=WORKING,
            finished_at=timezone.now(),
            failure="The worker met an error of its own; its log has the trace.",
        )


def mark_lost() -> int:
    """Fail the runs whose worker is gone; end what it left running. Returns how many."""
    marked = 0
    for run in ReportRun.objects.lost(timezone.now()):
        process = run.process
        was_queued = run.state == RunState.QUEUED
        marked += run.move(
            RunState.FAILED,
            among=(RunState(run.state),),
            finished_at=run.heartbeat_at or timezone.now(),
            process=None,
            failure=NOT_TAKEN_SENTENCE if was_queued else LOST_SENTENCE,
        )
        signal_group(process, signal.SIGKILL)
    if marked:
        logger.warning("reports lost their worker: runs=%d", marked)
    return marked


def forget_old_runs() -> None:
    """Keep the newest RUNS_KEPT runs."""
    kept = ReportRun.objects.order_by("-created_at", "-id").values_list("pk", flat=True)
    oldest_kept = list(kept[RUNS_KEPT - 1 : RUNS_KEPT])
    if oldest_kept:
        ReportRun.objects.filter(pk__lt=oldest_kept[0]).exclude(
            state__in=[RunState.QUEUED, *WORKING]
        ).delete()


@worker_ready.connect
def on_worker_ready(**_: object) -> None:
    mark_lost()


@worker_shutting_down.connect
def on_worker_shutting_down(sender: str, **_: object) -> None:
    """End this worker's reports in order: otherwise it would wait for them for minutes."""
    ReportRun.objects.filter(state__in=WORKING, worker=sender).update(stop_reason=STOPPED_SENTENCE)
