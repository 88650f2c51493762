"""A list as a file: all rows of its filter and order, with values that need no requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpResponse

from console.lib.csv_file import csv_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.http import HttpRequest

AS = "as"


def is_file_asked(request: HttpRequest) -> bool:
    return request.GET.get(AS) == "csv"


def file_address(request: HttpRequest) -> str:
    """Return the URL of the same list, filter and order, as a file of all pages."""
    query = request.GET.copy()
    query.pop("page", None)
    query[AS] = "csv"
    return f"?{query.urlencode()}"


def csv_file(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """Return a CSV response with a header; unknown values are empty, formulas are escaped."""
    text = "".join(csv_lines(head, rows))
    answer = HttpResponse(text, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer
