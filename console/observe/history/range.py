"""TimeRange: the period that a page shows, encoded in its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.utils.translation import gettext_lazy as _

from console.observe.history.tiers import DAY_MS, HOUR_MS, MINUTE_MS, tier_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.functional import Promise

    from console.observe.history.tiers import Tier

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
NOTHING = _("None")
EARLIER: dict[str, tuple[int, Promise, Promise]] = {
    "day": (DAY_MS, _("1 day earlier"), _("Yesterday")),
    "week": (7 * DAY_MS, _("1 week earlier"), _("Last week")),
}
"""Comparison periods: how much earlier, the legend text, and the choice's label."""
SHORTEST_MS = MINUTE_MS
LONGEST_MS = 366 * DAY_MS
DIGITS_MAX = 15


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `low_ms` to `high_ms` (exclusive). `recent` names a range that ends now.

    `earlier` names the period of the same length that it is compared with.
    """

    low_ms: int
    high_ms: int
    now_ms: int
    recent: str = ""
    earlier: str = ""

    @property
    def tier(self) -> Tier:
        """The scale for both periods, so that they compare; the earlier one may only have a coarser
        one.
        """
        low_ms = self.low_ms - self.earlier_by_ms
        return tier_for(low_ms, low_ms + (self.high_ms - self.low_ms), self.now_ms)

    @property
    def earlier_by_ms(self) -> int:
        return EARLIER[self.earlier][0] if self.earlier else 0

    @property
    def query(self) -> str:
        """The range as a query string."""
        return urlencode(self._span | ({"earlier": self.earlier} if self.earlier else {}))

    @property
    def _span(self) -> dict[str, str | int]:
        return {"range": self.recent} if self.recent else {"from": self.low_ms, "to": self.high_ms}

    @property
    def choices(self) -> list[tuple[str, Promise, bool]]:
        """Return (query, label, is selected) for each range that ends now."""
        more = {"earlier": self.earlier} if self.earlier else {}
        return [
            (urlencode({"range": name} | more), label, name == self.recent)
            for name, (_ms, label) in RECENT.items()
        ]

    @property
    def comparisons(self) -> list[tuple[str, Promise, bool]]:
        """Return (query, label, is selected) for no comparison and each earlier period."""
        return [
            (urlencode(self._span), NOTHING, not self.earlier),
            *(
                (urlencode(self._span | {"earlier": name}), label, name == self.earlier)
                for name, (_ms, _words, label) in EARLIER.items()
            ),
        ]


def requested_range(
    asked: Mapping[str, str],
    now_ms: int,
    default: str = DEFAULT,
    shortest_ms: int = SHORTEST_MS,
) -> TimeRange:
    """Return the range in a URL, or the default if it is invalid."""
    earlier = asked.get("earlier", "")
    earlier = earlier if earlier in EARLIER else ""
    low, high = whole(asked.get("from", "")), whole(asked.get("to", ""))
    if low is not None and high is not None:
        high = min(high, now_ms)
        if shortest_ms <= high - low <= LONGEST_MS:
            return TimeRange(low, high, now_ms, earlier=earlier)
    name = asked.get("range", default)
    if name not in RECENT:
        name = default
    return TimeRange(now_ms - RECENT[name][0], now_ms, now_ms, name, earlier)


def whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None
