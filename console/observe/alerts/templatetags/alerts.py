"""The number of firing alerts, for other pages."""

from __future__ import annotations

from typing import Any

from django import template
from django.db.models import Count

from console.observe.alerts.models import Alert

register = template.Library()


@register.inclusion_tag("alerts/_firing.html")
def alerts_firing() -> dict[str, Any]:
    """Render a link to the alerts, or nothing if no alert is firing."""
    firing = Alert.objects.filter(state=Alert.State.FIRING).order_by()
    counts = dict(firing.values_list("muted").annotate(number=Count("pk")))
    notifying = counts.pop("", 0)
    is_urgent = bool(notifying) and firing.filter(muted="", severity="bad").exists()
    return {
        "count": notifying,
        "quiet": sum(counts.values()),
        "state": "bad" if is_urgent else "warn",
    }
