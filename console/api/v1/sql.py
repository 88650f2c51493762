"""SQL queries over the lake: run, save and schedule them, and manage access."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.requestbody import json_object, may_choose_channels, valid_form
from console.api.schemas import Done, Number, Text
from console.api.v1.lake import (
    RightOut,
    SavedOut,
    SqlRunOut,
    require_lake,
    run_out,
    saved_out,
)
from console.data.reports import schedules
from console.data.reports.forms import ScheduleForm
from console.data.sql import rights, scheduled, services
from console.data.sql.desk import DeskError
from console.data.sql.forms import QueryForm, RightForm, SaveForm
from console.data.sql.rights import granted_to
from console.data.sql.scheduled import new_schedule, schedule_of


class QueryScheduleOut(Schema):
    """A saved query's schedule; `words` is empty if it isn't scheduled."""

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
    """Start a query; `GET /sql/runs/ID` returns its progress and rows."""
    require_lake()
    form = valid_form(request, lambda data: QueryForm(data))
    try:
        run = services.start_query(request, form)
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
    """Cancel a query: your own, or anyone's as an administrator."""
    found, _outcome = services.get_run(request, run_id)
    if not services.may_cancel(request, found):
        detail = _("Only the author and administrators can cancel a query.")
        raise ProblemError(HTTPStatus.FORBIDDEN, detail)
    if services.cancel_query(request, found):
        return Done(detail=_("Query cancelled."))
    return Done(detail=_("The query had already finished."))


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
    """Save a query under a name, replacing your query of that name."""
    form = valid_form(request, lambda data: SaveForm(data))
    try:
        return saved_out(services.save_query(request, form))
    except services.TooManyError as error:
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
    """Delete a saved query and its schedule: your own, or any as an administrator."""
    return Done(detail=services.delete_query(request, services.own_query(request, query)))


@operation(
    "GET",
    "/sql/saved/{query}/schedule",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:schedule",),
    response=QueryScheduleOut,
)
def sql_schedule(request: HttpRequest, query: Number) -> dict[str, Any]:
    """Get a saved query's schedule."""
    found = schedule_of(services.own_query(request, query))
    return {
        "words": "" if found is None else schedules.in_words(found),
        "values": {} if found is None else scheduled.initial_of(found),
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
    """Schedule a saved query: at an interval, or by cron in a time zone."""
    kept = services.own_query(request, query)
    found = schedule_of(kept)
    task = found or new_schedule(kept)
    initial = scheduled.initial_of(found)
    asked = json_object(request, tuple(ScheduleForm.base_fields))
    may_notify = may_choose_channels(request, asked, initial.get("channels", ()))
    form = valid_form(
        request,
        lambda data: ScheduleForm(
            data,
            initial=initial,
            schedule_id=task.pk or 0,
            may_notify=may_notify,
        ),
        asked,
    )
    scheduled.save_schedule(request, kept, task, form)
    return {"words": schedules.in_words(task), "values": scheduled.initial_of(task)}


@operation(
    "DELETE",
    "/sql/saved/{query}/schedule",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:schedule-end",),
    response=Done,
)
def sql_schedule_end(request: HttpRequest, query: Number) -> Done:
    """Remove a saved query's schedule."""
    return Done(detail=scheduled.delete_schedule(request, services.own_query(request, query)))


RIGHT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["topics"],
    "properties": {
        "topics": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "Topic names, with * as a wildcard; null allows all topics.",
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
    """Grant access to the lake to `person:ID` or `group:ID`, as in the list of rights."""
    rights.get_grantee(who)
    asked = json_object(request, tuple(RIGHT["properties"]))
    topics = asked.get("topics", [])
    if topics is not None and not isinstance(topics, list):
        detail = _("topics must be a list of names, or null for all.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    scope = "all" if topics is None else "some"
    names = " ".join(str(each) for each in topics or ())
    form = valid_form(
        request,
        lambda data: RightForm(data, grantees=rights.possible_grantees()),
        {"grantee": who, "scope": scope, "topics": names},
    )
    rights.grant_right(request, form)
    found = rights.get_grantee(who)
    return {"who": who, "name": str(found), "topics": granted_to(found)}


@operation(
    "DELETE",
    "/sql/rights/{who}",
    area="people",
    need=Need.ADMINISTER,
    pages=("sql:right-take",),
    response=Done,
)
def sql_right_take(request: HttpRequest, who: Text) -> Done:
    """Revoke access to the lake."""
    return Done(detail=rights.revoke_right(request, rights.get_grantee(who)))
