"""Writes a result to the outbox, for each channel of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import translation

from console.lib.moment import now_ms
from console.observe.alerts.models import Channel
from console.observe.alerts.notices import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def queue_result(channels: Iterable[int], content_now: Callable[[], dict[str, Any] | None]) -> int:
    """Queue a result for the channels that still exist, in their languages; return how many.

    Args:
        content_now: builds the message in the active language; None if there is no message.
    """
    found = list(Channel.objects.filter(pk__in=list(channels), enabled=True))
    queued = 0
    for language in sorted({channel.speaks for channel in found}):
        with translation.override(language):
            content = content_now()
        for channel in found:
            if content is not None and channel.speaks == language:
                put(channel, content, now_ms())
                queued += 1
    return queued
