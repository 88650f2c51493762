"""The waterfall chart: steps as bars on a time axis that shows both microseconds and days.

The distance between two successive moments is the logarithm of the time between them, so that every
wait is visible and longer ones are wider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _

from console.messages.family.steps import in_order
from console.ui.templatetags.ui import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from console.messages.family.steps import Step

US_A_SECOND = 1_000_000
SECONDS_MAX = 90
TICK_APART_PERCENT = 12.0
RIGHT_PERCENT = 96.0
BAR_LEAST_PERCENT = 0.4
LABEL_LEFT_FROM_PERCENT = 72.0


class Tick(NamedTuple):
    """A moment on the axis."""

    x: str
    label: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Line:
    """A step with its bar in percent of the width, or None if it has no time."""

    step: Step
    x: str | None = None
    width: str = ""
    label_x: str = ""
    label_anchor: str = ""
    label: str = ""

    @property
    def begin_ms(self) -> int | None:
        return None if self.step.begin_us is None else self.step.begin_us // 1_000

    @property
    def millis(self) -> str:
        """The fraction of the second, with the known precision."""
        begin_us = self.step.begin_us or 0
        return (
            f"{begin_us % US_A_SECOND:06d}"
            if begin_us % 1_000
            else f"{begin_us // 1_000 % 1_000:03d}"
        )


@dataclass(frozen=True, slots=True)
class Waterfall:
    """All lines, and the axis above them."""

    lines: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    begin_ms: int | None
    lasts: str


def waterfall_of(steps: Sequence[Step]) -> Waterfall:
    """Return the chart of some steps, in order of time."""
    moments = sorted(_moments(steps))
    at = positions(moments)
    begin_us = moments[0] if moments else 0
    lines = tuple(_line(step, at, begin_us) for step in in_order(steps))
    lasts = span_text(moments[-1] - begin_us) if moments else ""
    return Waterfall(
        lines, tuple(_ticks(moments, at)), begin_us // 1_000 if moments else None, lasts
    )


def positions(moments: Sequence[int]) -> dict[int, float]:
    """Return the position of each moment in percent; the first is at zero."""
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    unit = min(gaps, default=1)
    total = sum(math.log2(1 + gap / unit) for gap in gaps) or 1.0
    at, passed = dict.fromkeys(moments[:1], 0.0), 0.0
    for moment, gap in zip(moments[1:], gaps, strict=True):
        passed += math.log2(1 + gap / unit)
        at[moment] = RIGHT_PERCENT * passed / total
    return at


def span_text(lasts_us: int) -> str:
    """Return a duration in a suitable unit."""
    if lasts_us < 1_000:
        return f"{lasts_us} µs"
    if lasts_us < US_A_SECOND:
        ms = lasts_us / 1_000
        return f"{ms:.1f} ms" if lasts_us % 1_000 and ms < 100 else f"{ms:.0f} ms"
    if lasts_us < SECONDS_MAX * US_A_SECOND:
        return f"{lasts_us / US_A_SECOND:.1f} s"
    return str(duration(lasts_us / US_A_SECOND))


def _moments(steps: Iterable[Step]) -> set[int]:
    return {
        moment for step in steps for moment in (step.begin_us, step.end_us) if moment is not None
    }


def _line(step: Step, at: dict[int, float], begin_us: int) -> Line:
    if step.begin_us is None:
        return Line(step)
    left = at[step.begin_us]
    right = at[step.end_us] if step.end_us is not None else left
    lasts_us = step.lasts_us
    if lasts_us is None:
        passed = step.begin_us - begin_us
        label = _("at %(span)s") % {"span": span_text(passed)} if passed else _("at the start")
    else:
        # Record times have a resolution of a millisecond.
        label = span_text(lasts_us) if lasts_us else _("under 1 ms")
    is_left = right > LABEL_LEFT_FROM_PERCENT
    # If neither side of a bar has room for the label, place it over the bar's end.
    end = right if is_left and left < TICK_APART_PERCENT else left
    return Line(
        step,
        x=_percent(left),
        width=_percent(max(BAR_LEAST_PERCENT, right - left)),
        label_x=_percent(end - 0.6 if is_left else max(right, left + BAR_LEAST_PERCENT) + 0.6),
        label_anchor="end" if is_left else "start",
        label=label,
    )


def _ticks(moments: Sequence[int], at: dict[int, float]) -> list[Tick]:
    """Return the first and last moments, and others that have room."""
    if not moments:
        return []
    begin, end = moments[0], moments[-1]
    shown = [begin]
    for moment in moments:
        has_room = at[moment] - at[shown[-1]] >= TICK_APART_PERCENT
        # The last tick's label is to its left.
        if has_room and (moment == end or at[end] - at[moment] >= 2 * TICK_APART_PERCENT):
            shown.append(moment)
    return [
        Tick(
            _percent(at[moment]),
            span_text(moment - begin) if moment > begin else "0",
            "start" if moment == begin else "end" if moment == end else "middle",
        )
        for moment in shown
    ]


def _percent(value: float) -> str:
    return f"{value:.2f}%"
