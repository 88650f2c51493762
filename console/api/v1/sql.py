"""SQL over the lake: queries asked, kept, scheduled; who may ask."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.requestbody import filled, given, may_choose_channels
from console.api.schemas import Done, Number, Text
from console.api.v1.lake import (
    RightOut,
    SavedOut,
    SqlRunOut,
    require_lake,
    run_out,
    saved_out,
)
from console.reports import schedules
from console.reports.forms import ScheduleForm
from console.sql import right_views, schedule_views, views
from console.sql.desk import DeskError
from console.sql.forms import QueryForm, RightForm, SaveForm
from console.sql.rights import given_to
from console.sql.scheduled import new_schedule, schedule_of


class QueryScheduleOut(Schema):
    """When a kept query runs by itself; `words` empty: it does not."""

    words: str
    values: dict[str, Any]


@operation(
    "POST",
    "/sql/runs",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:run",),
    form=QueryForm,
    response=SqlRunOut,
    status=201,
)
def sql_start(request: HttpRequest) -> dict[str, Any]:
    """Ask a query; `GET /sql/runs/ID` says how far it is, and has its rows."""
    require_lake()
    form = filled(request, lambda data: QueryForm(data))
    try:
        run = views.started(request, form)
    except DeskError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from error
    return run_out(run, run.outcome())


@operation(
    "POST",
    "/sql/runs/{run_id}/cancel",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:cancel",),
    response=Done,
)
def sql_cancel(request: HttpRequest, run_id: UUID) -> Done:
    """End a query now: one's own, or anybody's as an administrator."""
    found, _outcome = views.found_run(request, run_id)
    if not views.may_cancel(request, found):
        detail = _("Only its author and administrators cancel a query.")
        raise ProblemError(HTTPStatus.FORBIDDEN, detail)
    if views.cancelled(request, found):
        return Done(detail=_("The query is cancelled."))
    return Done(detail=_("The query had ended already."))


@operation(
    "POST",
    "/sql/saved",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:save",),
    form=SaveForm,
    response=SavedOut,
    status=201,
)
def sql_save(request: HttpRequest) -> dict[str, Any]:
    """Keep a query under a name; one's own of that name is replaced."""
    form = filled(request, lambda data: SaveForm(data))
    try:
        return saved_out(views.saved(request, form))
    except views.TooManyError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from error


@operation(
    "DELETE",
    "/sql/saved/{query}",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:delete",),
    response=Done,
)
def sql_saved_delete(request: HttpRequest, query: Number) -> Done:
    """Delete a kept query with its schedule: one's own, or any as an administrator."""
    return Done(detail=views.deleted(request, views.own_query(request, query)))


@operation(
    "GET",
    "/sql/saved/{query}/schedule",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:schedule",),
    response=QueryScheduleOut,
)
def sql_schedule(request: HttpRequest, query: Number) -> dict[str, Any]:
    """Show when a kept query runs by itself."""
    found = schedule_of(views.own_query(request, query))
    return {
        "words": "" if found is None else schedules.in_words(found),
        "values": {} if found is None else schedule_views.initial_of(found),
    }


@operation(
    "PATCH",
    "/sql/saved/{query}/schedule",
    area="lake",
    need=Need.ASK_THE_LAKE,
    varying="alerts:write to choose its channels",
    pages=("sql:schedule",),
    form=ScheduleForm,
    response=QueryScheduleOut,
)
def sql_schedule_change(request: HttpRequest, query: Number) -> dict[str, Any]:
    """Let a kept query run by itself: at intervals, or by cron in a time zone."""
    kept = views.own_query(request, query)
    found = schedule_of(kept)
    task = found or new_schedule(kept)
    initial = schedule_views.initial_of(found)
    asked = given(request, tuple(ScheduleForm.base_fields))
    may_tell = may_choose_channels(request, asked, initial.get("channels", ()))
    form = filled(
        request,
        lambda data: ScheduleForm(
            data,
            initial=initial,
            schedule_id=task.pk or 0,
            may_tell=may_tell,
        ),
        asked,
    )
    schedule_views.kept(request, kept, task, form)
    return {"words": schedules.in_words(task), "values": schedule_views.initial_of(task)}


@operation(
    "DELETE",
    "/sql/saved/{query}/schedule",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:schedule-end",),
    response=Done,
)
def sql_schedule_end(request: HttpRequest, query: Number) -> Done:
    """Let a kept query run by itself no more."""
    return Done(detail=schedule_views.ended(request, views.own_query(request, query)))


RIGHT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["topics"],
    "properties": {
        "topics": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "Names, where * stands for any characters; null: all topics.",
        }
    },
}


@operation(
    "PUT",
    "/sql/rights/{who}",
    area="people",
    need=Need.ADMINISTER,
    pages=("sql:rights",),
    body=RIGHT,
    response=RightOut,
)
def sql_right_give(request: HttpRequest, who: Text) -> dict[str, Any]:
    """Let somebody ask the lake: `person:ID` or `group:ID`, as the list of rights names them."""
    right_views.found(who)
    asked = given(request, tuple(RIGHT["properties"]))
    topics = asked.get("topics", [])
    if topics is not None and not isinstance(topics, list):
        detail = _("topics is a list of names, or null for all.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    scope = "all" if topics is None else "some"
    names = " ".join(str(each) for each in topics or ())
    form = filled(
        request,
        lambda data: RightForm(data, whom=right_views.whom()),
        {"who": who, "scope": scope, "topics": names},
    )
    right_views.given_by(request, form)
    found = right_views.found(who)
    return {"who": who, "name": str(found), "topics": given_to(found)}


@operation(
    "DELETE",
    "/sql/rights/{who}",
    area="people",
    need=Need.ADMINISTER,
    pages=("sql:right-take",),
    response=Done,
)
def sql_right_take(request: HttpRequest, who: Text) -> Done:
    """Let somebody ask the lake no more."""
    return Done(detail=right_views.taken(request, right_views.found(who)))
