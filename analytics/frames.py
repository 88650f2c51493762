"""Spark frames whose rows Trebuchet's code reads, and Spark tasks that run its functions.

Both are `mapInArrow` over a range of numbers: each number identifies an item that a worker reads or
processes. This needs one Python process per core, whereas a Python data source needs four more to
plan, and it works the same on this machine, on a cluster and on a Spark Connect server.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.rewriting import rows_of
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import StoredFile
    from analytics.lake.tables import LakeTable
    from analytics.store.decode import RowFilter
    from analytics.store.grouping import Grouping
    from analytics.store.plan import Share

Item = TypeVar("Item")

_RESULT = "number bigint, result string"


class Reading(Protocol):
    """The rows that one task reads. Pickled, so it must not hold an open file."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns of the frame."""
        ...


@dataclass(frozen=True, slots=True)
class LogReading:
    """A share of a log; damage becomes rows if the schema has that column."""

    store: Path
    commit_log: Path | None
    share: Share
    schema: pa.Schema
    rows: RowFilter
    grouping: Grouping | None = None
    decompress: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.grouping is None:
            return self._read(self.schema)
        return self.grouping.grouped(
            self._read(self.grouping.read_schema(self.schema)), self.schema
        )

    def _read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = StoreReader(self.store, commit_log_path=self.commit_log)
        for part in self.share:
            # The result lists ranges that expire during the read.
            yield from reader.read(
                part, schema, self.rows, decompress=self.decompress, fail_on_data_loss=False
            )


@dataclass(frozen=True, slots=True)
class LakeReading:
    """Files of a lake table.

    Attributes:
        schema: the columns of the frame; columns missing from the table are null.
        named: pairs of a frame column and the table column that it is read from.
        where: the condition that rows must meet, over the table's columns.
    """

    place: LakePlace
    table: LakeTable
    files: tuple[StoredFile, ...]
    schema: pa.Schema
    named: tuple[tuple[str, str], ...] = ()
    where: pc.Expression | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            for batch in rows_of(self.place, file, self._columns(), self.table):
                rows = pa.table(batch)
                if self.where is not None:
                    rows = rows.filter(self.where)
                yield from self._shaped(rows).to_batches()

    def _columns(self) -> list[str]:
        """Return the table columns to read: those of the frame and of the filter."""
        named = dict(self.named)
        wanted = {named.get(name, name) for name in self.schema.names}
        return [name for name in self.table.schema.names if name in wanted | set(FILTERED)]

    def _shaped(self, rows: pa.Table) -> pa.Table:
        named = dict(self.named)
        columns = [
            rows[named.get(field.name, field.name)].cast(field.type)
            if named.get(field.name, field.name) in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)


FILTERED = ("broker", "topic", "metric", "store_timestamp", "minute")
"""The columns that `LakeReading.where` may name."""


def frame_of(session: SparkSession, readings: Sequence[Reading], schema: StructType) -> DataFrame:
    """Return the rows of some readings, one task for each."""
    count = len(readings)
    numbers = session.range(0, count, 1, max(1, count))
    return numbers.mapInArrow(functools.partial(_read, list(readings)), schema)


def each(session: SparkSession, work: Callable[[Item], str], items: Sequence[Item]) -> list[str]:
    """Run `work` for each item in its own task; return the results.

    Results are text: this process doesn't unpickle anything that a worker sent.

    Raises:
        PySparkException, Py4JError: Spark failed, or was cancelled.
    """
    count = len(items)
    numbers = session.range(0, count, 1, count)
    made = numbers.mapInArrow(functools.partial(_made, work, list(items)), _RESULT).toArrow()
    results = dict(zip(made["number"].to_pylist(), made["result"].to_pylist(), strict=True))
    return [results[number] for number in range(count)]


def _read(
    readings: Sequence[Reading], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the readings with the given numbers. Runs in a worker."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from readings[number].batches()


def _made(
    work: Callable[[Any], str], items: Sequence[Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the results of `work` for the items with the given numbers. Runs in a worker."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int64()), pa.array([work(items[number])], pa.string())],
                names=["number", "result"],
            )
