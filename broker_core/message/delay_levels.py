"""Parse the setting messageDelayLevel.

Source: store/schedule/ScheduleMessageService.java parseDelayLevel (4.9.8).
"""

from __future__ import annotations

UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Return the delays of messageDelayLevel in milliseconds; level 1 is the first."""
    return [int(level[:-1]) * UNITS_MS[level[-1]] for level in text.split()]
