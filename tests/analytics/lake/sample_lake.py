"""Collector files written by a test, and the lake that ingests them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analytics.lake.samples import SampledHours
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder
from tests.support import sample_files
from tests.support.sample_files import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.sample_files import Line


class Hours:
    """The folder of a collector, and the lake that ingests it."""

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
        return sample_files.write(self.folder, hour, *lines, source=source)

    def take(self) -> None:
        while self.taking.take() is not None:
            continue

    def rows(self) -> list[tuple[Any, ...]]:
        return self.lake.query(
            "SELECT epoch_ms(minute), topic, metric, total FROM bronze.samples ORDER BY ALL"
        )
