"""Reports: runs, results and schedules."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from django.http import FileResponse, HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from django_celery_beat.models import PeriodicTask
from ninja import Schema

from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.requestbody import json_object, may_choose_channels, schema_of, valid_form
from console.api.schemas import (
    LIMIT,
    Cursor,
    Done,
    DryRun,
    Limit,
    Listed,
    Number,
    PlanOut,
    Text,
    newest,
    plan_of,
)
from console.data.reports import catalog, health, schedules, scheduling, services
from console.data.reports.catalog import Report
from console.data.reports.forms import ParametersForm, ScheduleForm
from console.data.reports.models import ReportRun
from console.data.reports.presenting import milliseconds

SEEING = "messages:read if the report shows message keys or tags"


class ReportOut(Schema):
    """A report that can run, with its parameters."""

    name: str
    title: str
    parameters: list[dict[str, Any]]


class ReportProblemOut(Schema):
    """A reason why reports can't run, and its remedy."""

    sentence: str
    remedy: str
    command: str
    blocks: bool


class ReportsOut(Schema):
    """The reports, and anything that prevents them from running."""

    reports: list[ReportOut]
    problems: list[ReportProblemOut]


class RunOut(Schema):
    """A report run; `progress_done` of `progress_total` tasks, 0 of 0 if unknown."""

    id: int
    report: str
    parameters: dict[str, Any]
    state: str
    stage: str
    progress_done: int
    progress_total: int
    created_ms: int | None
    started_ms: int | None
    finished_ms: int | None
    failure: str
    result_rows: int


class RunDetailOut(RunOut):
    """A report run with its result, null until the run is done."""

    result: Any


class ScheduleOut(Schema):
    """A report's schedule."""

    id: int
    report: str
    words: str
    values: dict[str, Any]


def run_out(run: ReportRun) -> dict[str, Any]:
    names = ("report", "parameters", "stage", "progress_done", "progress_total", "result_rows")
    return {
        "id": run.pk,
        **{name: getattr(run, name) for name in names},
        "state": run.shown_state.value,
        "failure": run.shown_failure,
        "created_ms": milliseconds(run.created_at),
        "started_ms": milliseconds(run.started_at),
        "finished_ms": milliseconds(run.finished_at),
    }


@operation(
    "GET",
    "/reports",
    area="reports",
    pages=("reports:list", "reports:health"),
    response=ReportsOut,
)
def reports(request: HttpRequest) -> dict[str, Any]:
    """List reports with their parameters, and anything that prevents them from running."""
    known = catalog.known_reports().values()
    return {
        "reports": [
            {
                "name": each.name,
                "title": each.title,
                "parameters": msgspec.to_builtins(each.parameters),
            }
            for each in known
        ],
        "problems": health.problems(),
    }


@operation("GET", "/report-runs", area="reports", pages=("reports:runs",), response=Listed[RunOut])
def report_runs(
    request: HttpRequest, report: Text = "", cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List report runs, newest first."""
    found = ReportRun.objects.defer("log_tail", "result")
    if report:
        found = found.filter(report=report)
    page, following = newest(found, cursor, limit)
    return {"items": [run_out(each) for each in page], "next": following}


@operation(
    "GET",
    "/report-runs/{run}",
    area="reports",
    varying=SEEING,
    pages=("reports:run", "reports:progress", "reports:chart"),
    response=RunDetailOut,
)
def report_run(request: HttpRequest, run: Number) -> dict[str, Any]:
    """Get a report run's progress or result."""
    found = services.get_run(request, run)
    return {**run_out(found), "result": found.result}


@operation(
    "GET",
    "/report-runs/{run}/csv",
    area="reports",
    varying=SEEING,
    pages=("reports:csv",),
    file="text/csv",
)
def report_run_csv(request: HttpRequest, run: Number) -> HttpResponseBase:
    """Download a result's rows as CSV."""
    return services.csv_of(services.get_run(request, run))


@operation(
    "GET",
    "/report-runs/{run}/parquet",
    area="reports",
    varying=SEEING,
    pages=("reports:parquet",),
    file="application/octet-stream",
)
def report_run_parquet(request: HttpRequest, run: Number) -> FileResponse:
    """Download all rows of a result as Parquet, while they are stored."""
    return services.parquet_of(request, services.get_run(request, run))


@operation(
    "GET",
    "/report-schedules",
    area="reports",
    pages=("reports:list",),
    response=list[ScheduleOut],
)
def report_schedules(request: HttpRequest) -> list[dict[str, Any]]:
    """List report schedules."""
    return [schedule_out(each) for each in schedules.all_schedules()]


@operation(
    "GET",
    "/report-schedules/{schedule}",
    area="reports",
    pages=("reports:schedule",),
    response=ScheduleOut,
)
def report_schedule(request: HttpRequest, schedule: Number) -> dict[str, Any]:
    """Get a report schedule."""
    return schedule_out(scheduling.found_schedule(schedule))


def schedule_out(schedule: PeriodicTask) -> dict[str, Any]:
    return {
        "id": schedule.pk,
        "report": str(schedules.arguments(schedule).get("report", "")),
        "words": schedules.in_words(schedule),
        "values": scheduling.audited(schedule),
    }


START: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["report"],
    "properties": {
        "report": {"type": "string", "description": "The name of a report."},
        "parameters": {
            "type": "object",
            "description": "As described in the list of reports.",
        },
    },
}
SCHEDULE_FIELDS = tuple(ScheduleForm.base_fields)
SCHEDULE: dict[str, Any] = {
    **schema_of(ScheduleForm),
    "properties": {**START["properties"], **schema_of(ScheduleForm)["properties"]},
}


