"""TimeRange: the period that a page shows, encoded in its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.utils.translation import gettext, gettext_lazy as _

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
TEXT_SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `low_ms` to `high_ms` (exclusive). `recent` names a range that ends now.

    `earlier` names the period of the same length that it is compared with. `problem` says why the
    range in the URL is impossible; a page then shows it instead of data for this default range.
    """

    low_ms: int
    high_ms: int
    now_ms: int
    recent: str = ""
    earlier: str = ""
    problem: str = ""

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
            (urlencode({"range": name} | more), label, name == self.recent and not self.problem)
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
    """Return the range in a URL, or the default if the URL has none.

    For an impossible range, return the default with a `problem`.
    """
    earlier = asked.get("earlier", "")
    earlier = earlier if earlier in EARLIER else ""
    ends = asked.get("from", "").strip(), asked.get("to", "").strip()
    name = asked.get("range", "") or default
    if any(ends):
        problem = range_problem(*ends, now_ms, shortest_ms)
        if not problem:
            low_ms, high_ms = map(int, ends)
            return TimeRange(low_ms, min(high_ms, now_ms), now_ms, earlier=earlier)
        name = default
    elif name in RECENT:
        problem = ""
    else:
        problem = gettext(
            '"%(text)s" isn\'t a time range. Use one of %(names)s, or from and to.'
        ) % {
            "text": name[:TEXT_SHOWN_MAX],
            "names": ", ".join(RECENT),
        }
        name = default
    return TimeRange(now_ms - RECENT[name][0], now_ms, now_ms, name, earlier, problem)


def range_problem(low: str, high: str, now_ms: int, shortest_ms: int) -> str:
    """Return why pages can't show a time range, or ""."""
    problem = ends_problem(low, high, now_ms)
    if problem:
        return problem
    if int(low) >= now_ms:
        return gettext("The time range starts in the future. Choose an earlier start.")
    span_ms = min(int(high), now_ms) - int(low)
    if span_ms < shortest_ms:
        return gettext("The time range is shorter than a minute. Choose a longer range.")
    if span_ms > LONGEST_MS:
        return gettext("The time range is longer than %(days)d days. Choose a shorter range.") % {
            "days": LONGEST_MS // DAY_MS
        }
    return ""


def ends_problem(low: str, high: str, now_ms: int) -> str:
    """Return why two texts aren't the start and end of a time range, or ""."""
    if not low or not high:
        return gettext("The time range needs a start (from) and an end (to).")
    for text in (low, high):
        if whole(text) is None:
            return gettext(
                '"%(text)s" isn\'t a time. Enter from and to in milliseconds since 1970, for '
                "example %(now)d."
            ) % {"text": text[:TEXT_SHOWN_MAX], "now": now_ms}
    if int(low) >= int(high):
        return gettext("The time range ends before it starts. Choose an end after the start.")
    return ""


def whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None
