"""Compare Trebuchet with the real brokers: `python -m tools.bench`.

Each cell measures the brokers in turn, slice by slice, so that a machine of varying speed affects
all of them equally; figures are medians of slices. The real brokers come from their published
jars (Maven, offline once it has them). Use an idle machine with two cores or more, Java and Maven:

    python -m tools.bench                          # all, three rounds: about 55 minutes
    python -m tools.bench --quick                  # one round of four cells: two minutes
    python -m tools.bench --cells send-64,pull-32 --brokers ours,4.9.7 --rounds 1
    python -m tools.bench --write docs             # into docs/results
    python -m tools.bench --against ../before      # another checkout instead of other brokers
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.raw_remoting import create_topic
from tools.bench import loads
from tools.bench.cells import ASYNC, CELLS, KIB, ONE_KIB, SETTLE, TAGGED, TOPIC, Cell, a_send
from tools.bench.comparison import Results, Sample
from tools.bench.contenders import (
    BATCHES,
    FLOOR,
    NAMES,
    OURS,
    TWICE,
    WORDS,
    Running,
    cell_of,
    running,
    supports,
)
from tools.results.machine import about

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tools.bench.loads import Loaded

QUICK_CELLS = ("send-64", "batch-1k", "pull-32", "end-to-end")
QUICK_BROKERS = (OURS, "4.9.7")
# Two connections, so that each of two brokers has one.
WARM_UP = Cell("warm-up", "", ONE_KIB, connections=2, window=32)
ONE_SEND = Cell("one-send", "", ONE_KIB, connections=2)
WARM_UP_SECONDS = 6.0
"""The real brokers' code is compiled by then."""
# 32 of them in a request are less than Kafka's message.max.bytes.
FILLING_BYTES = 16 * KIB
FILLING = Cell("filling", "", (a_send(FILLING_BYTES),), window=8)
SEEDED = Cell("seeded", "", TAGGED, window=64)
WARM_UP_SLICES = 1
ROUND_OVERHEAD_SECONDS = 20.0
"""Starting, warming up and stopping each contender in each setting."""


class Plan(NamedTuple):
    """The planned measurements."""

    cells: Sequence[Cell]
    brokers: Sequence[str]
    rounds: int
    slices: int
    seconds: float
    store_bytes: int
    directory: Path | None

    def minutes(self) -> float:
        """Return the approximate duration."""
        settings = {cell.setting for cell in self.cells}
        slices = self.rounds * (self.slices + WARM_UP_SLICES) * len(self.brokers)
        loads_seconds = sum(slices * (self.seconds + cell.settle) for cell in self.cells)
        starts = self.rounds * len(self.brokers) * len(settings) * ROUND_OVERHEAD_SECONDS
        stores = self.store_bytes / 100e6 + 10 * self.rounds * len(self.brokers)
        return (loads_seconds + starts + (stores if self.store_bytes else 0)) / 60


def known_cells(keys: Sequence[str]) -> list[Cell]:
    """Return the cells of these names.

    Raises:
        ValueError: an unknown name; the text is one sentence.
    """
    known = {cell.key: cell for cell in CELLS}
    for key in keys:
        if key not in known:
            raise ValueError(f"{key!r} isn't one of: {', '.join(known)}")
    return [known[key] for key in keys]


