"""Stored rules, channels, alerts, messages, maintenance windows and silences.

Times are wall-clock ms since 1970 UTC, for display. Durations are counted separately, so setting
the clock doesn't affect alerts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

if TYPE_CHECKING:
    from typing import Any

NAME_CHARACTERS_MAX = 80
PATTERN_CHARACTERS_MAX = 255
KEY_CHARACTERS_MAX = 700
LANGUAGE_CHARACTERS_MAX = 16
URL_CHARACTERS_MAX = 2_000
ACTOR_CHARACTERS_MAX = 150
RULES_MAX, CHANNELS_MAX, WINDOWS_MAX, SILENCES_MAX = 200, 50, 100, 200
KEEP_DAYS_DEFAULT = 90


class Channel(models.Model):
    """A destination for messages. `url` and `secret` are sent only to that destination."""

    class Kind(models.TextChoices):
        """The format and transport of a message."""

        WEBHOOK = "webhook", _("Webhook (JSON, signed)")
        SLACK = "slack", _("Slack")
        TEAMS = "teams", _("Microsoft Teams")
        DINGTALK = "dingtalk", _("DingTalk")
        EMAIL = "email", _("E-mail")

    name = models.CharField(max_length=NAME_CHARACTERS_MAX, unique=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    enabled = models.BooleanField(default=True)
    url = models.CharField(max_length=URL_CHARACTERS_MAX, blank=True)
    secret = models.CharField(max_length=255, blank=True)
    addresses: models.JSONField[Any, Any] = models.JSONField(default=list)
    # Empty means the appliance's language.
    language = models.CharField(max_length=LANGUAGE_CHARACTERS_MAX, blank=True, default="")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def speaks(self) -> str:
        """The language of this channel's messages."""
        is_known = self.language in dict(settings.LANGUAGES)
        return self.language if is_known else settings.LANGUAGE_CODE


