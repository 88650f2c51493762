"""The fields of result.json besides the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analytics.reports.describe import description
from analytics.reports.summaries import summaries_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from analytics.request import Request

SPARK = "spark"


def about(
    request: Request, table: pa.Table, totals: Mapping[str, str], step_seconds: int
) -> dict[str, Any]:
    """Return the request, the report's description, and the summaries of all rows for a page."""
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
