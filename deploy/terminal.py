"""What a person at the terminal reads."""

from __future__ import annotations

import sys

LABEL_WIDTH = 6


def say(text: str) -> None:
    """Write whole lines to standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def labelled(name: str, line: str) -> None:
    say(f"{name:<{LABEL_WIDTH}} | {line}")
