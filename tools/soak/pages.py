"""A soak's figures as files: a table by minute (CSV), everything (JSON), and a picture (SVG)."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from tools.results.documents import Quantity, Soak
from tools.soak.levels import DESCRIPTORS, DISK, MEMORY, MIB, TASKS, THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tools.soak.levels import Verdict
    from tools.soak.soak import Figures, Minute

COLOURS = (
    *("#2f7d5b", "#b4652f", "#3f6fb5", "#8f4fa3"),
    *("#a8962b", "#4c4c4c", "#c2517b", "#4aa3a3"),
)
WIDTH, LEFT, RIGHT = 860, 70, 130
PANEL, GAP, TOP = 150, 34, 30
TICKS = 4


class Panel(NamedTuple):
    """Lines over the same minutes: each name's values, None for missing ones."""

    title: str
    lines: Mapping[str, Sequence[float | None]]
    is_logarithmic: bool = False


def write(directory: Path, figures: Figures) -> None:
    """Write soak.csv, soak.json and soak.svg."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "soak.csv").open("w", newline="") as file:
        table = csv.writer(file)
        rows = [row_of(one) for one in figures.minutes]
        names = list(dict.fromkeys(name for row in rows for name in row))
        table.writerow(names)
        table.writerows([row.get(name, "") for name in names] for row in rows)
    (directory / "soak.json").write_text(json.dumps(document_of(figures), indent=1) + "\n")
    (directory / "soak.svg").write_text(picture(figures.minutes))


def row_of(minute: Minute) -> dict[str, object]:
    """Return a minute's figures by column name."""
    return {
        "minute": minute.number,
        "acknowledged": minute.acknowledged,
        "p50_ms": round(minute.p50, 3),
        "p99_ms": round(minute.p99, 3),
        "p99.9_ms": round(minute.p999, 3),
        "longest_ms": round(minute.longest, 3),
        "longest_gap_s": round(minute.gap, 3),
        "restarted": minute.restarted,
        **{f"{name}_bytes": size for name, size in minute.disk.items()},
        **{key.replace(" ", "_"): value for key, value in minute.seen.items()},
    }


def document_of(figures: Figures) -> dict[str, object]:
    """Return everything for programs."""
    return {
        "rate": figures.rate,
        "seconds": round(figures.seconds, 1),
        "level": figures.is_level,
        "right": figures.is_right,
        "acknowledged": sum(one.acknowledged for one in figures.checked),
        "delivered": sum(one.delivered for one in figures.checked),
        "lost": dict(figures.total("lost")),
        "explained": dict(figures.total("explained")),
        "unexplained": sum(one.unexplained for one in figures.checked),
        "findings": figures.findings,
        "wrong": figures.wrong,
        "restarts": figures.restarts,
        "reports": dict(figures.reports),
        "frames": dict(figures.frames),
        "pages": figures.pages,
        "members": figures.members,
        "verdicts": [one._asdict() for one in figures.verdicts],
        "minutes": [asdict(one) for one in figures.minutes],
    }


def soak_of(figures: Figures, command: str, machine: dict[str, str]) -> Soak:
    """Return the figures in the form of docs/results/soak.json."""
    return Soak(
        command=command,
        machine=machine,
        minutes=round(figures.seconds / 60, 1),
        rate=round(figures.rate, 1),
        acknowledged=sum(one.acknowledged for one in figures.checked),
        delivered=sum(one.delivered for one in figures.checked),
        lost=figures.total("lost").total(),
        explained=figures.total("explained").total(),
        unexplained=sum(one.unexplained for one in figures.checked),
        restarts=len(figures.restarts),
        members=figures.members,
        pages=figures.pages,
        reports=figures.reports.total(),
        quantities=[_quantity(one) for one in figures.verdicts],
    )


def _quantity(verdict: Verdict) -> Quantity:
    scale, unit = {MEMORY: (MIB, "MiB"), DISK: (1, "B a message")}.get(verdict.what, (1, ""))
    return Quantity(
        process=verdict.name,
        what=verdict.what,
        unit=unit,
        second=round(verdict.second / scale, 1),
        last=round(verdict.last / scale, 1),
        minutes=round(verdict.seconds / 60),
        is_level=verdict.is_level,
    )


