"""The totals of a result: sums, maxima, distinct values, the number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa

    from analytics.reports.report import Report, Total


def totals_of(report: Report, table: pa.Table) -> dict[str, str]:
    """Return the report's totals over all rows of its result, by name, as text: 64 bits."""
    return {total.name: str(_number(total, table)) for total in report.totals}


def _number(total: Total, table: pa.Table) -> int:
    match total.how:
        case "sum":
            return int(pc.sum(table[total.column]).as_py() or 0)
        case "max":
            return int(pc.max(table[total.column]).as_py() or 0)
        case "distinct":
            return int(pc.count_distinct(table[total.column]).as_py())
        case "rows":
            return int(table.num_rows)
