"""Failed sign-ins, counted so that guessing passwords does not pay, and open invitations."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.accounts.roles import Role

if TYPE_CHECKING:
    from datetime import datetime

NAME_CHARACTERS_MAX = 150
INVITATION_LIFETIME = timedelta(days=3)
INVITATIONS_MAX = 100


class FailedSignIn(models.Model):
    """A counter of failed sign-ins; `throttle` makes its keys."""

    key = models.CharField(max_length=200, unique=True)
    failures = models.PositiveIntegerField(default=0)
    last_failure_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.key}: {self.failures}"


class Invitation(models.Model):
    """A link that makes one account, once. Only a digest of its text is kept."""

    name = models.CharField(
        max_length=NAME_CHARACTERS_MAX,
        unique=True,
        error_messages={"unique": _("This name is invited already.")},
    )
    role = models.CharField(max_length=20, choices=Role.choices)
    mail = models.EmailField(blank=True)
    digest = models.CharField(max_length=64, unique=True)
    by = models.CharField(max_length=NAME_CHARACTERS_MAX)
    made_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(auto_now_add=True)
    expires_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        permissions = [("operate", "May change topics, groups, offsets, marks and schedules")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_expired(self) -> bool:
        return self.expires_at <= timezone.now()
