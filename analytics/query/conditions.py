"""Translates filters that DuckDB pushes down into SQL over the table's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duckdb._sources import nodes

from analytics.lake.views import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable

Predicate = nodes.Node
COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
CONNECTIVES = frozenset({"AND", "OR"})
NULL_TESTS = frozenset({"IS NULL", "IS NOT NULL"})
TIMESTAMPTZ = "TIMESTAMP WITH TIME ZONE"
TYPES = frozenset(
    {"BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "BLOB", "DATE", TIMESTAMPTZ}
)


class Condition:
    """DuckDB predicates as SQL, with their constants as parameters."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.values: list[Any] = []
        self._columns = frozenset(columns)
        self._parts: list[str] = []

    @property
    def sql(self) -> str:
        return " AND ".join(self._parts) or "true"

    def add(self, predicate: Predicate) -> None:
        """Add a predicate.

        Raises:
            ValueError: the predicate has a part of an unknown kind.
        """
        count = len(self.values)
        try:
            self._parts.append(self._text(predicate))
        except ValueError:
            del self.values[count:]
            raise

    def _text(self, node: Predicate) -> str:
        match node:
            case nodes.Binary(op=op, left=left, right=right) if op in CONNECTIVES:
                return f"({self._text(left)} {op} {self._text(right)})"
            case nodes.Binary(op=op, left=nodes.Col() as column, right=nodes.Lit() as value) if (
                op in COMPARISONS
            ):
                return f"({self._column(column)} {op} {self._parameter(value)})"
            case nodes.Unary(op="NOT", operand=operand):
                return f"(NOT {self._text(operand)})"
            case nodes.Postfix(op=op, operand=nodes.Col() as column) if op in NULL_TESTS:
                return f"({self._column(column)} {op})"
            case nodes.In(operand=nodes.Col() as column, values=values) if values:
                listed = ", ".join(map(self._parameter, values))
                return f"({self._column(column)} IN ({listed}))"
        raise ValueError(f"no SQL for {node}")

    def _column(self, column: nodes.Col) -> str:
        if len(column.parts) != 1 or column.parts[0] not in self._columns:
            raise ValueError(f"no column {column.parts}")
        return identifier(column.parts[0])

    def _parameter(self, node: Predicate) -> str:
        if not isinstance(node, nodes.Lit) or node.type not in TYPES:
            raise ValueError(f"no value of a column {node}")
        self.values.append(node.value)
        if node.type == TIMESTAMPTZ:  # the value is microseconds since the epoch
            return f"make_timestamptz(${len(self.values)}::BIGINT)"
        return f"${len(self.values)}::{node.type}"
