"""The audit entry: who changed what, from where, with the state before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any


class Entry(models.Model):
    """One attempt to change something, written before the broker is asked."""

    class Outcome(models.TextChoices):
        """How an attempt ended; STARTED stays when the console died in between."""

        STARTED = "started", _("Unknown: the console stopped meanwhile")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")

    at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        auto_now_add=True, db_index=True
    )
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    # The name as it was: the account may be renamed or deleted later.
    actor_name = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=40, db_index=True)
    subject = models.CharField(max_length=600, db_index=True)
    before: models.JSONField[Any, Any] = models.JSONField(null=True)
    after: models.JSONField[Any, Any] = models.JSONField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.STARTED)
    remark = models.TextField(blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.subject}: {self.outcome}"
