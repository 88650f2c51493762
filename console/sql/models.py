"""What the SQL page keeps: queries with a name, and which topics somebody may ask about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import User
    from django.db.models import QuerySet

SQL_CHARACTERS_MAX = 20_000
NAME_CHARACTERS_MAX = 120
SAVED_MAX = 200


class SavedQuery(models.Model):
    """A query that somebody keeps; a shared one is read by all who may ask the lake."""

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
    """The topics that a person's or a group's permission to ask is for; without one, all."""

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


def visible_to(user: User) -> QuerySet[SavedQuery]:
    """Return a person's own queries, and those that others share."""
    return SavedQuery.objects.select_related("owner").filter(Q(owner=user) | Q(is_shared=True))
