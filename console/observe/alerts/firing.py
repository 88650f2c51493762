"""The alerts that are firing now, counted for other pages."""

from __future__ import annotations

from typing import NamedTuple

from django.db import DatabaseError
from django.db.models import Count

from console.observe.alerts.models import Alert


class Firing(NamedTuple):
    """Firing alerts that send notifications, those that don't, and the health colour."""

    notifying: int
    quiet: int
    state: str


def firing_alerts() -> Firing:
    """Return the firing alerts. Without the database the counts are 0; pages report the failure."""
    firing = Alert.objects.filter(state=Alert.State.FIRING).order_by()
    try:
        counts = dict(firing.values_list("muted").annotate(number=Count("pk")))
        notifying = counts.pop("", 0)
        is_urgent = bool(notifying) and firing.filter(muted="", severity="bad").exists()
    except DatabaseError:
        return Firing(0, 0, "")
    return Firing(notifying, sum(counts.values()), "bad" if is_urgent else "warn")
