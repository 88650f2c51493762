"""The command line of deploy/test.

Standard library only: `deploy/test --help` must work before anything is installed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIERS = {
    "lint": "ruff check, ruff format --check",
    "types": "mypy, strict",
    "unit": "tests without a JVM, a browser or killed processes",
    "quick": "lint, types and unit, in a few minutes (default)",
    "all": "everything, including Java clients, Spark and the browser, in about an hour",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed arguments."""

    tier: str
    may_install: bool
    seed: int | None


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Read the command line; SystemExit for --help (0) or bad arguments (2)."""
    parser = argparse.ArgumentParser(
        prog="deploy/test",
        description="Install the requirements of the checks and run them; the last line is the "
        "verdict.",
        epilog="tiers:\n"
        + "\n".join(f"  {name:<6} {text}" for name, text in TIERS.items())
        + "\n\nexit code: 0 every check passed, 1 one failed, 2 the setup failed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("tier", nargs="?", choices=TIERS, default="quick", metavar="TIER")
    parser.add_argument(
        "--install",
        action="store_true",
        help="install missing Debian packages: chromium, maven, JDK, prometheus, redis-server and "
        "systemd (as root; CI=true does the same); otherwise tests that need them are skipped, and "
        "the last line says so",
    )
    parser.add_argument("--seed", type=int, help="replay a run that used randomness")
    given = parser.parse_args(arguments)
    in_ci = environment.get("CI", "").strip().lower() in {"1", "true", "yes"}
    return Options(given.tier, may_install=given.install or in_ci, seed=given.seed)
