"""The time of a reading."""

from __future__ import annotations

from django.utils import timezone


def now_ms() -> int:
    """Return wall time in ms since the epoch."""
    return int(timezone.now().timestamp() * 1000)
