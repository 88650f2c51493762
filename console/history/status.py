"""What the collector says of itself; the last word is kept in the history."""

from __future__ import annotations

import msgspec

from console.history.points import NOMINAL_MS

STATUS = "collector"
"""The note that holds it."""


class Status(msgspec.Struct):
    """One sample: when, how much, how long it took, and what is missing."""

    at_ms: int
    process: dict[str, str | int] | None
    every_ms: int = NOMINAL_MS
    numbers: int = 0
    took_ms: int = 0
    problems: dict[str, str] = {}
    """By broker: why there is no sample of it. "*": of any; "": why the history is not kept."""
