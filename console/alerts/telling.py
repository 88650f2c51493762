"""Telling: puts a result into the outbox, for each channel that a schedule names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import translation

from console.alerts.models import Channel
from console.alerts.notices import put
from console.gateway.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def tell(channels: Iterable[int], content_now: Callable[[], dict[str, Any] | None]) -> int:
    """Tell the channels that there still are, each in its language; return how many.

    Args:
        content_now: makes the message in the language that is active; None: there is none.
    """
    found = list(Channel.objects.filter(pk__in=list(channels), enabled=True))
    told = 0
    for language in sorted({channel.speaks for channel in found}):
        with translation.override(language):
            content = content_now()
        for channel in found:
            if content is not None and channel.speaks == language:
                put(channel, content, now_ms())
                told += 1
    return told
