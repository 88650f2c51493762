"""Labels for topics and groups, which brokers can't store."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

NAME_CHARACTERS_MAX = 255
OWNER_CHARACTERS_MAX = 120
DESCRIPTION_CHARACTERS_MAX = 1_000


class MessageType(models.TextChoices):
    """The message type that a topic is meant for; brokers of version 4.9 don't enforce it."""

    NORMAL = "NORMAL", _("Normal")
    FIFO = "FIFO", _("Ordered")
    DELAY = "DELAY", _("Delayed")
    TRANSACTION = "TRANSACTION", _("Transactional")


class Label(models.Model):
    """Owner and description of a topic or group, regardless of its brokers."""

    kind = models.CharField(max_length=10)
    name = models.CharField(max_length=NAME_CHARACTERS_MAX)
    owner = models.CharField(max_length=OWNER_CHARACTERS_MAX, blank=True, db_index=True)
    description = models.TextField(max_length=DESCRIPTION_CHARACTERS_MAX, blank=True)
    message_type = models.CharField(max_length=12, blank=True, choices=MessageType.choices)

    class Meta:
        ordering = ["kind", "name"]
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="label_of_name")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.owner}"
