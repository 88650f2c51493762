"""Marks on charts at the times when a subject's alerts fired and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Q

from console.observe.alerts.models import Alert
from console.observe.alerts.wording import words_of
from console.observe.history.metrics import BROKER, GROUP, PROGRESS, TOPIC, pair

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKS_MAX = 100
FIRED, ENDED = "alert", "alert-end"


def alert_marks(kind: str, name: str, low_ms: int, high_ms: int) -> Iterator[tuple[int, str, str]]:
    """Yield (at, FIRED or ENDED, title) within a time range."""
    match kind:
        case "group":
            about = Q(kind=GROUP, name=name) | Q(kind=PROGRESS, name__startswith=f"{name}@")
        case "topic":
            about = Q(kind=TOPIC, name=name) | Q(kind=PROGRESS, name__endswith=f"@{name}")
        case "broker":
            broker, _colon, number = name.rpartition(":")
            about = Q(kind=BROKER, broker=broker, name=number)
        case "cluster":
            about = Q()
        case "queue":
            group, _at, rest = name.partition("@")
            topic = rest.partition("@")[0]
            about = Q(kind=PROGRESS, name=pair(group, topic)) | Q(kind=GROUP, name=group)
        case _other:
            about = Q(kind=kind, name=name)
    within = Q(fired_ms__gte=low_ms, fired_ms__lt=high_ms) | Q(
        ended_ms__gte=low_ms, ended_ms__lt=high_ms
    )
    for alert in Alert.objects.filter(about & within, fired_ms__isnull=False)[:MARKS_MAX]:
        title = words_of(alert).title
        for at, what in ((alert.fired_ms, FIRED), (alert.ended_ms, ENDED)):
            if at is not None and low_ms <= at < high_ms:
                yield at, what, title
