"""What result.json says beside the rows, whichever engine made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analytics.reports.describe import description
from analytics.reports.summaries import summaries_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from analytics.request import Request

SPARK, DUCKDB = "spark", "duckdb"


def about(
    request: Request, table: pa.Table, totals: Mapping[str, str], step_seconds: int
) -> dict[str, Any]:
    """Return what was asked, the report's description, and what a page shows of all rows."""
    return {
        "report": description(request.report),
        "parameters": dict(request.parameters),
        "totals": dict(totals),
        "step_seconds": step_seconds,
        **summaries_of(request.report, table, step_seconds),
        "from": _text(request.from_ms),
        "to": _text(request.to_ms),
    }


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
