"""Helpers for findings, the sentences about a non-empty result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from analytics.reports.report import Figure, Finding

if TYPE_CHECKING:
    import pyarrow as pa

    from analytics.reports.report import Unit

PERMILLE = 1_000


def permille(part: int, of: int) -> int:
    """Return a share in thousandths, rounded down; 0 if the whole is 0."""
    return part * PERMILLE // of if of else 0


def largest(table: pa.Table, by: str, value: str, text: str, unit: Unit = "") -> Finding:
    """Fill `name`, `part`, `all` and `share`: the value of `by` with the largest sum."""
    sums = table.group_by(by).aggregate([(value, "sum")])
    first = top(sums, f"{value}_sum", by)
    part, everything = int(first[f"{value}_sum"] or 0), total(table, value)
    return Finding(
        text,
        {
            "name": Figure(str(first[by] or "-")),
            "part": Figure(part, unit),
            "all": Figure(everything, unit),
            "share": Figure(permille(part, everything), "permille"),
        },
    )


def top(table: pa.Table, value: str, *ties: str) -> dict[str, Any]:
    """Return the row with the largest value; the columns `ties` break ties."""
    order = [(value, "descending"), *((name, "ascending") for name in ties)]
    at = pc.sort_indices(table, sort_keys=order)[0].as_py()
    row: dict[str, Any] = table.slice(at, 1).to_pylist()[0]
    return row


def total(table: pa.Table, column: str) -> int:
    """Return a column's sum."""
    return int(pc.sum(table[column]).as_py() or 0)