def pulls_first(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells in the order in which they are measured.

    Sends push older messages past accessMessageInMemoryMaxRatio, soonest in the log of the fastest
    broker, and such messages are returned only eight at a time.
    """
    return sorted(cells, key=lambda cell: not cell.is_pull)


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Return the options of the command line.

    Raises:
        ValueError: a cell or broker that doesn't exist, or too few of them to publish.
    """
    expected = (
        arguments.cells.split(",") if arguments.cells else QUICK_CELLS if arguments.quick else None
    )
    names = (
        arguments.brokers.split(",")
        if arguments.brokers
        else QUICK_BROKERS
        if arguments.quick
        else NAMES
    )
    for one in names:
        if one not in NAMES:
            raise ValueError(f"{one!r} isn't one of: {', '.join(NAMES)}")
    if arguments.write and (
        expected or not set(QUICK_BROKERS) <= set(names) or not arguments.store_gib
    ):
        raise ValueError(
            f"--write publishes every cell of {' and '.join(QUICK_BROKERS)}, and starts with a "
            "store; leave out --cells, --quick, --store-gib 0, or --write"
        )
    return Plan(
        cells=known_cells(expected) if expected else CELLS,
        brokers=names,
        rounds=arguments.rounds or (1 if arguments.quick else 3),
        slices=3 if arguments.quick else 5,
        seconds=arguments.seconds or (0.5 if arguments.quick else 1.0),
        store_bytes=0 if arguments.quick else int(arguments.store_gib * (1 << 30)),
        directory=arguments.directory,
    )


def compare(plan: Plan, results: Results) -> None:
    """Measure everything in a plan, with a line for each step on standard error."""
    for number in range(plan.rounds):
        for setting in dict.fromkeys(cell.setting for cell in plan.cells):
            _tell(f"round {number + 1} of {plan.rounds}: {setting}")
            cells = pulls_first(cell for cell in plan.cells if cell.setting == setting)
            with _started(plan, setting) as contenders:
                for contender in contenders:
                    if setting == ASYNC:
                        results.start_seconds[contender.name, "an empty store"].append(
                            contender.start_seconds
                        )
                        results.memory[contender.name, "at rest"].append(contender.own_bytes())
                    warm_up(contender)
                for cell in cells:
                    _measure_cell(cell, contenders, plan, results)
                if setting == ASYNC:
                    for contender in contenders:
                        results.memory[contender.name, "under load"].append(contender.own_bytes())
    if plan.store_bytes:
        _starts_with_a_store(plan, results)


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


def warm_up(contender: Running, seconds: float = WARM_UP_SECONDS) -> None:
    """Load a broker until it has reached full speed and has messages to pull."""
    _until_acknowledged(contender)
    _load(contender, WARM_UP, seconds)
    for port in contender.ports:
        if (seeded := cell_of(contender.name, SEEDED)) is not None:
            loads.run([port], seeded, 0.5)


def _load(contender: Running, cell: Cell, seconds: float) -> Loaded:
    its = cell_of(contender.name, cell)
    assert its is not None, cell.name
    return loads.run(contender.ports, its, seconds)


def _until_acknowledged(contender: Running) -> None:
    """Wait until sends succeed: a SYNC_MASTER without its slave answers with an error."""
    deadline = time.monotonic() + 120
    while True:
        try:
            _load(contender, ONE_SEND, 0.0)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _measure_cell(cell: Cell, contenders: Sequence[Running], plan: Plan, results: Results) -> None:
    counted = {}
    for one in contenders:
        its = cell_of(one.name, cell)
        if its is not None and cell.is_pull:
            its = replace(its, messages=loads.pulled(one.ports[0], its))
        if its is not None:
            counted[one.name] = its
    taking_part = [one for one in contenders if one.name in counted]
    for number in range(-WARM_UP_SLICES, plan.slices):
        # Alternate the order, because the first one finds different caches.
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
    """Measure a load, including the work of the next `settle` seconds."""
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
    """Start each contender in turn on one store that ours wrote and closed; Kafka on its own."""
    size = f"a store of {plan.store_bytes / (1 << 30):g} GiB"
    _tell(size)
    families = (
        (OURS, [name for name in plan.brokers if name not in {TWICE, FLOOR, *BATCHES}]),
        *((name, [name]) for name in plan.brokers if name in BATCHES),
    )
    for writer, names in families:
        with tempfile.TemporaryDirectory(dir=plan.directory) as directory:
            store = Path(directory, "store")
            if names:
                _fill(writer, Path(directory, "filled"), store, plan.store_bytes)
            for number in range(-1, plan.rounds):
                for name in names:
                    place = Path(directory, f"{name}-{number}")
                    with running(name, ASYNC, place, store=store) as one:
                        if number >= 0:
                            results.start_seconds[name, size].append(one.start_seconds)


def _fill(writer: str, directory: Path, store: Path, expected: int) -> None:
    with running(writer, ASYNC, directory, store=store) as one:
        if writer not in BATCHES:
            create_topic(one.ports[0], TOPIC)
        sent = 0
        while sent < expected:
            sent += _load(one, FILLING, 1.0).messages * FILLING_BYTES


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main(arguments: argparse.Namespace) -> int:
    """Measure, print and write everything that the command line asks for."""
    try:
        plan = plan_of(arguments)
    except ValueError as error:
        _tell(str(error))
        return 2
    _tell(f"{', '.join(WORDS[name] for name in plan.brokers)}: about {plan.minutes():.0f} minutes")
    results = Results(about(), plan.cells, plan.brokers)
    try:
        compare(plan, results)
    finally:
        # After an aborted run, write the partial results.
        if arguments.json is not None:
            arguments.json.write_text(results.json())
    sys.stdout.write(results.table() + "\n")
    if arguments.write is not None:
        results.write_into(
            arguments.write, f"python -m tools.bench {' '.join(sys.argv[1:])}".rstrip()
        )
    return 0
