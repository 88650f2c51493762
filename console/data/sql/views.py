"""The SQL page: an editor next to the lake's tables, and the results of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.http import FileResponse, Http404, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.data.sql import charts, exports
from console.data.sql.access import sql_action, sql_page
from console.data.sql.desk import (
    BYTES_MAX,
    MEMORY_MB,
    ROWS_MAX,
    SECONDS_MAX,
    DeskError,
    desk,
    tables,
)
from console.data.sql.forms import QueryForm, SaveForm
from console.data.sql.models import RUN_MS_MAX, SAVED_MAX, SavedQuery, visible_to
from console.data.sql.rights import covers, topics_of
from console.data.sql.runs import PARQUET, Run, lost_outcome, new_run, newest, run_of
from console.data.sql.scheduled import unschedule
from console.data.sql.subjects import problem_of, query_of
from console.data.sql.values import shown
from console.lib.moment import now_ms
from console.people.audit.record import change

if TYPE_CHECKING:
    from uuid import UUID

    from django.forms import Form
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from console.data.sql.runs import Outcome

ROWS_SHOWN = 500
RUNS_SHOWN = 12
# A quick result appears on the first page load.
WAITED_S = 1.5
SUBJECT_CHARACTERS = 300
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


def start_query(request: HttpRequest, form: QueryForm) -> Run:
    """Start a query, and wait briefly for its result.

    Raises:
        DeskError: it can't be started now.
    """
    user = request.user
    assert user.is_authenticated
    sql, zone = form.cleaned_data["sql"], form.cleaned_data["zone"]
    asked = new_run(sql, zone, user.pk, user.get_username(), topics_of(user))
    with change(request, "sql.run", asked.first_line[:SUBJECT_CHARACTERS], after={"sql": sql}):
        desk.start(asked)
    desk.wait(asked.id, WAITED_S)
    return asked


def refused(request: HttpRequest, form: Form) -> HttpResponse:
    problem = " ".join(str(each) for found in form.errors.values() for each in found)
    return page_of(request, request.POST.get("sql", ""), {"problem": problem}, status=422)


def get_run(request: HttpRequest, run_id: UUID) -> tuple[Run, Outcome | None]:
    """Return a run with its outcome, None while it runs.

    People with access to all topics may see every result. Everyone else sees their own, as long as
    they
    have access to its topics.
    """
    found, user = run_of(str(run_id)), request.user
    assert user.is_authenticated
    topics = topics_of(user)
    is_seen = found is not None and (
        topics is None or (found.user_id == user.pk and covers(topics, found.topics))
    )
    if found is None or not is_seen:
        raise Http404(_("This result is no longer stored. Run the query again."))
    if not found.is_masked:
        text = _("A masking rule was added after this result was created. Run the query again.")
        raise Http404(text)
    # Check in this order, since a run that ends in between has an outcome. Scheduled runs belong to
    # another process.
    is_new = found.scheduled and now_ms() - found.began_ms < RUN_MS_MAX
    is_working = is_new or desk.working(found.id) is not None
    outcome = found.outcome()
    return found, outcome or (None if is_working else lost_outcome())


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


def progress_of(found: Run) -> dict[str, Any]:
    working = desk.working(found.id)
    return {
        "percent": None if working is None else working.percent,
        "rows_read": 0 if working is None else working.rows,
        "seconds": (now_ms() - found.began_ms) / 1_000,
    }


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


def may_cancel(request: HttpRequest, found: Run) -> bool:
    return found.user_id == request.user.pk or bool(request.user.is_staff)


def cancel_query(request: HttpRequest, found: Run) -> bool:
    """Cancel a query; return whether it was running."""
    with change(request, "sql.cancel", found.first_line[:SUBJECT_CHARACTERS]):
        is_ending = desk.cancel(found.id)
        if is_ending:
            desk.wait(found.id, WAITED_S)
    return is_ending


@sql_action
def export(request: HttpRequest, run_id: UUID, kind: str) -> HttpResponseBase:
    """Return a result's rows as a file, and record the export in the audit log."""
    return exported(request, run_id, kind)


def exported(request: HttpRequest, run_id: UUID, kind: str) -> HttpResponseBase:
    found, outcome = get_run(request, run_id)
    if outcome is None or outcome.state != "done" or kind not in {"csv", "jsonl", "parquet"}:
        raise Http404(_("This file doesn't exist."))
    name = f"query-{found.id[:8]}.{kind}"
    after = {"format": kind, "rows": outcome.rows, "sql": found.sql}
    with change(request, "sql.export", found.first_line[:SUBJECT_CHARACTERS], after=after):
        if kind == "parquet":
            file = (found.directory / PARQUET).open("rb")
            return FileResponse(file, as_attachment=True, filename=name)
    lines = exports.csv_lines if kind == "csv" else exports.json_lines
    content_type = "text/csv" if kind == "csv" else "application/x-ndjson"
    response = StreamingHttpResponse(lines(found, outcome.columns), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


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


class TooManyError(Exception):
    """The person has the maximum number of saved queries."""

    def __init__(self) -> None:
        text = _("You already have %(count)d saved queries. Delete one first.")
        super().__init__(text % {"count": SAVED_MAX})


def save_query(request: HttpRequest, form: SaveForm) -> SavedQuery:
    """Save a query.

    Raises:
        TooManyError: the person has too many saved queries.
    """
    data, user = form.cleaned_data, request.user
    assert user.is_authenticated
    before = SavedQuery.objects.filter(owner=user, name=data["name"]).first()
    if before is None and SavedQuery.objects.filter(owner=user).count() >= SAVED_MAX:
        raise TooManyError
    after = {"sql": data["sql"], "is_shared": data["is_shared"]}
    old = None if before is None else {"sql": before.sql, "is_shared": before.is_shared}
    with change(request, "sql.save", data["name"], before=old, after=after):
        kept, _is_new = SavedQuery.objects.update_or_create(
            owner=user, name=data["name"], defaults=after
        )
    return kept


@sql_action
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a saved query: one's own, or any as an administrator."""
    messages.success(request, delete_query(request, own_query(request, pk)))
    return redirect("sql:editor")


def own_query(request: HttpRequest, pk: int) -> SavedQuery:
    """Return a saved query that the person may change: their own, or any as an administrator."""
    assert request.user.is_authenticated
    kept = get_object_or_404(visible_to(request.user), pk=pk)
    if kept.owner_id != request.user.pk and not request.user.is_staff:
        raise Http404
    return kept


def delete_query(request: HttpRequest, query: SavedQuery) -> str:
    """Delete a saved query with its schedule; return a sentence about it."""
    with change(request, "sql.delete", query.name, before={"sql": query.sql}):
        unschedule(query)
        query.delete()
    return _("Query %(name)s deleted.") % {"name": query.name}
