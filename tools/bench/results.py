"""The figures of a comparison: a table, JSON, a picture, and a page of the documents."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tools.bench.contenders import BATCHES, OURS, PYTHON, REAL, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tools.bench.cells import Cell
    from tools.bench.loads import Loaded

BASE = REAL[0]
"""Whose figures are the measure, where it takes part."""
FIGURES = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)
HEAD = ("broker", "messages/s", "thread µs", "others µs", "p50 ms", "p99 ms", "p99.9 ms")
PICTURE = "images/performance.svg"
COLOURS = {OURS: "#2f7d5b", PYTHON: "#8fbfa8", BASE: "#b4652f", REAL[1]: "#d9a47c"}
COLOURS |= dict(zip(BATCHES, ("#4a6fa5", "#a9bcd8"), strict=True))
BAR, GAP, LEFT, SCALE = 11, 14, 210, 420
MOST = 1.4
WIDTH = LEFT + int(MOST * SCALE) + 50


class Sample(NamedTuple):
    """One slice: messages a second, microseconds a message, milliseconds of requests.

    Attributes:
        thread: of the busiest thread of each broker, which is our loop's.
        others: of all other threads.
    """

    rate: float
    thread: float
    others: float
    p50: float
    p99: float
    p999: float

    @property
    def cost(self) -> float:
        return self.thread + self.others

    @classmethod
    def of(cls, loaded: Loaded, busiest: int, every: int) -> Sample:
        """Make a slice's figures of its load and the brokers' processor time, in nanoseconds."""
        times = sorted(loaded.nanoseconds)
        p50, p99, p999 = (times[int((len(times) - 1) * part)] / 1e6 for part in (0.5, 0.99, 0.999))
        count = loaded.messages
        rest = every - busiest
        return cls(
            count / loaded.seconds, busiest / 1e3 / count, rest / 1e3 / count, p50, p99, p999
        )


class Verdict(NamedTuple):
    """Ours as parts of the real one's in a cell, beside what is wanted."""

    cost: float
    rate: float
    p99: float
    is_reached: bool
    wanted: str


