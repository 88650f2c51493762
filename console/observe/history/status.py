"""The collector's status; the latest one is kept in the history."""

from __future__ import annotations

import msgspec

from console.observe.history.points import NOMINAL_MS

STATUS = "collector"
"""The name of its note."""


class Status(msgspec.Struct):
    """One sample: its time, size, duration and problems."""

    at_ms: int
    process: dict[str, str | int] | None
    every_ms: int = NOMINAL_MS
    numbers: int = 0
    took_ms: int = 0
    problems: dict[str, str] = {}
    """By broker: why its sample is missing. "*": all brokers; "": why the history isn't stored."""