def report_named(name: object) -> Report:
    found = catalog.known_reports().get(str(name))
    if found is None:
        detail = _("This report doesn't exist.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return found


def parameters_of(
    request: HttpRequest, report: Report, asked: object, initial: dict[str, Any] | None = None
) -> ParametersForm:
    """Return a report's validated parameters."""
    names = {each.name for each in report.parameters}
    if not isinstance(asked, dict) or not set(asked) <= names:
        detail = _("parameters must be an object with %(names)s.") % {
            "names": ", ".join(sorted(names))
        }
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return valid_form(request, lambda data: ParametersForm(report, data, initial=initial), asked)


@operation(
    "POST",
    "/report-runs",
    area="reports",
    varying=SEEING,
    need=Need.OPERATE,
    pages=("reports:start",),
    body=START,
    response=RunOut,
)
def report_start(request: HttpRequest) -> dict[str, Any]:
    """Queue a report run; to retry one, send its parameters again."""
    blocked = health.blocking_problem()
    if blocked is not None:
        raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, blocked.sentence)
    asked = json_object(request, tuple(START["properties"]))
    report = report_named(asked.get("report"))
    form = parameters_of(request, report, asked.get("parameters", {}))
    return run_out(services.start_run(request, report, form.parameters()))


@operation(
    "POST",
    "/report-runs/{run}/cancel",
    area="reports",
    need=Need.OPERATE,
    pages=("reports:cancel",),
    response=Done,
)
def report_cancel(request: HttpRequest, run: Number) -> Done:
    """Cancel a run: at once if it is queued, soon if it is running."""
    _is_ending, text = services.cancel_run(request, services.get_run(request, run))
    return Done(detail=text)


@operation(
    "POST",
    "/report-schedules",
    area="reports",
    need=Need.OPERATE,
    varying=f"alerts:write to choose its channels; {SEEING}",
    pages=("reports:schedule-new",),
    body=SCHEDULE,
    response=ScheduleOut,
)
def report_schedule_create(request: HttpRequest) -> dict[str, Any]:
    """Create a report schedule: at an interval, or by cron in a time zone."""
    asked = json_object(request, (*START["properties"], *SCHEDULE_FIELDS))
    report = report_named(asked.get("report"))
    may_notify = may_choose_channels(request, asked)
    begins = {"enabled": True, "catch_up": True, "kind": "cron", "cron": "0 6 * * *"}
    form = valid_form(
        request,
        lambda data: ScheduleForm(data, initial=begins, may_notify=may_notify),
        {name: each for name, each in asked.items() if name in SCHEDULE_FIELDS},
    )
    parameters = parameters_of(request, report, asked.get("parameters", {}))
    schedule = scheduling.new_schedule(report)
    scheduling.save_schedule(request, schedule, form, parameters)
    return schedule_out(schedule)


@operation(
    "PATCH",
    "/report-schedules/{schedule}",
    area="reports",
    need=Need.OPERATE,
    varying=f"alerts:write to choose its channels; {SEEING}",
    pages=("reports:schedule", "reports:schedule-switch"),
    body=SCHEDULE,
    response=ScheduleOut,
)
def report_schedule_change(request: HttpRequest, schedule: Number) -> dict[str, Any]:
    """Update a report schedule; `enabled` turns it on or off."""
    found = scheduling.found_schedule(schedule)
    asked = json_object(request, ("parameters", *SCHEDULE_FIELDS))
    may_notify = may_choose_channels(request, asked, schedules.channels_of(found))
    form = valid_form(
        request,
        lambda data: ScheduleForm(
            data,
            initial=scheduling.schedule_initial(found),
            schedule_id=found.pk,
            may_notify=may_notify,
        ),
        {name: each for name, each in asked.items() if name in SCHEDULE_FIELDS},
    )
    arguments = schedules.arguments(found)
    report = catalog.known_reports().get(str(arguments.get("report", "")))
    parameters = None
    if report is not None:
        kept = arguments.get("parameters") or {}
        parameters = parameters_of(request, report, asked.get("parameters", {}), kept)
    scheduling.save_schedule(request, found, form, parameters)
    return schedule_out(found)


@operation(
    "DELETE",
    "/report-schedules/{schedule}",
    area="reports",
    need=Need.OPERATE,
    pages=("reports:schedule-delete",),
    response=Done | PlanOut,
)
def report_schedule_delete(
    request: HttpRequest, schedule: Number, dry_run: DryRun = False
) -> Done | PlanOut:
    """Delete a report schedule; its runs are kept."""
    found = scheduling.found_schedule(schedule)
    if dry_run:
        return plan_of(scheduling.danger_of(found))
    scheduling.delete_schedule(request, found)
    return Done(detail=_("Schedule deleted. Results of its runs are kept."))
