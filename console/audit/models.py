"""The audit entry: actor, address and action of an attempt, with the state before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any


class Entry(models.Model):
    """One attempt to change something or to sign in, written before the broker is asked.

    One entry counts all refused attempts of one kind from one network within an hour.
    """

    class Outcome(models.TextChoices):
        """The end of an attempt; STARTED remains if the console died meanwhile."""

        STARTED = "started", _("Unknown: the console stopped meanwhile")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")
        REFUSED = "refused", _("Refused")

    at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        auto_now_add=True, db_index=True
    )
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    # A copy: the account may be renamed or deleted later. Empty for somebody not signed in.
    actor_name = models.CharField(max_length=150, blank=True)
    address = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=40, db_index=True)
    subject = models.CharField(max_length=600, db_index=True)
    before: models.JSONField[Any, Any] = models.JSONField(null=True)
    after: models.JSONField[Any, Any] = models.JSONField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.STARTED)
    remark = models.TextField(blank=True)
    times = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField(null=True)
    # The common properties of the refused attempts that one entry counts.
    refusal_key = models.CharField(max_length=64, unique=True, null=True)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.subject}: {self.outcome}"
