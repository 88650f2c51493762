"""Helpers for the metrics of all parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.metrics.exposition import Family

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_core.metrics.exposition import Labels, Number

S_PER_MS = 0.001


def gauge(name: str, text: str, series: Iterable[tuple[Labels, Number]]) -> Family:
    return Family(f"trebuchet_{name}", "gauge", text, series)


def one(name: str, text: str, value: Number) -> Family:
    """Return a gauge with a single series, or without series if the value is unknown."""
    return gauge(name, text, [({}, value)])


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds * S_PER_MS