def picture(minutes: Sequence[Minute]) -> str:
    """Return panels of lines, one below the other: latencies, then the processes' resources."""
    restarts = [number for number, one in enumerate(minutes) if one.restarted]
    panels = [
        Panel(
            "sends, ms",
            {
                "p50": [one.p50 or None for one in minutes],
                "p99": [one.p99 or None for one in minutes],
                "p99.9": [one.p999 or None for one in minutes],
            },
            is_logarithmic=True,
        ),
        _of_programs("own memory, MiB", MEMORY, minutes, lambda value: value / MIB),
        _of_programs("descriptors", DESCRIPTORS, minutes),
        _of_programs("threads", THREADS, minutes),
        _of_programs("tasks of the broker", TASKS, minutes),
        Panel(
            "disk, MiB",
            {
                name: [one.disk.get(name, 0) / MIB for one in minutes]
                for name in sorted({name for one in minutes for name in one.disk})
                if max(one.disk.get(name, 0) for one in minutes) >= MIB
            },
        ),
    ]
    height = TOP + len(panels) * (PANEL + GAP)
    shown = [
        _drawn(panel, TOP + number * (PANEL + GAP), len(minutes), restarts)
        for number, panel in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11" role="img" '
        f'aria-label="A soak by minute: latencies, memory, descriptors, threads, tasks, disk">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(shown)}</svg>\n'
    )


def _of_programs(
    title: str,
    what: str,
    minutes: Sequence[Minute],
    scaled: Callable[[float], float] = lambda value: value,
) -> Panel:
    keys = sorted({key for one in minutes for key in one.seen if key.endswith(f" {what}")})
    lines = {
        key.partition(" ")[0]: [
            scaled(one.seen[key]) if key in one.seen else None for one in minutes
        ]
        for key in keys
    }
    return Panel(title, lines)


def _drawn(panel: Panel, top: int, count: int, restarts: Sequence[int]) -> str:
    values = [value for line in panel.lines.values() for value in line if value is not None]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if panel.is_logarithmic:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
    else:
        low, high = 0.0, _rounded_up(high)
    if high <= low:
        high = low + 1

    def across(number: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * number / max(1, count - 1)

    def up(value: float) -> float:
        if panel.is_logarithmic:
            part = (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
        else:
            part = (value - low) / (high - low)
        return top + PANEL * (1 - part)

    parts = [f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{panel.title}</text>']
    for value in _ticks(low, high, is_logarithmic=panel.is_logarithmic):
        y = up(value)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for number in restarts:
        x = across(number)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + PANEL}" stroke="#aaa" '
            f'stroke-dasharray="2 3"/>'
        )
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = _path([(across(at), up(v)) if v is not None else None for at, v in enumerate(line)])
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = top + 10 + number * 14
        parts.append(
            f'<rect x="{WIDTH - RIGHT + 10}" y="{y - 8}" width="9" height="9" fill="{colour}"/>'
            f'<text x="{WIDTH - RIGHT + 24}" y="{y}">{name}</text>'
        )
    bottom = top + PANEL + 13
    parts.append(f'<text x="{LEFT}" y="{bottom}">0</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{bottom}" text-anchor="end">minute {count - 1}</text>'
    )
    return "".join(parts)


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """Return a line through points, with gaps for missing ones."""
    words = []
    is_down = False
    for point in points:
        if point is None:
            is_down = False
            continue
        words.append(f"{'L' if is_down else 'M'}{point[0]:.1f} {point[1]:.1f}")
        is_down = True
    return "".join(words)


def _ticks(low: float, high: float, *, is_logarithmic: bool) -> list[float]:
    if is_logarithmic:
        first, last = round(math.log10(low)), round(math.log10(high))
        return [10.0**each for each in range(first, last + 1)]
    return [low + (high - low) * each / TICKS for each in range(TICKS + 1)]


def _rounded_up(value: float) -> float:
    """Return the next of 1, 2, 4, 5, 8 and 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(each * power for each in (1, 2, 4, 5, 8, 10) if each * power >= value)
