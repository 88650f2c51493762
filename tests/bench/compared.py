"""Ours beside the real brokers: `python -m tests.bench`.

Every cell of every contender is measured slice by slice, in turn, so that a machine whose pace
varies disturbs all alike; figures are medians of slices. The real brokers come from their published
jars (Maven, offline once it has them). A quiet machine with two cores or more, Java and Maven:

    python -m tests.bench                          # all, three rounds: about 55 minutes
    python -m tests.bench --quick                  # one round of four cells: two minutes
    python -m tests.bench --cells send-64,pull-32 --brokers ours,4.9.7 --rounds 1
    python -m tests.bench --write docs             # figures into docs/performance.md
    python -m tests.bench --against ../before      # another checkout instead of other brokers
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.bench import loads
from tests.bench.cells import (
    ASYNC,
    CELLS,
    END_TO_END,
    KIB,
    ONE_KIB,
    SETTLE,
    TAGGED,
    TOPIC,
    Cell,
    a_send,
)
from tests.bench.contenders import NAMES, OURS, TWICE, WORDS, Running, running, supports
from tests.bench.machine import about
from tests.bench.results import Results, Sample
from tests.support.broker_process import ROOT
from tests.support.log_end import log_end
from tests.support.raw_remoting import create_topic

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from tests.bench.loads import Loaded

QUICK_CELLS = ("send-64", "batch-1k", "pull-32", "end-to-end")
QUICK_BROKERS = (OURS, "4.9.7")
WARM_UP = Cell("warm-up", "", ONE_KIB, window=64)
ONE_SEND = Cell("one-send", "", ONE_KIB)
WARM_UP_SECONDS = 6.0
"""By then the real brokers' code is compiled."""
FILLING = Cell("filling", "", (a_send(64 * KIB),), window=8)
SEEDED = Cell("seeded", "", TAGGED, window=64)
WARM_UP_SLICES = 1
ROUND_OVERHEAD_SECONDS = 20.0
"""Of starting, warming up and stopping each contender in each setting."""


class Plan(NamedTuple):
    """What is to be measured."""

    cells: Sequence[Cell]
    brokers: Sequence[str]
    rounds: int
    slices: int
    seconds: float
    store_bytes: int
    directory: Path | None

    def minutes(self) -> float:
        """Return about how long it takes."""
        settings = {cell.setting for cell in self.cells}
        slices = self.rounds * (self.slices + WARM_UP_SLICES) * len(self.brokers)
        loads_seconds = sum(slices * (self.seconds + cell.settle) for cell in self.cells)
        starts = self.rounds * len(self.brokers) * len(settings) * ROUND_OVERHEAD_SECONDS
        stores = self.store_bytes / 100e6 + 10 * self.rounds * len(self.brokers)
        return (loads_seconds + starts + (stores if self.store_bytes else 0)) / 60


def plan_of(asked: argparse.Namespace) -> Plan:
    """Return what the command line asks for.

    Raises:
        ValueError: a cell or broker that there is not; the text is one sentence.
    """
    wanted = asked.cells.split(",") if asked.cells else QUICK_CELLS if asked.quick else None
    names = asked.brokers.split(",") if asked.brokers else QUICK_BROKERS if asked.quick else NAMES
    known = {cell.key: cell for cell in CELLS}
    for given, valid in ((wanted or (), known), (names, NAMES)):
        for one in given:
            if one not in valid:
                raise ValueError(f"{one!r} is none of: {', '.join(valid)}")
    return Plan(
        cells=[known[key] for key in wanted] if wanted else CELLS,
        brokers=names,
        rounds=asked.rounds or (1 if asked.quick else 3),
        slices=3 if asked.quick else 5,
        seconds=asked.seconds or (0.5 if asked.quick else 1.0),
        store_bytes=0 if asked.quick else int(asked.store_gib * (1 << 30)),
        directory=asked.directory,
    )


def compare(plan: Plan) -> Results:
    """Measure all of a plan, with a line for each step on standard error."""
    if any(name in (OURS, TWICE) for name in plan.brokers):
        # Without it they would not start, and say why.
        subprocess.run([sys.executable, "-m", "broker_core.native.build"], cwd=ROOT, check=True)
    results = Results(about(), plan.cells, plan.brokers)
    for number in range(plan.rounds):
        for setting in dict.fromkeys(cell.setting for cell in plan.cells):
            _tell(f"round {number + 1} of {plan.rounds}: {setting}")
            # Pulls first: sends put what is pulled beyond accessMessageInMemoryMaxRatio, in the
            # log of the fastest the soonest, and what lies there is given out eight at a time.
            cells = sorted(
                (cell for cell in plan.cells if cell.setting == setting),
                key=lambda cell: not cell.is_pull,
            )
            with _started(plan, setting) as contenders:
                for contender in contenders:
                    if setting == ASYNC:
                        results.start_seconds[contender.name, "an empty store"].append(
                            contender.start_seconds
                        )
                        results.memory[contender.name, "at rest"].append(contender.own_bytes())
                    _warm_up(contender)
                for cell in cells:
                    _measure_cell(cell, contenders, plan, results)
                if setting == ASYNC:
                    for contender in contenders:
                        results.memory[contender.name, "under load"].append(contender.own_bytes())
    if plan.store_bytes:
        _starts_with_a_store(plan, results)
    return results


