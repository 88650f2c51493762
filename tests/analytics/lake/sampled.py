"""The files of a collector as a test wrote them, and the lake that takes them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from analytics.lake.samples import HOUR_MS, SampledHours
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOUR = 1_795_251_600_000 // HOUR_MS
SOURCE = "a" * 32
Line = dict[str, Any]


class Hours:
    """The folder of a collector, and the lake that takes from it."""

    def __init__(self, directory: Path) -> None:
        self.builder = StoreBuilder(directory / "store").put_many(3)
        self.builder.write()
        self.folder = directory / "samples"
        self.folder.mkdir()
        self.lake = Lake(directory / "lake", self.builder.root)
        self.taking = self.new()

    def new(self, observer: Callable[[str], None] | None = None) -> SampledHours:
        self.taking = SampledHours(self.lake.place, self.folder, observer)
        return self.taking

    def write(self, hour: int, *lines: Line, source: str = SOURCE) -> Path:
        began = datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC)
        path = self.folder / f"{began:%Y-%m-%dT%H}Z.jsonl.gz"
        head = {"version": 1, "source": source, "hour_ms": hour * HOUR_MS}
        text = "".join(json.dumps(each) + "\n" for each in (head, *lines))
        path.write_bytes(gzip.compress(text.encode()))
        return path

    def take(self) -> None:
        while self.taking.take() is not None:
            continue

    def rows(self) -> list[tuple[Any, ...]]:
        return self.lake.query(
            "SELECT epoch_ms(minute), topic, metric, total FROM bronze.samples ORDER BY ALL"
        )


def put(topic: str, **minutes: int) -> Line:
    """Return the line of how many messages a topic got, by the minutes m0, m1, ..."""
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
