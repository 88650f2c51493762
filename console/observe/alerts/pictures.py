"""Charts of results, laid out once and rendered as SVG for programs or PNG for mail.

A picture is a list of positioned shapes, so that both formats look the same; messages store it as
JSON.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from django.utils.html import escape
from django.utils.translation import gettext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, MARGIN = 720, 240, 28
BAR_HEIGHT, LABEL_WIDTH, TEXT_WIDTH = 24, 220, 110
HEAD_HEIGHT, TITLE_SIZE, TEXT_SIZE = 52, 16, 12
BARS_MAX = 20
# In Latin letters; a Chinese character is as wide as two of them.
LABEL_CHARACTERS_MAX = 34
HEAD_CHARACTERS_MAX = 96
COLOURS = ("#4f55d6", "#c2570c", "#0f766e", "#a21caf", "#4d7c0f", "#6b7280")
"""The colours of the console's charts in the light theme, because mail has a white background."""
INK, FAINT_INK, AXIS, GRID = "#1f2937", "#6b7280", "#9ca3af", "#e5e7eb"
GRID_LINES = 4
DOT = 4


class Line(msgspec.Struct, tag=True):
    """A polyline."""

    points: list[tuple[float, float]]
    colour: str
    width: float = 1.5


class Box(msgspec.Struct, tag=True):
    """A filled rectangle: left, top, width, height."""

    place: tuple[float, float, float, float]
    colour: str


class Words(msgspec.Struct, tag=True):
    """A line of text: `at` is the start or end of its baseline; it is cut to `most` letters."""

    at: tuple[float, float]
    text: str
    is_end: bool = False
    size: int = TEXT_SIZE
    colour: str = INK
    most: int = LABEL_CHARACTERS_MAX


class Picture(msgspec.Struct):
    """Shapes on white, WIDTH wide, drawn in order."""

    height: int
    shapes: list[Line | Box | Words]

    def as_json(self) -> dict[str, Any]:
        """Return the picture as JSON values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def headed(self, title: str, about: str) -> Picture:
        """Return the picture below a title and a subtitle."""
        most = HEAD_CHARACTERS_MAX
        head: list[Line | Box | Words] = [
            Words((MARGIN, 24), cut(title, most), size=TITLE_SIZE, most=most),
            Words((MARGIN, 43), cut(about, most), colour=FAINT_INK, most=most),
        ]
        return Picture(self.height + HEAD_HEIGHT, head + [_lower(each) for each in self.shapes])


def picture_from_json(found: object) -> Picture | None:
    """Return the picture in stored JSON, or None if the JSON isn't a picture."""
    try:
        return msgspec.convert(found, Picture)
    except msgspec.ValidationError:
        return None


def of_points(points: Mapping[str, Any]) -> Picture:
    """Return a line chart over time from the points of a page's chart.

    A line has a gap where a value is None.
    """
    times, series = points["times"], points["series"]
    most = max((value or 0 for each in series for value in each["values"]), default=0) or 1
    span = max(1, times[-1] - times[0])
    base, room = HEIGHT - MARGIN, HEIGHT - 2 * MARGIN
    shapes: list[Line | Box | Words] = [
        Line([(MARGIN, y), (WIDTH - MARGIN, y)], AXIS if y == base else GRID, 1)
        for y in (base - room * index / GRID_LINES for index in range(GRID_LINES, -1, -1))
    ]
    for number, each in enumerate(series):
        colour = COLOURS[min(number, len(COLOURS) - 1)]
        places = [
            None
            if value is None
            else (
                round(MARGIN + (WIDTH - 2 * MARGIN) * (time - times[0]) / span, 1),
                round(base - room * max(0, value) / most, 1),
            )
            for time, value in zip(times, each["values"], strict=True)
        ]
        at = HEIGHT + 16 * number + 8
        shapes += [
            *_lines(places, colour),
            Box((MARGIN, at - 9, 10, 10), colour),
            Words((MARGIN + 16, at), cut(series_label(each["label"]))),
        ]
    shapes += [
        Words((MARGIN, base + 16), moment(times[0]), colour=FAINT_INK),
        Words((WIDTH - MARGIN, base + 16), moment(times[-1]), is_end=True, colour=FAINT_INK),
        Words((MARGIN, MARGIN - 10), figure(most), colour=FAINT_INK),
    ]
    return Picture(HEIGHT + 16 * len(series) + 8, shapes)


def _lines(places: Sequence[tuple[float, float] | None], colour: str) -> list[Line | Box]:
    """Return a line for each run of positions, or a dot for a single one."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place in places:
        if place is None:
            runs.append([])
        else:
            runs[-1].append(place)
    return [
        Line(run, colour)
        if len(run) > 1
        else Box((run[0][0] - DOT / 2, run[0][1] - DOT / 2, DOT, DOT), colour)
        for run in runs
        if run
    ]


def series_label(label: str | None) -> str:
    """Return the label of a line; None is the line for all others."""
    return gettext("all others") if label is None else label or "-"


def of_bars(bars: Sequence[tuple[str, str, float]]) -> Picture:
    """Return a bar chart; each row's third value is its share of the largest, 0 to 1."""
    room = WIDTH - LABEL_WIDTH - TEXT_WIDTH
    shapes: list[Line | Box | Words] = []
    shown = bars[:BARS_MAX]
    for number, (name, value, part) in enumerate(shown):
        at = BAR_HEIGHT * number + 8
        length = round(max(1.0, room * part), 1)
        shapes += [
            Words((MARGIN, at + 13), cut(name)),
            Box((LABEL_WIDTH + MARGIN, at + 2, length, 14), COLOURS[0]),
            Words((WIDTH - MARGIN, at + 13), value, is_end=True),
        ]
    return Picture(BAR_HEIGHT * len(shown) + 16, shapes)


def svg_of(picture: Picture) -> str:
    """Return a picture as SVG."""
    height = picture.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f"{''.join(map(_svg, picture.shapes))}</svg>"
    )


def _svg(shape: Line | Box | Words) -> str:
    match shape:
        case Line(points, colour, width):
            places = " ".join(f"{x:g},{y:g}" for x, y in points)
            return (
                f'<polyline points="{places}" fill="none" stroke="{colour}" '
                f'stroke-width="{width:g}"/>'
            )
        case Box((left, top, width, height), colour):
            return (
                f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" '
                f'fill="{colour}"/>'
            )
        case Words((x, y), text, is_end, size, colour):
            anchor = "end" if is_end else "start"
            return (
                f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" '
                f'fill="{colour}">{escape(text)}</text>'
            )


def _lower(shape: Line | Box | Words) -> Line | Box | Words:
    match shape:
        case Line(points):
            lower = [(x, y + HEAD_HEIGHT) for x, y in points]
            return msgspec.structs.replace(shape, points=lower)
        case Box((left, top, width, height)):
            return msgspec.structs.replace(shape, place=(left, top + HEAD_HEIGHT, width, height))
        case Words((x, y)):
            return msgspec.structs.replace(shape, at=(x, y + HEAD_HEIGHT))


def cut(words: str, most: int = LABEL_CHARACTERS_MAX) -> str:
    """Return as much of a text as fits into the width of `most` Latin letters."""
    whole = "".join(each if each.isprintable() else " " for each in words)
    if sum(map(_columns, whole)) <= most:
        return whole
    kept, room = 0, most - 1
    while (room := room - _columns(whole[kept])) >= 0:
        kept += 1
    return f"{whole[:kept]}…"


def _columns(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def figure(value: float) -> str:
    digits = f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"
    return digits.replace(",", "\N{NO-BREAK SPACE}")


def moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
