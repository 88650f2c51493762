"""Queries: run, cancel, export, save and delete them, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import FileResponse, Http404, HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from console.data.sql import exports
from console.data.sql.desk import desk
from console.data.sql.models import RUN_MS_MAX, SAVED_MAX, SavedQuery, visible_to
from console.data.sql.rights import covers, topics_of
from console.data.sql.runs import PARQUET, Outcome, Run, lost_outcome, new_run, run_of
from console.data.sql.scheduled import unschedule
from console.lib.moment import now_ms
from console.people.audit.record import change

if TYPE_CHECKING:
    from uuid import UUID

    from django.http.response import HttpResponseBase

    from console.data.sql.forms import QueryForm, SaveForm

# A quick result appears on the first page load.
WAITED_S = 1.5
SUBJECT_CHARACTERS = 300


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


def progress_of(found: Run) -> dict[str, Any]:
    working = desk.working(found.id)
    return {
        "percent": None if working is None else working.percent,
        "rows_read": 0 if working is None else working.rows,
        "seconds": (now_ms() - found.began_ms) / 1_000,
    }


def may_cancel(request: HttpRequest, found: Run) -> bool:
    return found.user_id == request.user.pk or bool(request.user.is_staff)


def cancel_query(request: HttpRequest, found: Run) -> bool:
    """Cancel a query; return whether it was running."""
    with change(request, "sql.cancel", found.first_line[:SUBJECT_CHARACTERS]):
        is_ending = desk.cancel(found.id)
        if is_ending:
            desk.wait(found.id, WAITED_S)
    return is_ending


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
