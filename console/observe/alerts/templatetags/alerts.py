"""The number of firing alerts, for other pages."""

from __future__ import annotations

from typing import Any

from django import template

from console.observe.alerts.firing import firing_alerts

register = template.Library()


@register.inclusion_tag("alerts/_firing.html")
def alerts_firing() -> dict[str, Any]:
    """Render a link to the alerts, or nothing if no alert is firing."""
    return firing_alerts()._asdict()
