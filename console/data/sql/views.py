"""The SQL page: an editor next to the lake's tables, and the results of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.data.sql import charts
from console.data.sql.access import sql_action, sql_page
from console.data.sql.desk import (
    BYTES_MAX,
    MEMORY_MB,
    ROWS_MAX,
    SECONDS_MAX,
    DeskError,
    tables,
)
from console.data.sql.forms import QueryForm, SaveForm
from console.data.sql.models import SAVED_MAX, visible_to
from console.data.sql.rights import topics_of
from console.data.sql.runs import newest
from console.data.sql.services import (
    TooManyError,
    cancel_query,
    delete_query,
    exported,
    get_run,
    may_cancel,
    own_query,
    progress_of,
    save_query,
    start_query,
)
from console.data.sql.subjects import problem_of, query_of
from console.data.sql.values import shown

if TYPE_CHECKING:
    from uuid import UUID

    from django.forms import Form
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase


ROWS_SHOWN = 500
RUNS_SHOWN = 12
EXAMPLE = (
    "SELECT date_trunc('hour', store_timestamp) AS hour, topic, count(*) AS messages\n"
    "FROM bronze.messages\n"
    "WHERE day >= current_date - 1\n"
    "GROUP BY ALL\n"
    "ORDER BY hour DESC, messages DESC"
)


def page_of(
    request: HttpRequest, sql: str, more: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    """Render the page with a query in the editor."""
    if not settings.TREBUCHET_LAKE:
        return render(request, "sql/off.html")
    assert request.user.is_authenticated
    known, topics = tables(), topics_of(request.user)
    context = {
        "sql": sql,
        "tables": [each for each in known["tables"] if topics is None or each["has_topic"]],
        "topics": topics,
        "tables_problem": known.get("problem", ""),
        "saved": visible_to(request.user)[:SAVED_MAX],
        "runs": [(run, run.outcome()) for run in newest(request.user.pk, RUNS_SHOWN)],
        "seconds_max": SECONDS_MAX,
        "rows_max": ROWS_MAX,
        "bytes_max": BYTES_MAX,
        "memory_mb": MEMORY_MB,
        "kinds": [("csv", "CSV"), ("jsonl", "JSON lines"), ("parquet", "Parquet")],
    }
    return render(request, "sql/page.html", context | (more or {}), status=status)


@sql_page
def editor(request: HttpRequest) -> HttpResponse:
    """Show the editor, empty or with a saved query."""
    assert request.user.is_authenticated
    saved = request.GET.get("saved", "")
    if saved.isascii() and saved.isdecimal() and len(saved) < 19:
        kept = get_object_or_404(visible_to(request.user), pk=int(saved))
        return page_of(request, kept.sql, {"kept": kept})
    if problem := problem_of(request.GET):
        return page_of(request, EXAMPLE, {"problem": problem})
    return page_of(request, query_of(request.GET) or EXAMPLE)


@sql_action
def run(request: HttpRequest) -> HttpResponse:
    """Start a query and show its result or progress."""
    form = QueryForm(request.POST)
    if not settings.TREBUCHET_LAKE:
        messages.error(request, _("This appliance has no lake, so there's nothing to query."))
        return redirect("sql:editor")
    if not form.is_valid():
        return refused(request, form)
    try:
        asked = start_query(request, form)
    except DeskError as error:
        sql = form.cleaned_data["sql"]
        return page_of(request, sql, {"problem": str(error)}, status=409)
    return redirect("sql:result", run_id=asked.id)


def refused(request: HttpRequest, form: Form) -> HttpResponse:
    problem = " ".join(str(each) for found in form.errors.values() for each in found)
    return page_of(request, request.POST.get("sql", ""), {"problem": problem}, status=422)


@sql_page
def run_page(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """Show a query in the editor, with its result below."""
    found, outcome = get_run(request, run_id)
    more: dict[str, Any] = {"run": found, "outcome": outcome}
    if outcome is None:
        more |= progress_of(found)
    elif outcome.state == "done":
        rows = list(found.rows(ROWS_SHOWN))
        is_whole = outcome.rows <= ROWS_SHOWN
        more |= {
            "columns": outcome.columns,
            "rows": [
                [
                    (shown(value, column.kind), column)
                    for value, column in zip(row, outcome.columns, strict=True)
                ]
                for row in rows
            ],
            "left_out": outcome.rows - len(rows),
            "seconds": (outcome.ended_ms - found.began_ms) / 1_000,
            "has_chart": charts.over_time(outcome.columns, list(found.rows())) is not None,
            "bars": charts.bars(outcome.columns, rows) if is_whole else [],
        }
    return page_of(request, found.sql, more)


@sql_page
def progress(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """Show only a query's progress; once it has ended, make the page load its result."""
    found, outcome = get_run(request, run_id)
    context = {"run": found, "outcome": outcome, "seconds_max": SECONDS_MAX, **progress_of(found)}
    response = render(request, "sql/_progress.html", context)
    if outcome is not None:
        response["HX-Refresh"] = "true"
    return response


@sql_page
def chart(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """Return the points of the chart over time."""
    found, outcome = get_run(request, run_id)
    points = None
    if outcome is not None and outcome.state == "done":
        points = charts.over_time(outcome.columns, list(found.rows()))
    if points is None:
        raise Http404(_("This result has no chart."))
    return JsonResponse(points)


@sql_action
def cancel(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """Cancel a query: one's own, or anyone's as an administrator."""
    found, _outcome = get_run(request, run_id)
    if not may_cancel(request, found):
        messages.error(request, _("Only the author and administrators can cancel a query."))
    elif not cancel_query(request, found):
        messages.info(request, _("The query had already finished."))
    return redirect("sql:result", run_id=run_id)


@sql_action
def export(request: HttpRequest, run_id: UUID, kind: str) -> HttpResponseBase:
    """Return a result's rows as a file, and record the export in the audit log."""
    return exported(request, run_id, kind)


@sql_action
def save(request: HttpRequest) -> HttpResponse:
    """Save a query under a name, replacing one's own query of that name."""
    form = SaveForm(request.POST)
    if not form.is_valid():
        return refused(request, form)
    try:
        kept = save_query(request, form)
    except TooManyError as error:
        return page_of(request, form.cleaned_data["sql"], {"problem": str(error)}, status=422)
    messages.success(request, _("Query %(name)s saved.") % {"name": kept.name})
    return redirect(f"{request.path.removesuffix('save/')}?saved={kept.pk}")


@sql_action
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a saved query: one's own, or any as an administrator."""
    messages.success(request, delete_query(request, own_query(request, pk)))
    return redirect("sql:editor")
