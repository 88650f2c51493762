"""The delivery time that a message's properties request.

Source: broker/util/HookUtils.java handleScheduleMessage, transformTimerMessage (5.3.3).
Differs: the time keeps its milliseconds; RocketMQ rounds it down to a second and subtracts one
second from whole seconds. A delay in seconds that overflows a Java int is refused; RocketMQ
computes a time in the past and delivers immediately.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from broker_core.message.names import (
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMER_PROPERTIES = (PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS)
"""In order of precedence: the first property that a message has decides."""
_JAVA_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_INT_MAX, _LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


class DeliveryTime(NamedTuple):
    """When to deliver a message."""

    due_ms: int
    """Milliseconds since the epoch, by the wall clock's current setting."""
    is_delay: bool
    """Whether the message requested a delay rather than a time."""


def delivery_time_of(properties: Mapping[str, str], now_ms: int) -> DeliveryTime | None:
    """Return the delivery time that a message requests, or None if it doesn't request one.

    A message with TIMER_OUT_MS has already been delivered once, for example a retry.

    Raises:
        ValueError: Java can't parse the property as a number.
    """
    if PROPERTY_TIMER_OUT_MS in properties:
        return None
    for name in TIMER_PROPERTIES:
        text = properties.get(name)
        if text is None:
            continue
        is_delay = name != PROPERTY_TIMER_DELIVER_MS
        limit = _INT_MAX if is_delay else _LONG_MAX
        if not _JAVA_NUMBER.fullmatch(text) or not -limit - 1 <= int(text) <= limit:
            raise ValueError(f"the property {name} is not a number: {text[:32]!r}")
        value = int(text)
        if name == PROPERTY_TIMER_DELAY_SEC:
            value *= 1000
        return DeliveryTime(now_ms + value if is_delay else value, is_delay)
    return None
