"""Combines equal rows into one, because counting messages doesn't need a row for each.

Pure: no I/O. Any thread, any process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.store.decode import COLUMN_TYPES, UTC_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MESSAGES_COLUMN = "messages"
"""The number of messages that a row represents."""
SUMMED = ("store_size", "body_size")
GROUPABLE = tuple(
    name
    for name, type_ in COLUMN_TYPES.items()
    if name not in (*SUMMED, "commit_log_offset", "queue_offset", "body", "damage")
    and not pa.types.is_nested(type_)
)
# Groups are combined at this number, before the rest of a share is read.
GROUPS_HELD_MAX = 100_000
_DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class Grouping:
    """Combines rows that agree in `by`; times are rounded down to `step_us` since the epoch.

    Rows are combined per share, so a group may still have several rows.
    """

    by: tuple[str, ...]
    step_us: int

    def types(self) -> dict[str, pa.DataType]:
        """Return the available columns, with their types."""
        sums = dict.fromkeys((MESSAGES_COLUMN, *SUMMED), pa.int64())
        return {name: COLUMN_TYPES[name] for name in (*self.by, _DAMAGE)} | sums

    def read_schema(self, wanted: pa.Schema) -> pa.Schema:
        """Return the schema of the rows before grouping."""
        names = dict.fromkeys(
            (*self.by, *(each for each in wanted.names if each != MESSAGES_COLUMN))
        )
        return pa.schema([(name, COLUMN_TYPES[name]) for name in names])

    def grouped(
        self, batches: Iterable[pa.RecordBatch], wanted: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the groups of batches; rows of damage are unchanged."""
        held: list[pa.Table] = []
        for batch in batches:
            table = pa.table(batch)
            if _DAMAGE in table.column_names:
                is_damage = pc.is_valid(table[_DAMAGE])
                if pc.any(is_damage).as_py():
                    yield from _shaped(table.filter(is_damage), wanted).to_batches()
                    table = table.filter(pc.invert(is_damage))
                table = table.drop_columns([_DAMAGE])
            if not table.num_rows:
                continue
            held.append(self._first(table))
            if sum(each.num_rows for each in held) > GROUPS_HELD_MAX:
                yield from _shaped(self._again(held), wanted).to_batches()
                held = []
        if held:
            yield from _shaped(self._again(held), wanted).to_batches()

    def _first(self, table: pa.Table) -> pa.Table:
        columns = {name: self._cut(table[name]) for name in self.by}
        sums = [name for name in SUMMED if name in table.column_names]
        columns |= {name: table[name].cast(pa.int64()) for name in sums}
        aggregates = [*((name, "sum") for name in sums), ([], "count_all")]
        found = pa.table(columns).group_by(list(self.by), use_threads=False).aggregate(aggregates)
        return _named(found, {"count_all": MESSAGES_COLUMN})

    def _again(self, held: list[pa.Table]) -> pa.Table:
        if len(held) == 1:
            return held[0]
        every = pa.concat_tables(held)
        sums = [(name, "sum") for name in every.column_names if name not in self.by]
        return _named(every.group_by(list(self.by), use_threads=False).aggregate(sums))

    def _cut(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if column.type != UTC_TIMESTAMP:
            return column
        # With long steps, floor_temporal counts from the start of the year or day.
        us = column.cast(pa.int64())
        whole = pc.multiply(pc.divide(us, self.step_us), self.step_us)
        return whole.cast(UTC_TIMESTAMP)


def _named(table: pa.Table, other: dict[str, str] | None = None) -> pa.Table:
    """Rename the columns of an aggregation."""
    names = (other or {}).get
    return table.rename_columns(
        [names(name) or name.removesuffix("_sum") for name in table.column_names]
    )


def _shaped(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return the requested columns; missing columns are null."""
    there = frozenset(table.column_names)
    return pa.Table.from_arrays(
        [
            table[field.name].cast(field.type)
            if field.name in there
            else pa.nulls(table.num_rows, field.type)
            for field in wanted
        ],
        schema=wanted,
    )
