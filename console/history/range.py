"""TimeRange: the part of the past that a page shows; its address says which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.utils.translation import gettext_lazy as _

from console.history.tiers import DAY_MS, HOUR_MS, MINUTE_MS, tier_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.functional import Promise

    from console.history.tiers import Tier

RECENT: dict[str, tuple[int, Promise]] = {
    "15m": (15 * MINUTE_MS, _("15 min")),
    "1h": (HOUR_MS, _("1 h")),
    "6h": (6 * HOUR_MS, _("6 h")),
    "24h": (DAY_MS, _("24 h")),
    "7d": (7 * DAY_MS, _("7 d")),
    "30d": (30 * DAY_MS, _("30 d")),
    "1y": (365 * DAY_MS, _("1 y")),
}
DEFAULT = "1h"
SHORTEST_MS = MINUTE_MS
LONGEST_MS = 366 * DAY_MS
DIGITS_MAX = 15


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `low_ms` to `high_ms`, the latter not included. `recent` names one that ends now."""

    low_ms: int
    high_ms: int
    now_ms: int
    recent: str = ""

    @property
    def tier(self) -> Tier:
        return tier_for(self.low_ms, self.high_ms, self.now_ms)

    @property
    def query(self) -> str:
        """The range as it stands in addresses."""
        if self.recent:
            return urlencode({"range": self.recent})
        return urlencode({"from": self.low_ms, "to": self.high_ms})

    @property
    def choices(self) -> list[tuple[str, Promise, bool]]:
        """Return (range, label, is this one) for each range that ends now."""
        return [(name, label, name == self.recent) for name, (_ms, label) in RECENT.items()]


def asked_range(asked: Mapping[str, str], now_ms: int) -> TimeRange:
    """Return the range that an address asks for; one that makes no sense is the default."""
    low, high = whole(asked.get("from", "")), whole(asked.get("to", ""))
    if low is not None and high is not None:
        high = min(high, now_ms)
        if SHORTEST_MS <= high - low <= LONGEST_MS:
            return TimeRange(low, high, now_ms)
    name = asked.get("range", DEFAULT)
    if name not in RECENT:
        name = DEFAULT
    return TimeRange(now_ms - RECENT[name][0], now_ms, now_ms, name)


def whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None
