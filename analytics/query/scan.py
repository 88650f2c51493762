"""A lake table as DuckDB scans it: its columns and filters go to the LakeReader, rows come back.

DuckDB offers each condition of a WHERE that compares a column with constants, such as
`day = DATE '2026-11-21'`. The LakeReader applies it to masked rows, and skips files by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# DuckDB's public classes of Arrow sources are handed a filter as one opaque expression of pyarrow,
# which can't be turned into SQL.
from duckdb._sources.arrow import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.query.lake_reader import LakeReader
    from analytics.query.views import View

COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
CONNECTIVES = frozenset({"AND", "OR"})
NULL_TESTS = frozenset({"IS NULL", "IS NOT NULL"})
TIMESTAMPTZ = "TIMESTAMP WITH TIME ZONE"
TYPES = frozenset(
    {"BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "BLOB", "DATE", TIMESTAMPTZ}
)


class TableScan(ArrowScanSource):
    """One table of the lake, as the person of a view sees it."""

    schema_is_stable = True

    def __init__(self, reader: LakeReader, view: View) -> None:
        super().__init__(view)
        self._reader = reader
        self._view = view

    def __arrow_c_schema__(self) -> object:
        return self._view.streamed.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows; DuckDB takes only what has this for an Arrow source."""
        return self.stream(None, ())[0]

    def accepts(self, predicate: Node) -> bool:
        """Return whether the LakeReader can apply a condition."""
        try:
            Condition(self._view.streamed.names).add(predicate)
        except (ValueError, RecursionError):
            return False
        return True

    def stream(self, columns: Sequence[int] | None, filters: Iterable[Node]) -> tuple[object, bool]:
        """Return the rows that meet all filters, with the columns of these numbers."""
        names = self._view.streamed.names
        condition = Condition(names)
        for predicate in filters:
            condition.add(predicate)
        chosen = names if columns is None else [names[number] for number in columns]
        rows = self._reader.rows(self._view, chosen, condition.sql, condition.values)
        return rows.__arrow_c_stream__(), columns is not None


class Condition:
    """Predicates of DuckDB's as SQL, their constants as values of its parameters."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.values: list[Any] = []
        self._columns = frozenset(columns)
        self._parts: list[str] = []

    @property
    def sql(self) -> str:
        return " AND ".join(self._parts) or "true"

    def add(self, predicate: Node) -> None:
        """Require one more predicate.

        Raises:
            ValueError: it has a part of an unknown kind.
        """
        self._parts.append(self._text(predicate))

    def _text(self, node: Node) -> str:
        match node:
            case Binary(op=op, left=left, right=right) if op in CONNECTIVES:
                return f"({self._text(left)} {op} {self._text(right)})"
            case Binary(op=op, left=Col() as column, right=Lit() as value) if op in COMPARISONS:
                return f"({self._column(column)} {op} {self._parameter(value)})"
            case Unary(op="NOT", operand=operand):
                return f"(NOT {self._text(operand)})"
            case Postfix(op=op, operand=Col() as column) if op in NULL_TESTS:
                return f"({self._column(column)} {op})"
            case In(operand=Col() as column, values=values) if values:
                listed = ", ".join(map(self._parameter, values))
                return f"({self._column(column)} IN ({listed}))"
        raise ValueError(f"no SQL for {node}")

    def _column(self, column: Col) -> str:
        if len(column.parts) != 1 or column.parts[0] not in self._columns:
            raise ValueError(f"no column {column.parts}")
        return column.parts[0]

    def _parameter(self, node: Node) -> str:
        if not isinstance(node, Lit) or node.type not in TYPES:
            raise ValueError(f"no value of a column {node}")
        self.values.append(node.value)
        if node.type == TIMESTAMPTZ:  # whose value is microseconds since the epoch
            return f"make_timestamptz(${len(self.values)}::BIGINT)"
        return f"${len(self.values)}::{node.type}"
