"""Saved queries, their scheduled runs, and the topics that people may query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from console.lib.moment import now_ms

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import User
    from django.db.models import QuerySet

SQL_CHARACTERS_MAX = 20_000
NAME_CHARACTERS_MAX = 120
SAVED_MAX = 200
RUN_MS_MAX = 90_000
"""A query's process is ended before this."""


class SavedQuery(models.Model):
    """A saved query; if shared, everyone who can query the lake can read it."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=NAME_CHARACTERS_MAX)
    sql = models.TextField(max_length=SQL_CHARACTERS_MAX)
    is_shared = models.BooleanField(default=False)
    changed_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="one_query_of_a_name")
        ]
        permissions = [("query_lake", "May ask the lake in SQL")]

    def __str__(self) -> str:
        return self.name


class QueryRight(models.Model):
    """The topics that a person's or group's permission covers; without one, all topics."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="query_right"
    )
    group = models.OneToOneField(
        Group, null=True, on_delete=models.CASCADE, related_name="query_right"
    )
    topics: models.JSONField[Any, Any] = models.JSONField(default=list)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=True) ^ Q(group__isnull=True), name="a_person_or_a_group"
            )
        ]

    def __str__(self) -> str:
        return f"{self.user or self.group}: {', '.join(self.topics)}"


class QueryRun(models.Model):
    """One scheduled run of a query and its outcome; `run_id` identifies the rows.

    `slot` is unique, so that each scheduled time has one run, even if it is sent twice.
    """

    class State(models.TextChoices):
        """The state of the run."""

        RUNNING = "running", _("Running")
        DONE = "done", pgettext_lazy("state", "Done")
        FAILED = "failed", _("Failed")

    query = models.ForeignKey(SavedQuery, on_delete=models.CASCADE, related_name="runs")
    slot = models.CharField(max_length=100, unique=True)
    state = models.CharField(max_length=8, choices=State.choices, default=State.RUNNING)
    run_id = models.UUIDField(null=True)
    began_ms = models.BigIntegerField()
    ended_ms = models.BigIntegerField(null=True)
    rows = models.BigIntegerField(default=0)
    sentence = models.CharField(max_length=1_000, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.slot} ({self.state})"

    @property
    def is_lost(self) -> bool:
        """Whether it started so long ago that its worker must be gone."""
        return self.state == self.State.RUNNING and now_ms() - self.began_ms > RUN_MS_MAX

    @property
    def shown_state(self) -> str:
        return self.State.FAILED if self.is_lost else self.state

    @property
    def shown_sentence(self) -> str:
        return (
            gettext("The worker stopped while the query was running.")
            if self.is_lost
            else self.sentence
        )


def visible_to(user: User) -> QuerySet[SavedQuery]:
    """Return a person's own queries and the shared ones."""
    return SavedQuery.objects.select_related("owner").filter(Q(owner=user) | Q(is_shared=True))