@contextlib.contextmanager
def _started(plan: Plan, setting: str) -> Iterator[list[Running]]:
    with (
        tempfile.TemporaryDirectory(dir=plan.directory) as directory,
        contextlib.ExitStack() as stack,
    ):
        yield [
            stack.enter_context(running(name, setting, Path(directory, name.replace(" ", "-"))))
            for name in plan.brokers
            if supports(name, setting)
        ]


def _warm_up(contender: Running) -> None:
    _until_acknowledged(contender)
    loads.run(contender.ports, WARM_UP, WARM_UP_SECONDS)
    for port in contender.ports:
        loads.run([port], SEEDED, 0.5)


def _until_acknowledged(contender: Running) -> None:
    """Wait until sends count: a SYNC_MASTER without its slave answers otherwise."""
    deadline = time.monotonic() + 120
    while True:
        try:
            loads.run(contender.ports, ONE_SEND, 0.0)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _measure_cell(cell: Cell, contenders: Sequence[Running], plan: Plan, results: Results) -> None:
    is_for_two = cell.connections > 1 and cell.kind != END_TO_END
    taking_part = [one for one in contenders if one.name != TWICE or is_for_two]
    counted = {
        one.name: replace(cell, messages=loads.pulled(one.ports[0], cell)) if cell.is_pull else cell
        for one in taking_part
    }
    for number in range(-WARM_UP_SLICES, plan.slices):
        # Each first in turn: what runs first finds other caches.
        order = taking_part if number % 2 else taking_part[::-1]
        for one in order:
            sample = slice_of(one, counted[one.name], plan.seconds)
            if number >= 0:
                results.samples[cell.key, one.name].append(sample)
    medians = [(one.name, results.figure(cell, one.name)) for one in taking_part]
    shown = "  ".join(f"{name} {found.cost:.1f}" for name, found in medians if found is not None)
    _tell(f"  {cell.name}: µs a message: {shown}")


def slice_of(contender: Running, cell: Cell, seconds: float) -> Sample:
    """Load a contender once."""
    return sample_of(contender, lambda: loads.run(contender.ports, cell, seconds), cell.settle)


def sample_of(contender: Running, load: Callable[[], Loaded], settle: float = SETTLE) -> Sample:
    """Measure a load; work that follows within `settle` seconds belongs to it."""
    before = contender.thread_nanoseconds()
    loaded = load()
    time.sleep(settle)
    used: defaultdict[int, list[int]] = defaultdict(list)
    for (pid, thread), nanoseconds in contender.thread_nanoseconds().items():
        used[pid].append(nanoseconds - before.get((pid, thread), 0))
    busiest = sum(max(each) for each in used.values())
    every = sum(map(sum, used.values()))
    return Sample.of(loaded, busiest, every)


def _starts_with_a_store(plan: Plan, results: Results) -> None:
    """Start each contender in turn on one store that ours wrote and closed."""
    with tempfile.TemporaryDirectory(dir=plan.directory) as directory:
        store = Path(directory, "store")
        size = f"a store of {plan.store_bytes / (1 << 30):g} GiB"
        _tell(size)
        with running(OURS, ASYNC, Path(directory, "filled"), store=store) as one:
            create_topic(one.ports[0], TOPIC)
            while log_end(one.ports[0]) < plan.store_bytes:
                loads.run(one.ports, FILLING, 1.0)
        names = [name for name in plan.brokers if name != TWICE]
        for number in range(-1, plan.rounds):
            for name in names:
                place = Path(directory, f"{name}-{number}")
                with running(name, ASYNC, place, store=store) as one:
                    if number >= 0:
                        results.start_seconds[name, size].append(one.start_seconds)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main(asked: argparse.Namespace) -> int:
    """Measure, print and write what the command line asks for."""
    try:
        plan = plan_of(asked)
    except ValueError as error:
        _tell(str(error))
        return 2
    _tell(f"{', '.join(WORDS[name] for name in plan.brokers)}: about {plan.minutes():.0f} minutes")
    results = compare(plan)
    sys.stdout.write(results.table() + "\n")
    if asked.json is not None:
        asked.json.write_text(results.json())
    if asked.write is not None:
        results.write_into(asked.write, f"python -m tests.bench {' '.join(sys.argv[1:])}".rstrip())
    return 0