class Rule(models.Model):
    """When an alert fires, how long the condition must hold, and which channels are notified."""

    class Source(models.TextChoices):
        """The kind of data that a rule evaluates."""

        VERDICT = "verdict", _("Issues")
        THRESHOLD = "threshold", _("Metric from the history")
        QUERY = "query", _("Scheduled lake query")

    class Compare(models.TextChoices):
        """How a metric is compared with the threshold."""

        ABOVE = "above", _("is above")
        BELOW = "below", _("is below")
        MISSING = "missing", _("becomes unknown")

    class Severity(models.TextChoices):
        """The severity, as for issues."""

        BAD = "bad", _("urgent")
        WARN = "warn", _("warning")

    class GroupBy(models.TextChoices):
        """Which alerts share one message."""

        ALERT = "alert", _("one message per alert")
        GROUP = "group", _("one message per consumer group")
        TOPIC = "topic", _("one message per topic")
        BROKER = "broker", _("one message per broker")
        RULE = "rule", _("one message for all alerts")

    name = models.CharField(max_length=NAME_CHARACTERS_MAX, unique=True)
    enabled = models.BooleanField(default=True)
    source = models.CharField(max_length=16, choices=Source.choices)
    verdicts: models.JSONField[Any, Any] = models.JSONField(
        default=list
    )  # rules of issues; empty means all
    least = models.CharField(max_length=8, choices=Severity.choices, default=Severity.BAD)
    series = models.CharField(max_length=80, blank=True)
    compare = models.CharField(max_length=8, choices=Compare.choices, default=Compare.ABOVE)
    query = models.ForeignKey(
        "sql.SavedQuery", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    fires_at = models.FloatField(default=0)
    clears_at = models.FloatField(default=0)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARN)
    broker_pattern = models.CharField(max_length=PATTERN_CHARACTERS_MAX, default="*")
    name_pattern = models.CharField(max_length=PATTERN_CHARACTERS_MAX, default="*")
    for_minutes = models.PositiveIntegerField(default=2)
    clear_minutes = models.PositiveIntegerField(default=5)
    repeat_minutes = models.PositiveIntegerField(default=240)
    group_by = models.CharField(max_length=8, choices=GroupBy.choices, default=GroupBy.ALERT)
    channels = models.ManyToManyField(Channel, blank=True, related_name="rules")
    # Counts changes, so that a form opened on an older version can't overwrite this one.
    version = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Window(models.Model):
    """A maintenance window: while it is open, alerts about its subjects send no notifications."""

    class Kind(models.TextChoices):
        """Once or repeated."""

        ONCE = "once", _("Once")
        WEEKLY = "weekly", _("Weekly")

    name = models.CharField(max_length=NAME_CHARACTERS_MAX, unique=True)
    enabled = models.BooleanField(default=True)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    zone = models.CharField(max_length=64)
    begins = models.CharField(max_length=16)  # once: 2026-11-22T22:30; weekly: 22:30; in the zone
    minutes = models.PositiveIntegerField()
    weekdays: models.JSONField[Any, Any] = models.JSONField(default=list)  # 0 is Monday
    broker_pattern = models.CharField(max_length=PATTERN_CHARACTERS_MAX, default="*")
    name_pattern = models.CharField(max_length=PATTERN_CHARACTERS_MAX, default="*")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Silence(models.Model):
    """A silence: the alerts of one thread of a rule send no notifications until it ends."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="silences")
    thread = models.CharField(max_length=KEY_CHARACTERS_MAX)
    about = models.CharField(max_length=KEY_CHARACTERS_MAX)
    began_ms = models.BigIntegerField()
    until_ms = models.BigIntegerField(db_index=True)
    by = models.CharField(max_length=ACTOR_CHARACTERS_MAX)

    class Meta:
        ordering = ["-until_ms"]

    def __str__(self) -> str:
        return self.about


class Alert(models.Model):
    """An alert: one rule's finding about one subject, from first detection until it ends.

    `open_key` keeps open alerts unique; it is null for alerts that have ended.
    """

    class State(models.TextChoices):
        """The state of an alert. Pending alerts that never fire are deleted."""

        PENDING = "pending", pgettext_lazy("alert", "Pending")
        FIRING = "firing", _("Firing")
        RESOLVED = "resolved", _("Resolved")

    class Muted(models.TextChoices):
        """The reason why a firing alert sends no notifications."""

        NO = "", _("no")
        SILENCE = "silence", _("Silenced")
        WINDOW = "window", _("In maintenance")

    rule = models.ForeignKey(Rule, null=True, on_delete=models.SET_NULL, related_name="alerts")
    rule_name = models.CharField(max_length=NAME_CHARACTERS_MAX)
    what = models.CharField(max_length=80)  # the rule of an issue, or a series
    kind = models.CharField(max_length=16)
    broker = models.CharField(max_length=PATTERN_CHARACTERS_MAX)
    name = models.CharField(max_length=520)
    thread = models.CharField(max_length=KEY_CHARACTERS_MAX)
    state = models.CharField(max_length=8, choices=State.choices, db_index=True)
    severity = models.CharField(max_length=8)
    evidence: models.JSONField[Any, Any] = models.JSONField(default=dict)
    muted = models.CharField(max_length=8, choices=Muted.choices, blank=True)
    held_ms = models.BigIntegerField(default=0)
    clear_ms = models.BigIntegerField(default=-1)
    unknown_ms = models.BigIntegerField(default=0)
    began_ms = models.BigIntegerField()
    fired_ms = models.BigIntegerField(null=True, db_index=True)
    ended_ms = models.BigIntegerField(null=True, db_index=True)
    ended_why = models.CharField(max_length=16, blank=True)
    announced = models.BooleanField(default=False)  # the message about its start is queued
    owes_end = models.BooleanField(default=False, db_index=True)  # the message about its end is due
    open_key = models.CharField(max_length=64, unique=True, null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.rule_name}: {self.name} ({self.state})"


class Thread(models.Model):
    """The alerts that share messages, and when the last message was written."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="threads")
    key = models.CharField(max_length=KEY_CHARACTERS_MAX)
    quiet_ms = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rule", "key"], name="one_thread_a_key")]

    def __str__(self) -> str:
        return self.key


class Message(models.Model):
    """A message to one channel, in the outbox or its log, sent in ID order."""

    class State(models.TextChoices):
        """The delivery state."""

        WAITING = "waiting", _("Waiting")
        SENT = "sent", pgettext_lazy("message", "Delivered")
        FAILED = "failed", _("Given up")
        LEFT_OUT = "left-out", pgettext_lazy("message", "Skipped")

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages")
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    created_ms = models.BigIntegerField()
    content: models.JSONField[Any, Any] = models.JSONField(default=dict)
    tries = models.PositiveIntegerField(default=0)
    next_ms = models.BigIntegerField(default=0)
    last_ms = models.BigIntegerField(null=True)
    outcome = models.CharField(max_length=400, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "channel", "id"], name="alerts_outbox"),
        ]

    def __str__(self) -> str:
        return f"{self.channel_id} {self.state}"


class Preferences(models.Model):
    """One row: the dead man's switch, the retention of alerts, and when rules were last applied.

    `heartbeat_url` is secret, like a channel's address.
    """

    heartbeat_url = models.CharField(max_length=URL_CHARACTERS_MAX, blank=True)
    heartbeat_seconds = models.PositiveIntegerField(default=60)
    heartbeat_ms = models.BigIntegerField(null=True)
    heartbeat_outcome = models.CharField(max_length=400, blank=True)
    keep_days = models.PositiveIntegerField(default=KEEP_DAYS_DEFAULT)
    looked_ms = models.BigIntegerField(null=True)
    looked_problem = models.CharField(max_length=400, blank=True)

    def __str__(self) -> str:
        return "preferences"


def preferences() -> Preferences:
    """Return the only row."""
    return Preferences.objects.get_or_create(pk=1)[0]
