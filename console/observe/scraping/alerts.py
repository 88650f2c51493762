"""Alert metrics: open alerts by rule, and unsent messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Count, Min

from console.observe.alerts.models import Alert, Channel, Message, Preferences, Rule
from console.observe.scraping.families import gauge, one, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.metrics.exposition import Family

SHOWN = (Message.State.WAITING, Message.State.FAILED)
"""Delivered and skipped messages need no attention."""


def families(now_ms: int) -> Iterator[Family]:
    """Yield alerts by rule, messages by channel, and the last time rules were applied."""
    counts = dict.fromkeys(
        (name, Alert.State.FIRING.value)
        for name in Rule.objects.filter(enabled=True).values_list("name", flat=True)
    )
    opened = Alert.objects.exclude(open_key=None)
    counts |= {
        (row["rule_name"], row["state"]): row["count"]
        for row in opened.values("rule_name", "state").annotate(count=Count("id")).order_by()
    }
    yield gauge(
        "alerts",
        "Open alerts (pending or firing), by rule",
        [({"rule": rule, "state": state}, count or 0) for (rule, state), count in counts.items()],
    )
    muted = opened.filter(state=Alert.State.FIRING).exclude(muted="").count()
    yield one("alerts_muted", "Firing alerts that are silenced or in maintenance", muted)
    yield from _messages(now_ms)
    kept = Preferences.objects.filter(pk=1).first()
    yield one(
        "alert_rules_applied_timestamp_seconds",
        "Time when the alert rules were last applied",
        seconds(kept.looked_ms) if kept else None,
    )
    yield one(
        "alert_heartbeat_timestamp_seconds",
        "Time of the last heartbeat of the dead man's switch",
        seconds(kept.heartbeat_ms) if kept else None,
    )


def _messages(now_ms: int) -> Iterator[Family]:
    found = {
        (row["channel__name"], row["state"]): row
        for row in Message.objects.filter(state__in=SHOWN)
        .values("channel__name", "state")
        .annotate(count=Count("id"), oldest=Min("created_ms"))
        .order_by()
    }
    channels = list(Channel.objects.filter(enabled=True).values_list("name", flat=True))
    keys = {(channel, state.value): None for channel in channels for state in SHOWN} | found
    yield gauge(
        "alert_messages",
        "Alert messages that are waiting or were given up, by channel",
        [
            ({"channel": channel, "state": state}, row["count"] if row else 0)
            for (channel, state), row in keys.items()
        ],
    )
    yield gauge(
        "alert_message_waiting_seconds",
        "Age of the oldest waiting message to a channel",
        [
            ({"channel": channel}, seconds(max(0, now_ms - row["oldest"])) if row else 0)
            for (channel, state), row in keys.items()
            if state == Message.State.WAITING
        ],
    )
