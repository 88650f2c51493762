"""A lake next to a store created by a test, and its contents as DuckDB reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.lake.bodies import BodyRules
from analytics.lake.derived import catch_up
from analytics.lake.ingest import Ingest, Source
from analytics.lake.place import LakePlace
from analytics.lake.samples import SampledHours
from analytics.lake.silver_tables import tables_in
from analytics.lake.tables import GAPS, MESSAGES
from analytics.lake.views import lake_views
from analytics.lake.writer import ArrowWriter
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from analytics.lake.ingest import Batch
    from analytics.lake.rewriting import LakeFile
    from analytics.lake.tables import LakeTable
    from analytics.lake.writer import Writer
    from tests.analytics.store_builder import StoreBuilder, Stored

BROKER = "broker-a"
Traffic = dict[tuple[str, int], tuple[int, int, int]]


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
        batches = []
        while (batch := self.ingest.batch()) is not None:
            batches.append(batch)
        return batches

    def take_samples(self, folder: Path) -> None:
        """Ingest all hours that a collector has written into a folder."""
        hours = SampledHours(self.place, folder)
        while hours.take() is not None:
            continue

    def offsets(self) -> list[int]:
        """Return the offsets of all messages in the lake, including duplicates."""
        return [row[0] for row in self.rows("commit_log_offset")]

    def column(self, file: LakeFile, name: str) -> list[Any]:
        """Return one column of one file, in file order."""
        path = self.place.path_of(MESSAGES.name, file.path)
        found: list[Any] = pq.read_table(path, columns=[name], partitioning=None)[name].to_pylist()
        return found

    def catch_up(self) -> None:
        catch_up(self.place, ArrowWriter())

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Return the result of SQL over the views of the lake."""
        with duckdb.connect(":memory:", config={"threads": 1}) as connection:
            add_views(connection, self.place)
            return connection.execute(text).fetchall()

    def traffic(self) -> Traffic:
        rows = self.query(
            "SELECT topic, epoch_ms(minute), messages, bytes, body_bytes FROM gold.traffic_minute"
        )
        assert len({row[:2] for row in rows}) == len(rows)
        return {row[:2]: row[2:] for row in rows}

    def gaps(self) -> list[tuple[Any, ...]]:
        return rows_of(self.place, GAPS, ("commit_log_from", "commit_log_to", "reason"))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return rows_of(self.place, MESSAGES, columns)


class SmallBatches:
    """A writer with batches and splits that a test fills quickly."""

    def __init__(self, writer: Writer, batch_bytes: int = 9_000) -> None:
        self.name = writer.name
        self.batch_bytes, self.split_bytes = batch_bytes, 3_000
        self.parts, self.rows, self.table = writer.parts, writer.rows, writer.table
        self.parsed = writer.parsed


def add_views(
    connection: duckdb.DuckDBPyConnection,
    place: LakePlace,
    topics: Collection[str] | None = None,
) -> None:
    """Create a view of each table of a lake, with the rows of these topics, or all."""
    for schema in ("bronze", "gold", "silver"):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    tables = tables_in(place)
    for view, table in zip(lake_views(tables), tables, strict=True):
        files = []
        if table.exists(place):
            paths = pa.table(table.existing(place).get_add_actions())["path"].to_pylist()
            files = [place.path_of(table.name, path) for path in paths]
        query = view.query(files, topics)
        connection.execute(f"CREATE OR REPLACE VIEW {view.sql_name} AS {query}")


def rows_of(place: LakePlace, table: LakeTable, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return columns of a table ordered by the first one, read by DuckDB alone."""
    if not table.exists(place):
        return []
    files = table.existing(place).file_uris()
    if not files:
        return []
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        found = connection.read_parquet(files, hive_partitioning=bool(table.partition_by))
        table_of = found.project(", ".join(columns)).order(columns[0]).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table_of.columns), strict=True))


def traffic_of(stored: Iterable[Stored]) -> Traffic:
    """Count messages, bytes and bytes of bodies of each topic and minute, as put by the test."""
    found: Traffic = {}
    for one in stored:
        at = (one.topic, one.store_timestamp // 60_000 * 60_000)
        messages, size, body_size = found.get(at, (0, 0, 0))
        found[at] = (messages + 1, size + one.size, body_size + len(one.body))
    return found


def put_offsets(builder: StoreBuilder) -> list[int]:
    """Return the offsets of visible messages put by the test."""
    return [one.commit_log_offset for one in builder.stored if not names.is_system_topic(one.topic)]
