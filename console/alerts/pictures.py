"""Pictures: a chart of a result as SVG, for a mail or a program that has no page to look at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.utils.html import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, MARGIN = 720, 240, 28
BAR_HEIGHT, LABEL_WIDTH, TEXT_WIDTH = 24, 220, 110
BARS_MAX = 20
LABEL_CHARACTERS_MAX = 34
COLOURS = ("#4f55d6", "#c2570c", "#0f766e", "#a21caf", "#4d7c0f", "#6b7280")
"""Those of the console's charts in the light theme; on white, which a mail is."""


def of_points(points: Mapping[str, Any]) -> str:
    """Return lines over time; the points are those that a page's chart takes."""
    times, series = points["times"], points["series"]
    most = max((value for each in series for value in each["values"]), default=0) or 1
    span = max(1, times[-1] - times[0])
    parts = []
    for number, each in enumerate(series):
        colour = COLOURS[min(number, len(COLOURS) - 1)]
        places = " ".join(
            f"{MARGIN + (WIDTH - 2 * MARGIN) * (time - times[0]) / span:.1f},"
            f"{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * max(0, value) / most:.1f}"
            for time, value in zip(times, each["values"], strict=True)
        )
        parts.append(
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        at = HEIGHT + 16 * number + 8
        label = cut(str(each["label"] if each["label"] is not None else "…"))
        parts.append(
            f'<rect x="{MARGIN}" y="{at - 8}" width="10" height="10" fill="{colour}"/>'
            + text(MARGIN + 16, at, label)
        )
    base = HEIGHT - MARGIN
    parts.append(
        f'<path d="M{MARGIN} {base}H{WIDTH - MARGIN}" stroke="#9ca3af"/>'
        + text(MARGIN, base + 16, moment(times[0]))
        + text(WIDTH - MARGIN, base + 16, moment(times[-1]), "end")
        + text(MARGIN, MARGIN - 10, figure(most))
    )
    return drawn(HEIGHT + 16 * len(series) + 8, parts)


def of_bars(bars: Sequence[tuple[str, str, float]]) -> str:
    """Return a bar for each name; the third is its part of the largest, 0 to 1."""
    room = WIDTH - LABEL_WIDTH - TEXT_WIDTH
    parts = []
    for number, (name, value, part) in enumerate(bars[:BARS_MAX]):
        at = BAR_HEIGHT * number + 8
        parts.append(
            text(8, at + 13, cut(name))
            + f'<rect x="{LABEL_WIDTH}" y="{at + 2}" width="{max(1.0, room * part):.1f}" '
            f'height="14" rx="2" fill="{COLOURS[0]}"/>' + text(WIDTH - 8, at + 13, value, "end")
        )
    return drawn(BAR_HEIGHT * len(parts) + 16, parts)


def drawn(height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def text(x: int, y: int, words: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#1f2937">{escape(words)}</text>'


def cut(words: str) -> str:
    whole = "".join(each if each.isprintable() else " " for each in words)
    if len(whole) <= LABEL_CHARACTERS_MAX:
        return whole
    return f"{whole[: LABEL_CHARACTERS_MAX - 1]}…"


def figure(value: float) -> str:
    digits = f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"
    return digits.replace(",", "\N{NO-BREAK SPACE}")


def moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