@dataclass(slots=True)
class Results:
    """Everything that was measured."""

    machine: dict[str, str]
    cells: Sequence[Cell]
    brokers: Sequence[str]
    samples: defaultdict[tuple[str, str], list[Sample]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By cell and broker; slices of one number were taken one after the other."""
    start_seconds: defaultdict[tuple[str, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    memory: defaultdict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def figure(self, cell: Cell, name: str) -> Sample | None:
        """Return the medians of a cell, None where the broker did not take part."""
        taken = self.samples.get((cell.key, name))
        return Sample(*map(statistics.median, zip(*taken, strict=True))) if taken else None

    def ratios(self, cell: Cell, name: str) -> Sample | None:
        """Return the medians of what each slice is of the real one's slice beside it."""
        ours, theirs = self.samples.get((cell.key, name)), self.samples.get((cell.key, BASE))
        if not ours or not theirs:
            return None
        rows = [
            [one / other if other else 0.0 for one, other in zip(*pair, strict=True)]
            for pair in zip(ours, theirs, strict=True)
        ]
        return Sample(*map(statistics.median, zip(*rows, strict=True)))

    def verdict(self, cell: Cell, name: str = OURS) -> Verdict | None:
        """Return what a cell comes to, None without the real one."""
        ours, theirs = self.samples.get((cell.key, name)), self.samples.get((cell.key, BASE))
        ratios = self.ratios(cell, name)
        if not ours or not theirs or ratios is None:
            return None
        pairs = zip(ours, theirs, strict=True)
        cost = statistics.median(one.cost / other.cost for one, other in pairs)
        wanted = [f"cost ≤ {cell.cost:g}"] if cell.cost else []
        wanted += [f"rate ≥ {cell.rate:g}"] if cell.rate else []
        is_reached = (not cell.cost or cost <= cell.cost) and ratios.rate >= cell.rate
        return Verdict(cost, ratios.rate, ratios.p99, is_reached, ", ".join(wanted))

    def table(self) -> str:
        """Return all of it as text."""
        lines = [f"{key}: {value}" for key, value in self.machine.items()]
        for cell in self.cells:
            lines += ["", cell.name, "  " + _columns(HEAD)]
            for name in self.brokers:
                figure = self.figure(cell, name)
                if figure is not None:
                    lines.append("  " + _columns((WORDS[name], *_texts(figure))))
            for name in self.brokers:
                found = self.verdict(cell, name) if name != BASE else None
                if found is not None:
                    said = f"cost {found.cost:.2f}, rate {found.rate:.2f}, p99 {found.p99:.2f}"
                    mark = _mark(found) if name == OURS else ""
                    lines.append(f"  {WORDS[name]}: {said} of {WORDS[BASE]}'s{mark}")
        lines += ["", *(f"{label}: {text}" for label, text in self._others())]
        return "\n".join(lines)

    def json(self) -> str:
        """Return all of it, each slice, for programs."""
        found = {
            "machine": self.machine,
            "cells": [
                {
                    "key": cell.key,
                    "name": cell.name,
                    "wanted": {"cost": cell.cost, "rate": cell.rate},
                    "slices": {
                        name: [each._asdict() for each in self.samples[cell.key, name]]
                        for name in self.brokers
                        if (cell.key, name) in self.samples
                    },
                }
                for cell in self.cells
            ],
            "startSeconds": _nested(self.start_seconds),
            "memoryBytes": _nested(self.memory),
        }
        return json.dumps(found, indent=1) + "\n"

    def markdown(self, command: str) -> str:
        """Return the figures as the documents show them."""
        took_part = {name for _, name in self.samples}
        names = [name for name in self.brokers if name in took_part]
        heads = [*(WORDS[name] for name in names), "ours of 4.9.7's"]
        lines = [f"![Processor time a message]({PICTURE})", ""]
        lines += [f"`{command}`: {', '.join(f'{k} {v}' for k, v in self.machine.items())}.", ""]
        lines += ["µs of processor a message (busiest thread + others); messages/s; p99 in ms:", ""]
        lines += [f"| cell | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
        for cell in self.cells:
            shown = [_short(self.figure(cell, name)) for name in names]
            found = self.verdict(cell)
            said = ""
            if found is not None:
                said = f"cost {found.cost:.2f}, rate {found.rate:.2f}{_mark(found)}"
            lines.append(f"| {cell.name} | {' | '.join([*shown, said])} |")
        lines += ["", *(f"- {label}: {text}" for label, text in self._others())]
        return "\n".join(lines) + "\n"

    def write_into(self, documents: Path, command: str) -> None:
        """Put the figures into performance.md, and the picture beside it."""
        page = documents / "performance.md"
        text = self.markdown(command)
        page.write_text(FIGURES.sub(lambda m: f"{m[1]}{text}{m[2]}", page.read_text()))
        (documents / PICTURE).write_text(self.picture())

    def picture(self) -> str:
        """Return bars: processor time a message, as parts of the real one's."""
        names = [name for name in (BASE, REAL[1], *BATCHES, PYTHON, OURS) if name in self.brokers]
        parts: list[str] = []
        x, y = 8, 34
        for name in names:
            parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{COLOURS[name]}"/>')
            parts.append(f'<text x="{x + 14}" y="17">{WORDS[name]}</text>')
            x += 26 + 6 * len(WORDS[name])
        for cell in self.cells:
            found = [(name, self.verdict(cell, name)) for name in names]
            bars = [(name, one.cost) for name, one in found if one is not None]
            if not bars:
                continue
            middle = y + BAR * len(bars) / 2 + 4
            parts.append(
                f'<text x="{LEFT - 8}" y="{middle:g}" text-anchor="end">{cell.name}</text>'
            )
            for name, part in bars:
                width = min(part, MOST) * SCALE
                size = f'width="{width:.1f}" height="{BAR - 1}"'
                parts.append(f'<rect x="{LEFT}" y="{y}" {size} fill="{COLOURS[name]}"/>')
                parts.append(f'<text x="{LEFT + width + 4:.1f}" y="{y + 9}">{part:.2f}</text>')
                y += BAR
            y += GAP
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" '
            f'font-family="sans-serif" font-size="11" role="img" '
            f'aria-label="Processor time a message, as parts of {WORDS[BASE]}\'s">'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
        )

    def _others(self) -> Iterator[tuple[str, str]]:
        tables: list[tuple[str, Mapping[tuple[str, str], Sequence[float]], str, float]] = [
            ("start", self.start_seconds, "s", 1.0),
            ("memory of its own", self.memory, "MB", 1e6),
        ]
        for what, table, unit, scale in tables:
            for state in dict.fromkeys(state for _, state in table):
                shown = [
                    f"{WORDS[name]} {statistics.median(table[name, state]) / scale:.2f} {unit}"
                    for name in self.brokers
                    if (name, state) in table
                ]
                yield f"{what}, {state}", ", ".join(shown)


def _mark(found: Verdict) -> str:
    if not found.wanted:
        return ""
    return f" ({'reached' if found.is_reached else 'NOT reached'}: {found.wanted})"


def _texts(figure: Sample) -> list[str]:
    times = [f"{each:.2f}" for each in (figure.p50, figure.p99, figure.p999)]
    return [f"{figure.rate:,.0f}", f"{figure.thread:.2f}", f"{figure.others:.2f}", *times]


def _short(figure: Sample | None) -> str:
    if figure is None:
        return "-"
    cost = f"{figure.thread:.1f} + {figure.others:.1f}"
    return f"{cost}; {figure.rate:,.0f}/s; {figure.p99:.2f}"


def _columns(texts: Sequence[str]) -> str:
    first, *others = texts
    return f"{first:<26}" + "".join(f"{text:>12}" for text in others)


def _nested(table: Mapping[tuple[str, str], Sequence[float]]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for (name, state), values in table.items():
        found.setdefault(name, {})[state] = list(values)
    return found


def median_between(ordered: Sequence[float]) -> tuple[float, float]:
    """Return between which of some values the median of all that there could be lies, at 95 %.

    As many lie below it as coins thrown as often fall on one side.
    """
    count = len(ordered)
    reach = 1.96 * math.sqrt(count) / 2
    first = max(0, math.floor(count / 2 - reach) - 1)
    return ordered[first], ordered[min(count - 1, math.ceil(count / 2 + reach))]
