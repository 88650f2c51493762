"""Commands of fault runs and soaks: common options, prerequisites, exit codes."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools.faults import checker, options, real_clients, tested_brokers

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from random import Random

DONE, WRONG, CANNOT_RUN = 0, 1, 2


class Command(NamedTuple):
    """A kind of run: its name, prerequisites and options. `run` returns whether it succeeded."""

    name: str
    summary: str
    run: Callable[[Namespace, Path, Random], bool]
    missing: Callable[[], str]
    options: tuple[tuple[str, dict[str, object]], ...] = ()


def add_options(parser: ArgumentParser, command: Command) -> None:
    """Add a command's options and the common ones."""
    for name, settings in command.options:
        parser.add_argument(name, **settings)  # type: ignore[arg-type]
    seed = random.SystemRandom().randrange(1 << 32)
    parser.add_argument("--seed", type=int, default=seed, help="seed; repeats a run's choices")
    parser.add_argument(
        "--history",
        type=Path,
        help="write the first history with a finding to this new file; `python -m tools.faults "
        "check` reads it",
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write the results to DOCS/results and update its pages",
    )


def run(command: Command, arguments: Namespace) -> int:
    """Run a command in a new directory, and return the exit code."""
    missing = command.missing() or tested_brokers.missing(
        getattr(arguments, "broker", None) or tested_brokers.OURS
    )
    if getattr(arguments, "clients", options.RAW) == options.ALL and real_clients.missing():
        missing = missing or f"{real_clients.missing()} (or --clients {options.RAW})"
    if missing:
        sys.stderr.write(f"{command.name} can't run here. Install or provide {missing}.\n")
        return CANNOT_RUN
    say(f"seed={arguments.seed}")
    # A run that is ended by a signal then still unmounts its file systems.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as directory, checker.keeping(arguments.history):
        is_right = command.run(arguments, Path(directory), random.Random(arguments.seed))
    return DONE if is_right else WRONG


def say(text: str) -> None:
    """Write a line to standard output and flush."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
