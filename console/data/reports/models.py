r"""ReportRun: the parameters, progress and result of one run.

States only move forward, each by one conditional UPDATE, so that a worker, a page and a second
delivery of the same task never undo each other's changes:

    queued -> starting -> running -> writing -> done
       \__________\_________\_________\_____> failed | cancelled
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, pgettext_lazy
from django_celery_beat.models import PeriodicTask

# A runner writes its heartbeat every HEARTBEAT_S and counts as lost LOST_AFTER_S after the last
# one.
HEARTBEAT_S = 5
LOST_AFTER_S = 30
# If no worker takes a task within this time, the queue drops it and its run fails.
QUEUED_SECONDS_MAX = 3600

RESULT_ROWS_MAX = 20_000
SENTENCE_CHARS_MAX = 1_000
LOG_TAIL_CHARS_MAX = 16_384
RUNS_KEPT = 500


class RunState(models.TextChoices):
    """The state of a run."""

    QUEUED = "queued", _("Queued")
    STARTING = "starting", _("Starting")
    RUNNING = "running", _("Running")
    WRITING = "writing", _("Writing")
    DONE = "done", pgettext_lazy("state", "Done")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


WORKING = (RunState.STARTING, RunState.RUNNING, RunState.WRITING)
ACTIVE = (RunState.QUEUED, *WORKING)

LOST_SENTENCE = (
    "The worker stopped unexpectedly while it ran this report. See the worker's log for the "
    "reason, then run the report again."
)
NOT_STARTED_SENTENCE = (
    "No worker started this report within an hour. Check that a worker is running (celery -A "
    "console worker), then run the report again."
)


class ReportRunQuerySet(models.QuerySet["ReportRun"]):
    """Queries and transitions over many runs."""

    def active(self) -> ReportRunQuerySet:
        return self.filter(state__in=ACTIVE)

    def lost(self, now: datetime) -> ReportRunQuerySet:
        """Return the runs whose worker is gone, and the queued runs that no worker will start."""
        silent = models.Q(state__in=WORKING, heartbeat_at__lt=now - timedelta(seconds=LOST_AFTER_S))
        forgotten = models.Q(
            state=RunState.QUEUED, created_at__lt=now - timedelta(seconds=QUEUED_SECONDS_MAX)
        )
        return self.filter(silent | forgotten)


class ReportRun(models.Model):
    """One run of a report.

    `progress_done` of `progress_total` tasks of the stage are done; 0 of 0 means unknown.
    `slot` names the schedule's time slot. It is unique, so a slot runs once, even if sent twice.
    """

    report = models.CharField(max_length=64)
    parameters = models.JSONField(default=dict)
    state = models.CharField(
        max_length=16, choices=RunState.choices, default=RunState.QUEUED, db_index=True
    )

    stage = models.CharField(max_length=200, blank=True)
    progress_done = models.BigIntegerField(default=0)
    progress_total = models.BigIntegerField(default=0)
    rows_read = models.BigIntegerField(default=0)
    bytes_read = models.BigIntegerField(default=0)
    # Peak memory of all its processes together, as observed.
    memory_bytes = models.BigIntegerField(default=0)

    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)

    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    schedule = models.ForeignKey(
        PeriodicTask, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    slot = models.CharField(max_length=100, null=True, blank=True, unique=True)

    worker = models.CharField(max_length=200, blank=True)
    # host, pid and start time of the analytics process: enough to end it if its worker dies.
    process = models.JSONField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    # Set if the worker is shutting down, so that the run ends as failed rather than cancelled.
    stop_reason = models.CharField(max_length=SENTENCE_CHARS_MAX, blank=True)

    result = models.JSONField(null=True, blank=True)
    result_rows = models.BigIntegerField(default=0)
    failure = models.CharField(max_length=SENTENCE_CHARS_MAX, blank=True)
    log_tail = models.TextField(blank=True)

    objects = ReportRunQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.report} run {self.pk} ({self.state})"

    @property
    def is_lost(self) -> bool:
        """Whether the row is active but no worker runs it; `mark_lost` records this."""
        now = timezone.now()
        if self.state in WORKING:
            beat = self.heartbeat_at or self.started_at or self.created_at
            return beat < now - timedelta(seconds=LOST_AFTER_S)
        if self.state == RunState.QUEUED:
            return self.created_at < now - timedelta(seconds=QUEUED_SECONDS_MAX)
        return False

    @property
    def shown_state(self) -> RunState:
        return RunState.FAILED if self.is_lost else RunState(self.state)

    @property
    def shown_failure(self) -> str:
        if self.is_lost:
            return NOT_STARTED_SENTENCE if self.state == RunState.QUEUED else LOST_SENTENCE
        return self.failure

    @property
    def is_active(self) -> bool:
        return self.shown_state in ACTIVE

    @property
    def result_is_cut(self) -> bool:
        return self.result is not None and self.result_rows > len(self.rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(self.result["rows"]) if self.result else []

    @property
    def seconds(self) -> float | None:
        """The duration of the run (so far), or None before it starts."""
        if self.started_at is None:
            return None
        end = self.finished_at
        if end is None:
            end = self.heartbeat_at if self.is_lost and self.heartbeat_at else timezone.now()
        return max(0.0, (end - self.started_at).total_seconds())

    def move(self, to: RunState, *, among: tuple[RunState, ...], **values: Any) -> bool:
        """Update state and values if the row's state is still in `among`; return whether it was."""
        moved = ReportRun.objects.filter(pk=self.pk, state__in=among).update(state=to, **values)
        if moved:
            self.state = to
            for name, value in values.items():
                setattr(self, name, value)
        return bool(moved)
