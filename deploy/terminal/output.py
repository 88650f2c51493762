"""Output to the person at the terminal."""

from __future__ import annotations

import os
import sys

LABEL_WIDTH = 6


def say(text: str) -> None:
    """Write complete lines to standard output, unbuffered."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`deploy/up | head`), but running processes must continue.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def labelled(name: str, line: str) -> None:
    say(f"{name:<{LABEL_WIDTH}} | {line}")
