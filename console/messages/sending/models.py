"""Stored data of sending: each person's last message per topic, and open half messages."""

from __future__ import annotations

from django.conf import settings
from django.db import models

TOPIC_CHARACTERS_MAX = 255
ID_CHARACTERS_MAX = 64
NAME_CHARACTERS_MAX = 255


class LastSent(models.Model):
    """The last message that a person sent to a topic, to fill in the form next time."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    topic = models.CharField(max_length=TOPIC_CHARACTERS_MAX)
    fields = models.JSONField()
    # Each message's broker_name, queue_id and queue_offset, the offset as text.
    places = models.JSONField()
    count = models.PositiveIntegerField()
    sent_ms = models.BigIntegerField()

    class Meta:
        ordering = ["-sent_ms"]
        constraints = [
            models.UniqueConstraint(fields=["user", "topic"], name="one_last_sent_a_topic")
        ]

    def __str__(self) -> str:
        return f"{self.topic} by {self.user_id}"


class HalfMessage(models.Model):
    """The message of a transaction that was begun here and hasn't ended."""

    topic = models.CharField(max_length=TOPIC_CHARACTERS_MAX)
    broker_name = models.CharField(max_length=NAME_CHARACTERS_MAX)
    queue_id = models.IntegerField()
    queue_offset = models.BigIntegerField()
    offset_msg_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    uniq_key = models.CharField(max_length=ID_CHARACTERS_MAX)
    transaction_id = models.CharField(max_length=NAME_CHARACTERS_MAX, blank=True)
    keys = models.CharField(max_length=TOPIC_CHARACTERS_MAX, blank=True)
    by = models.CharField(max_length=150)
    made_ms = models.BigIntegerField()

    class Meta:
        ordering = ["-made_ms", "-id"]

    def __str__(self) -> str:
        return f"{self.topic} {self.uniq_key}"
