"""The figures of a comparison: a table, every slice as JSON, and the medians for docs/results."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tools.bench.contenders import OURS, REAL, WORDS
from tools.results import documents, pages, picture
from tools.results.documents import CellResult, Comparison, Figures, Ratio, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tools.bench.cells import Cell
    from tools.bench.loads import Loaded

BASE = REAL[0]
"""The broker that others are compared with, if it takes part."""
HEAD = ("broker", "messages/s", "thread µs", "others µs", "p50 ms", "p99 ms", "p99.9 ms")


class Sample(NamedTuple):
    """One slice: messages per second, microseconds per message, milliseconds of requests.

    Attributes:
        thread: the busiest thread of each broker, which is our loop's.
        others: all other threads.
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
        """Compute a slice's figures from its load and the brokers' CPU time, in nanoseconds."""
        times = sorted(loaded.nanoseconds)
        p50, p99, p999 = (times[int((len(times) - 1) * part)] / 1e6 for part in (0.5, 0.99, 0.999))
        count = loaded.messages
        rest = every - busiest
        return cls(
            count / loaded.seconds, busiest / 1e3 / count, rest / 1e3 / count, p50, p99, p999
        )


class Verdict(NamedTuple):
    """Our ratios to the real broker's figures in a cell, and the targets."""

    cost: float
    rate: float
    p99: float
    is_reached: bool
    target: str


@dataclass(slots=True)
class Results:
    """All measurements."""

    machine: dict[str, str]
    cells: Sequence[Cell]
    brokers: Sequence[str]
    samples: defaultdict[tuple[str, str], list[Sample]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By cell and broker; slices with the same number were measured one after the other."""
    start_seconds: defaultdict[tuple[str, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    memory: defaultdict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def figure(self, cell: Cell, name: str) -> Sample | None:
        """Return the medians of a cell, or None if the broker didn't take part."""
        figures = self.samples.get((cell.key, name))
        return Sample(*map(statistics.median, zip(*figures, strict=True))) if figures else None

    def ratios(self, cell: Cell, name: str) -> Sample | None:
        """Return the medians of the ratios between a slice and the real broker's adjacent one."""
        ours, theirs = self.samples.get((cell.key, name)), self.samples.get((cell.key, BASE))
        if not ours or not theirs:
            return None
        rows = [
            [one / other if other else 0.0 for one, other in zip(*pair, strict=True)]
            for pair in zip(ours, theirs, strict=True)
        ]
        return Sample(*map(statistics.median, zip(*rows, strict=True)))

    def verdict(self, cell: Cell, name: str = OURS) -> Verdict | None:
        """Return the verdict on a cell, or None without the real broker."""
        ours, theirs = self.samples.get((cell.key, name)), self.samples.get((cell.key, BASE))
        ratios = self.ratios(cell, name)
        if not ours or not theirs or ratios is None:
            return None
        pairs = zip(ours, theirs, strict=True)
        cost = statistics.median(one.cost / other.cost for one, other in pairs)
        targets = [f"cost ≤ {cell.cost:g}"] if cell.cost else []
        targets += [f"rate ≥ {cell.rate:g}"] if cell.rate else []
        is_reached = (not cell.cost or cost <= cell.cost) and ratios.rate >= cell.rate
        return Verdict(cost, ratios.rate, ratios.p99, is_reached, ", ".join(targets))

    def table(self) -> str:
        """Return everything as text."""
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
                    ratios = f"cost {found.cost:.2f}, rate {found.rate:.2f}, p99 {found.p99:.2f}"
                    mark = _mark(found) if name == OURS else ""
                    lines.append(f"  {WORDS[name]}: {ratios} of {WORDS[BASE]}'s{mark}")
        lines += ["", *(f"{label}: {text}" for label, text in self._others())]
        return "\n".join(lines)

    def json(self) -> str:
        """Return everything, each slice, for programs."""
        found = {
            "machine": self.machine,
            "cells": [
                {
                    "key": cell.key,
                    "name": cell.name,
                    "target": {"cost": cell.cost, "rate": cell.rate},
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

    def document(self, command: str) -> Comparison:
        """Return the medians in the form of docs/results/comparison.json."""
        return Comparison(
            command,
            self.machine,
            [self._cell_result(cell) for cell in self.cells],
            _by_state(self.start_seconds, 1.0),
            _by_state(self.memory, 1e6),
        )

    def write_into(self, folder: Path, command: str) -> None:
        """Write the medians into a folder of documents, and render its pages and picture."""
        found = self.document(command)
        documents.write(folder, "comparison", found)
        picture.write(folder, found)
        pages.render(folder)

    def _cell_result(self, cell: Cell) -> CellResult:
        figures = {name: self.figure(cell, name) for name in self.brokers}
        verdicts = {name: self.verdict(cell, name) for name in self.brokers if name != BASE}
        return CellResult(
            cell.key,
            cell.name,
            Target(cell.cost, cell.rate),
            {
                name: Figures(
                    round(one.thread, 2), round(one.others, 2), round(one.rate), round(one.p99, 3)
                )
                for name, one in figures.items()
                if one is not None
            },
            {
                name: Ratio(round(one.cost, 3), round(one.rate, 3))
                for name, one in verdicts.items()
                if one is not None
            },
        )

    def _others(self) -> Iterator[tuple[str, str]]:
        tables: list[tuple[str, Mapping[tuple[str, str], Sequence[float]], str, float]] = [
            ("start", self.start_seconds, "s", 1.0),
            ("own memory", self.memory, "MB", 1e6),
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
    if not found.target:
        return ""
    return f" ({'reached' if found.is_reached else 'NOT reached'}: {found.target})"


def _texts(figure: Sample) -> list[str]:
    times = [f"{each:.2f}" for each in (figure.p50, figure.p99, figure.p999)]
    return [f"{figure.rate:,.0f}", f"{figure.thread:.2f}", f"{figure.others:.2f}", *times]


def _columns(texts: Sequence[str]) -> str:
    first, *others = texts
    return f"{first:<26}" + "".join(f"{text:>12}" for text in others)


def _nested(table: Mapping[tuple[str, str], Sequence[float]]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for (name, state), values in table.items():
        found.setdefault(name, {})[state] = list(values)
    return found


def _by_state(
    table: Mapping[tuple[str, str], Sequence[float]], scale: float
) -> dict[str, dict[str, float]]:
    """Return medians by state, then by broker."""
    found: dict[str, dict[str, float]] = {}
    for (name, state), values in table.items():
        found.setdefault(state, {})[name] = round(statistics.median(values) / scale, 2)
    return found


def median_between(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the 95% confidence interval of the population median, given some values.

    The number of values below it is distributed like heads in as many coin tosses.
    """
    count = len(ordered)
    reach = 1.96 * math.sqrt(count) / 2
    first = max(0, math.floor(count / 2 - reach) - 1)
    return ordered[first], ordered[min(count - 1, math.ceil(count / 2 + reach))]
