"""Telling: puts a result into the outbox, for each channel that a schedule names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.alerts.models import Channel
from console.alerts.notices import put
from console.gateway.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable


def tell(channels: Iterable[int], content: dict[str, Any]) -> int:
    """Tell the channels that there still are; return how many."""
    found = list(Channel.objects.filter(pk__in=list(channels), enabled=True))
    for channel in found:
        put(channel, content, now_ms())
    return len(found)
