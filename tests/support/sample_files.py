"""Collector files that a test writes."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from analytics.lake.samples import HOUR_MS

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 1_795_251_600_000 // HOUR_MS
SOURCE = "a" * 32
Line = dict[str, Any]


def write(folder: Path, hour: int, *lines: Line, source: str = SOURCE) -> Path:
    """Write the file of one hour, counted from 1970."""
    began = datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC)
    path = folder / f"{began:%Y-%m-%dT%H}Z.jsonl.gz"
    head = {"version": 1, "source": source, "hour_ms": hour * HOUR_MS}
    text = "".join(json.dumps(each) + "\n" for each in (head, *lines))
    path.write_bytes(gzip.compress(text.encode()))
    return path


def put(topic: str, **minutes: int) -> Line:
    """Return the line with a topic's message counts for the minutes m0, m1, ..."""
    return {
        "kind": "topic",
        "broker": "broker-a",
        "topic": topic,
        "metric": "put",
        "unit": "msg",
        "is_counter": True,
        "minutes": [int(name[1:]) for name in minutes],
        "weights": [60_000] * len(minutes),
        "sums": list(minutes.values()),
        "maxima": list(minutes.values()),
    }
