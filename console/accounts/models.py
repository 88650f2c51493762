"""Failed sign-ins, counted so that guessing passwords does not pay."""

from __future__ import annotations

from django.db import models


class FailedSignIn(models.Model):
    """A counter of failed sign-ins; `throttle` makes its keys."""

    key = models.CharField(max_length=200, unique=True)
    failures = models.PositiveIntegerField(default=0)
    last_failure_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.key}: {self.failures}"
