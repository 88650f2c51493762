"""Runs, which replay or discard some of a group's dead letters, and their items.

A dead letter stays in its queue until it expires, so only these rows record that it was handled. A
run's state only moves forward, each step with one conditional UPDATE.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, pgettext_lazy

if TYPE_CHECKING:
    from console.lib.stored import BrokerQueue

LOST_AFTER_S = 30
"""A run counts as stopped if its process hasn't written for this long."""
RUNS_KEPT = 1_000


class State(models.TextChoices):
    """The state of a run."""

    RUNNING = "running", _("Running")
    DONE = "done", pgettext_lazy("state", "Done")
    STOPPED = "stopped", _("Stopped")


class Action(models.TextChoices):
    """The action of a run."""

    REPLAY = "replay", _("Replay")
    DISCARD = "discard", _("Discard")


class Target(models.TextChoices):
    """The destination of replayed messages."""

    RETRY = "retry", _("The group's retry topic: only this group receives them")
    ORIGIN = "origin", _("Their original topics: every group that reads them receives them")


class Outcome(models.TextChoices):
    """The outcome of one dead letter."""

    WAITING = "waiting", _("waiting")
    SENDING = "sending", _("sending")
    SENT = "sent", _("sent")
    UNKNOWN = "unknown", _("may have been sent")
    FAILED = "failed", _("rejected")
    GONE = "gone", _("expired before replay")
    DISCARDED = "discarded", _("discarded")


HANDLED = (Outcome.SENDING, Outcome.SENT, Outcome.UNKNOWN, Outcome.DISCARDED)


class Run(models.Model):
    """A replay or discard. `query` is the selection in the preview's query string."""

    group = models.CharField(max_length=255, db_index=True)
    action = models.CharField(max_length=10, choices=Action.choices)
    target = models.CharField(max_length=10, choices=Target.choices, blank=True)
    rate = models.PositiveIntegerField(default=0)
    reason = models.CharField(max_length=500, blank=True)
    query = models.TextField(blank=True)
    total = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    by = models.CharField(max_length=150)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        default=timezone.now, db_index=True
    )
    heartbeat_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        default=timezone.now
    )
    finished_at = models.DateTimeField(null=True)
    cancel_requested = models.BooleanField(default=False)
    failure = models.CharField(max_length=1_000, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.action} {self.pk} of {self.group}"

    @property
    def is_active(self) -> bool:
        return self.state == State.RUNNING

    @property
    def created_ms(self) -> int:
        return int(self.created_at.timestamp() * 1000)

    def end(self, state: State, failure: str = "") -> bool:
        """End the run if it is still running; return whether it was."""
        now = timezone.now()
        running = Run.objects.filter(pk=self.pk, state=State.RUNNING)
        return bool(running.update(state=state, failure=failure[:1_000], finished_at=now))


class Item(models.Model):
    """A dead letter in a run: its location and outcome."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="items")
    group = models.CharField(max_length=255)
    broker_name = models.CharField(max_length=128)
    queue_id = models.IntegerField()
    queue_offset = models.BigIntegerField()
    # Offsets repeat if a topic is deleted and created again.
    commit_log_offset = models.BigIntegerField()
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.WAITING)
    note = models.CharField(max_length=1_000, blank=True)
    at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["group", "broker_name", "queue_id", "queue_offset"])]

    def __str__(self) -> str:
        return f"{self.place}: {self.outcome}"

    @property
    def place(self) -> tuple[str, int, int, int]:
        return self.broker_name, self.queue_id, self.queue_offset, self.commit_log_offset

    def become(self, outcome: Outcome, note: str = "") -> None:
        self.outcome, self.note, self.at = outcome, note[:1_000], timezone.now()
        self.save(update_fields=["outcome", "note", "at"])


def handled_items(
    group: str, queue: BrokerQueue, low: int, high: int
) -> dict[tuple[Any, ...], Item]:
    """Return the items of a queue's handled dead letters in an offset range, by location."""
    found = Item.objects.filter(
        group=group,
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        queue_offset__gte=low,
        queue_offset__lt=high,
        outcome__in=HANDLED,
    )
    return {item.place: item for item in found.select_related("run")}


def stop_orphaned() -> None:
    """End runs whose process has stopped; the message being sent then may have been stored."""
    before = timezone.now() - timedelta(seconds=LOST_AFTER_S)
    for run in Run.objects.filter(state=State.RUNNING, heartbeat_at__lt=before):
        if run.end(State.STOPPED, str(_("The console stopped during the replay."))):
            sending = run.items.filter(outcome=Outcome.SENDING)
            sending.update(outcome=Outcome.UNKNOWN, at=timezone.now())


def forget_old_runs() -> None:
    for oldest in Run.objects.values_list("pk", flat=True)[RUNS_KEPT : RUNS_KEPT + 1]:
        # Ordered newest first, so smaller keys are older. Items are deleted with their run.
        Run.objects.filter(pk__lte=oldest).exclude(state=State.RUNNING).delete()
