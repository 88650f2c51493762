"""The history: the data points of charts."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from pydantic import Field

from console.api.operations import operation
from console.api.problems import ProblemError
from console.api.schemas import Text
from console.lib.moment import now_ms
from console.observe.history.chart_points import chart_points
from console.observe.history.range import requested_range


@operation(
    "GET",
    "/history/{kind}/{slug}/{path:name}",
    area="history",
    pages=("history:points", "history:csv"),
    response=dict[str, Any],
)
def history(
    request: HttpRequest,
    kind: Annotated[Text, Field(description="broker, cluster, topic, group or queue.")],
    slug: Annotated[Text, Field(description="The chart: traffic, lag, …")],
    name: Annotated[str, Field(max_length=512)],
    range: Annotated[Text, Field(description="15m, 1h, 6h, 24h, 7d, 30d or 1y.")] = "1h",
    earlier: Annotated[Text, Field(description="Compare with: `day` or `week`.")] = "",
) -> dict[str, Any]:
    """Get a chart: times in ms, one list of values per line (null is unknown), and marks.

    Send `from` and `to` in ms instead of `range` to choose other times.
    """
    asked = requested_range(request.GET, now_ms())
    if asked.problem:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, asked.problem)
    return chart_points(request, kind, slug, name)
