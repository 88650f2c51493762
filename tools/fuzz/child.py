"""Run one target in a separate process: coverage-guided by atheris, or at random.

    python -m tools.fuzz.child TARGET --report FILE ...

`python -m tools.fuzz` starts it. No broker module is imported before atheris can instrument it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.fuzz.mutation import mutated
from tools.fuzz.target import INPUT_BYTES_MAX
from tools.fuzz.trial import Trial, TrialOverError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.fuzz.target import Target

PACKAGE = "broker_core"
TARGETS = "tools.fuzz.targets"
FOREVER_S = 1_000_000


def is_guided() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def read_corpus(directories: Sequence[Path]) -> list[bytes]:
    """Return the distinct inputs of directories, in the order of their names."""
    found: dict[bytes, None] = {}
    for directory in directories:
        for path in sorted(directory.glob("*")):
            found[path.read_bytes()] = None
    return list(found)


def target_named(name: str) -> Target:
    """Return a target; imports everything that the targets need."""
    targets: dict[str, Target] = importlib.import_module(TARGETS).TARGETS
    return targets[name]


def run_at_random(trial: Trial, corpus: Sequence[bytes], seed: int | str) -> None:
    """Run the corpus, then mutated inputs, until the trial is over."""
    rng = random.Random(seed)
    try:
        for data in corpus:
            trial.give(data)
        while True:
            trial.give(mutated(rng, corpus))
    except TrialOverError:
        return


def run_guided(
    trial_of: Callable[[], Trial], corpus: Sequence[Path], artifacts: Path, seed: int
) -> None:
    """Let atheris choose inputs; ends the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=[PACKAGE]):
        trial = trial_of()

    def give(data: bytes) -> None:
        try:
            trial.give(data)
        except TrialOverError:
            # The fuzzer's normal exit would be reported as a crash.
            sys.stderr.flush()
            os._exit(0 if trial.wrong is None else 1)

    options = [
        f"-max_len={INPUT_BYTES_MAX}",
        f"-seed={seed % 2**32 or 1}",
        # Use longer inputs from the beginning, because the corpus has real ones.
        "-len_control=0",
        "-rss_limit_mb=0",
        # The trial has its own timeout for endless runs.
        f"-timeout={FOREVER_S}",
        f"-artifact_prefix={artifacts}/",
    ]
    atheris.Setup([sys.argv[0], *options, *map(str, corpus)], give)
    with trial.watched():
        atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.child", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--found", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, action="append", required=True)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--at-random", action="store_true")
    arguments = parser.parse_args()
    logging.disable()

    def trial_of() -> Trial:
        return Trial(
            target_named(arguments.target),
            arguments.found,
            arguments.report,
            runs=arguments.runs,
            seconds=arguments.seconds,
        )

    if is_guided() and not arguments.at_random:
        run_guided(trial_of, arguments.corpus, arguments.report.parent, arguments.seed)
    trial = trial_of()
    with trial.watched():
        run_at_random(trial, read_corpus(arguments.corpus), f"{arguments.seed}-{arguments.target}")
    return 0 if trial.wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
