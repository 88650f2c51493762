"""The JSON lines that `python -m analytics` writes to standard output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

COUNT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run: `done` of `total` tasks in this stage, and the rows and bytes read so
    far.
    """

    stage: str
    done: int
    total: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """The run wrote its result."""

    rows: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The run failed; `message` is a sentence for people."""

    message: str


def parse(line: bytes) -> Progress | Done | Failed | None:
    """Return the event of a line, or None if a library printed the line."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict):
        return None
    match event.get("event"):
        case "progress":
            return Progress(
                stage=str(event.get("stage", "")),
                done=count(event.get("done")),
                total=count(event.get("total")),
                rows=count(event.get("rows")),
                bytes=count(event.get("bytes")),
            )
        case "done":
            return Done(rows=count(event.get("rows")))
        case "failed":
            return Failed(
                message=str(event.get("message") or "The report failed and gave no reason.")
            )
        case _:
            return None


def count(value: Any) -> int:
    """Return a number that fits the database; 0 for any other value."""
    try:
        return max(0, min(int(value), COUNT_MAX))
    except (TypeError, ValueError, OverflowError):
        return 0
