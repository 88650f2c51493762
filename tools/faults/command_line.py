"""Commands of fault runs and soaks: options that all of them have, what they need, exit codes."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools.faults import checker, options, real_clients, tried

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from random import Random

DONE, WRONG, CANNOT_RUN = 0, 1, 2


class Command(NamedTuple):
    """A kind of run: its name, needs and options. `run` returns whether nothing was wrong."""

    name: str
    summary: str
    run: Callable[[Namespace, Path, Random], bool]
    missing: Callable[[], str]
    options: tuple[tuple[str, dict[str, object]], ...] = ()


def add_options(parser: ArgumentParser, command: Command) -> None:
    """Add a command's own options, and those that all commands have."""
    for name, given in command.options:
        parser.add_argument(name, **given)  # type: ignore[arg-type]
    seed = random.SystemRandom().randrange(1 << 32)
    parser.add_argument("--seed", type=int, default=seed, help="repeats a run's choices")
    parser.add_argument(
        "--history",
        type=Path,
        help="a new file for the first history in which something is wrong; "
        "`python -m tools.faults check` reads it",
    )
    parser.add_argument(
        "--write", type=Path, metavar="DOCS", help="publish in DOCS/results, and in its pages"
    )


def run(command: Command, arguments: Namespace) -> int:
    """Run a command in a directory of its own, and return the exit code."""
    missing = command.missing() or tried.missing(getattr(arguments, "broker", None) or tried.OURS)
    if getattr(arguments, "clients", options.RAW) == options.ALL and real_clients.missing():
        missing = missing or f"{real_clients.missing()} (or --clients {options.RAW})"
    if missing:
        sys.stderr.write(f"{command.name} cannot be run here: it needs {missing}.\n")
        return CANNOT_RUN
    say(f"seed={arguments.seed}")
    # So that a run ended by a signal still unmounts its file systems.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as directory, checker.keeping(arguments.history):
        is_right = command.run(arguments, Path(directory), random.Random(arguments.seed))
    return DONE if is_right else WRONG


def say(text: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
