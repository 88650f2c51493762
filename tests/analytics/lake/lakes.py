"""A lake beside a store that a test made, and what is in it as DuckDB sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq

from analytics.lake.bodies import BodyRules
from analytics.lake.ingest import Ingest, Source
from analytics.lake.place import LakePlace
from analytics.lake.tables import GAPS, MESSAGES
from broker_core.message import names

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.lake.ingest import Batch
    from analytics.lake.rewriting import LakeFile
    from analytics.lake.tables import LakeTable
    from tests.analytics.store_builder import StoreBuilder

BROKER = "broker-a"


class Lake:
    """One lake with one source."""

    def __init__(
        self,
        directory: Path,
        store: Path,
        *,
        batch_bytes: int = 1 << 26,
        rules: BodyRules | None = None,
    ) -> None:
        self.directory = directory
        self.place = LakePlace.of(str(directory), None, {})
        self.source = Source(BROKER, store, None, rules or BodyRules())
        self.ingest = Ingest(self.place, self.source, batch_bytes=batch_bytes)

    def take_all(self) -> list[Batch]:
        taken = []
        while (batch := self.ingest.batch()) is not None:
            taken.append(batch)
        return taken

    def offsets(self) -> list[int]:
        """Return the offsets of all messages in the lake, as often as they are there."""
        return [row[0] for row in self.rows("commit_log_offset")]

    def column(self, file: LakeFile, name: str) -> list[Any]:
        """Return one column of one file, in the order of the file."""
        path = self.place.path_of(MESSAGES.name, file.path)
        found: list[Any] = pq.read_table(path, columns=[name], partitioning=None)[name].to_pylist()
        return found

    def gaps(self) -> list[tuple[Any, ...]]:
        return rows_of(self.place, GAPS, ("commit_log_from", "commit_log_to", "reason"))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return rows_of(self.place, MESSAGES, columns)


def rows_of(place: LakePlace, table: LakeTable, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return columns of a table by its first column, read by DuckDB alone."""
    if not table.exists(place):
        return []
    files = table.existing(place).file_uris()
    if not files:
        return []
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        found = connection.read_parquet(files, hive_partitioning=bool(table.partition_by))
        table_of = found.project(", ".join(columns)).order(columns[0]).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table_of.columns), strict=True))


def put_offsets(builder: StoreBuilder) -> list[int]:
    """Return the offsets of the messages that a test put and that people may see."""
    return [one.commit_log_offset for one in builder.stored if not names.is_system_topic(one.topic)]
