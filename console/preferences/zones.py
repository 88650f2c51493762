"""Time zones by their names."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

OLD_REGIONS = ("Etc/", "SystemV/", "US/")


def zone_named(name: str) -> tzinfo:
    """Return a time zone; UTC without a name, or where this machine does not know it (any more)."""
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, ValueError, OSError):
        return UTC


@lru_cache
def zone_names() -> tuple[str, ...]:
    """Return the names that can be chosen, UTC first."""
    regions = (name for name in available_timezones() if "/" in name)
    return ("UTC", *sorted(name for name in regions if not name.startswith(OLD_REGIONS)))
