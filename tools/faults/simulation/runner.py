"""Runner: many seeds, on all processors, and their results."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tools.faults.simulation import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS_AT_A_TIME = 25
LOG_EVERY = 1_000
WRONG_SHOWN = 5
COMMAND = "python -m tools.faults simulate --seeds {0}-{0}"


class Portion(NamedTuple):
    """The results of some seeds."""

    seeds: int
    seconds: float
    processor_s: float
    acknowledged: int
    delivered: int
    crashes: int
    wrong: list[str]


@dataclass
class Findings:
    """The results of all seeds.

    `seconds` is simulated time, `took_s` wall time, `processor_s` CPU time.
    """

    seeds: int = 0
    seconds: float = 0.0
    took_s: float = 0.0
    processor_s: float = 0.0
    acknowledged: int = 0
    delivered: int = 0
    crashes: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.seeds} seeds, {self.acknowledged} acknowledged, {self.delivered} delivered, "
            f"{self.crashes} crashes, {len(self.wrong)} wrong; {self.seconds:.0f} s simulated in "
            f"{self.took_s:.0f} s, {self.seconds / max(self.took_s, 1e-9):.0f} times real time, "
            f"{self.times_a_processor:.0f} times for each processor at work",
            *self.wrong,
        ]
        return "\n".join(lines)

    @property
    def times_a_processor(self) -> float:
        """How many times faster than real time one processor is, regardless of other load."""
        return self.seconds / max(self.processor_s, 1e-9)

    def add(self, portion: Portion) -> None:
        self.seeds += portion.seeds
        self.seconds += portion.seconds
        self.processor_s += portion.processor_s
        self.acknowledged += portion.acknowledged
        self.delivered += portion.delivered
        self.crashes += portion.crashes
        self.wrong += portion.wrong


def run(
    seeds: range, *, is_mixed: bool = False, say: Callable[[str], None] = lambda text: None
) -> Findings:
    """Run seeds in one process per processor; mixed ones with `groups`."""
    findings = Findings()
    began = time.monotonic()
    logged = 0
    for portion in _portions(seeds, is_mixed=is_mixed):
        findings.add(portion)
        for line in portion.wrong:
            say(line)
        if findings.seeds - logged >= LOG_EVERY:
            logged = findings.seeds
            say(f"{logged} seeds, {len(findings.wrong)} wrong")
    findings.took_s = time.monotonic() - began
    return findings


def _portions(seeds: range, *, is_mixed: bool) -> Iterator[Portion]:
    run_some = functools.partial(_run_some, is_mixed=is_mixed)
    pieces = [seeds[at : at + SEEDS_AT_A_TIME] for at in range(0, len(seeds), SEEDS_AT_A_TIME)]
    if len(pieces) == 1:
        yield run_some(pieces[0])
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, _begin) as pool:
        yield from pool.map(run_some, pieces)


def _begin() -> None:
    """Exclude the modules imported so far from garbage collection, above all the broker."""
    gc.collect()
    gc.freeze()


def _run_some(seeds: range, *, is_mixed: bool) -> Portion:
    command = f"{COMMAND} --mixed" if is_mixed else COMMAND
    sums: Counter[str] = Counter()
    seconds = 0.0
    wrong: list[str] = []
    began = time.process_time()
    for seed in seeds:
        try:
            outcome = world.run(seed, is_mixed=is_mixed)
        except Exception as error:  # noqa: BLE001  report the seed with any error
            wrong.append(f"{command.format(seed)}\n    {type(error).__name__}: {error}")
            continue
        seconds += outcome.seconds
        sums["acknowledged"] += outcome.acknowledged
        sums["delivered"] += outcome.delivered
        sums["crashes"] += outcome.crashes
        if outcome.wrong:
            wrong.append("\n    ".join([command.format(seed), *outcome.wrong[:WRONG_SHOWN]]))
    counts = sums["acknowledged"], sums["delivered"], sums["crashes"]
    return Portion(len(seeds), seconds, time.process_time() - began, *counts, wrong)
