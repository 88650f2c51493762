"""Display names and page URLs of the history's subjects."""

from __future__ import annotations

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from console.gateway.answers import MASTER_ID
from console.observe.history.metrics import BROKER, GROUP, PROGRESS, TOPIC


def place_of(kind: str, broker: str, name: str) -> tuple[str, str]:
    """Return a subject's display name, and the path of its page or ""."""
    try:
        if kind == TOPIC:
            return name, reverse("topics:detail", args=[name])
        if kind == PROGRESS:
            group, _at, topic = name.partition("@")
            return f"{group} · {topic}", reverse("groups:detail", args=[group])
        if kind == GROUP:
            return name, reverse("groups:detail", args=[name])
        if kind == BROKER:
            return _broker(broker, int(name)), reverse("brokers:detail", args=[broker, int(name)])
    except (NoReverseMatch, ValueError):
        return name, ""
    return name, ""


def _broker(name: str, broker_id: int) -> str:
    """Return a broker's name, marking slaves because they share their master's name."""
    if broker_id == MASTER_ID:
        return name
    return _("%(broker)s, slave %(number)d") % {"broker": name, "number": broker_id}
