"""Ours compared with another checkout: `python -m tools.bench --against ../before`.

Each round starts a broker of each checkout and loads them in turn, slice by slice, with the cells
of the comparison; --cells, --rounds and --seconds choose them. The figure is the CPU time of the
broker's threads, not the client's. The change is the median over pairs of adjacent slices, which
makes it robust against a machine of varying speed; still, use an idle one.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.broker_process import ROOT
from tools.bench import loads
from tools.bench.cells import CELLS
from tools.bench.contenders import OURS, running
from tools.bench.peer_comparison import known_cells, pulls_first, slice_of, warm_up

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tools.bench.cells import Cell

KEYS = ("pull-32", "pull-1", "send-64", "small-4x64", "batch-100")
ROUNDS, SLICES, SECONDS = 5, 25, 0.2
WARM_UP_SLICES, WARM_UP_SECONDS = 2, 1.0

Costs = defaultdict[tuple[str, int], list[float]]
"""CPU time per message in microseconds of each slice, by cell and the number of the checkout."""


def measure(
    checkouts: Sequence[Path], cells: Sequence[Cell], seconds: float, directory: Path, found: Costs
) -> None:
    """Add the slices of one pair of brokers, which run with the setting of the cells."""
    with contextlib.ExitStack() as stack:
        brokers = [
            stack.enter_context(
                running(OURS, cells[0].setting, directory / str(number), checkout=checkout)
            )
            for number, checkout in enumerate(checkouts)
        ]
        for one in brokers:
            warm_up(one, WARM_UP_SECONDS)
        for cell in cells:
            for number in range(-WARM_UP_SLICES, SLICES):
                # Alternate the order, because the first one finds different caches.
                order = range(len(brokers)) if number % 2 else range(len(brokers))[::-1]
                for which in order:
                    one = brokers[which]
                    its = cell
                    if cell.is_pull:
                        its = replace(cell, messages=loads.pulled(one.ports[0], cell))
                    cost = slice_of(one, its, seconds).cost
                    if number >= 0:
                        found[cell.key, which].append(cost)


def main(arguments: argparse.Namespace) -> int:
    """Compare two checkouts."""
    rounds, seconds = arguments.rounds or ROUNDS, arguments.seconds or SECONDS
    try:
        cells = pulls_first(known_cells(arguments.cells.split(",") if arguments.cells else KEYS))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    checkouts = [arguments.against.resolve(), ROOT]
    found: Costs = defaultdict(list)
    for _ in range(rounds):
        for setting in dict.fromkeys(cell.setting for cell in cells):
            its = [cell for cell in cells if cell.setting == setting]
            with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
                measure(checkouts, its, seconds, Path(directory), found)
    say = sys.stdout.write
    say(f"µs of CPU time per message, medians of {rounds} x {SLICES} slices\n")
    for cell in (one for one in CELLS if one in cells):
        medians = [statistics.median(found[cell.key, number]) for number in range(len(checkouts))]
        # A disturbance of the machine affects two adjacent slices in the same way.
        pairs = zip(found[cell.key, 0], found[cell.key, 1], strict=True)
        ratio = statistics.median(after / before for before, after in pairs)
        figures = " ".join(f"{median:8.2f}" for median in medians)
        say(f"{cell.name:<26} {figures}   {ratio - 1:+.1%}\n")
    return 0
