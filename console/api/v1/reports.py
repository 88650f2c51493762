"""Reports: which there are, their runs and results, their schedules."""

from __future__ import annotations

from typing import Any

import msgspec
from django.http import FileResponse, HttpRequest, HttpResponseBase
from django_celery_beat.models import PeriodicTask
from ninja import Schema

from console.api.operations import operation
from console.api.schemas import LIMIT, Cursor, Limit, Listed, Number, Text, newest
from console.reports import catalog, health, schedule_views, schedules, views
from console.reports.models import ReportRun
from console.reports.presenting import milliseconds


class ReportOut(Schema):
    """A report that can run, with its parameters."""

    name: str
    title: str
    parameters: list[dict[str, Any]]


class ReportProblemOut(Schema):
    """What keeps reports from running, and its remedy."""

    sentence: str
    remedy: str
    command: str
    blocks: bool


class ReportsOut(Schema):
    """The reports, and what keeps them from running."""

    reports: list[ReportOut]
    problems: list[ReportProblemOut]


class RunOut(Schema):
    """A run of a report; `progress_done` of `progress_total` tasks, 0 of 0: not known."""

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
    """A run with its result, None until it is done."""

    result: Any


class ScheduleOut(Schema):
    """When a report runs by itself."""

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
    """List the reports with their parameters, and what keeps them from running."""
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
    """List runs, newest first."""
    found = ReportRun.objects.defer("log_tail", "result")
    if report:
        found = found.filter(report=report)
    page, following = newest(found, cursor, limit)
    return {"items": [run_out(each) for each in page], "next": following}


@operation(
    "GET",
    "/report-runs/{run}",
    area="reports",
    pages=("reports:run", "reports:progress", "reports:chart"),
    response=RunDetailOut,
)
def report_run(request: HttpRequest, run: Number) -> dict[str, Any]:
    """Show how far a run is, or its result."""
    found = views.found_run(run)
    return {**run_out(found), "result": found.result}


@operation(
    "GET",
    "/report-runs/{run}/csv",
    area="reports",
    pages=("reports:csv",),
    file="text/csv",
)
def report_run_csv(request: HttpRequest, run: Number) -> HttpResponseBase:
    """Take the rows of a result as CSV."""
    return views.csv_of(views.found_run(run))


@operation(
    "GET",
    "/report-runs/{run}/parquet",
    area="reports",
    pages=("reports:parquet",),
    file="application/octet-stream",
)
def report_run_parquet(request: HttpRequest, run: Number) -> FileResponse:
    """Take all rows of a result as Parquet, as long as they are kept."""
    return views.parquet_of(views.found_run(run))


@operation(
    "GET",
    "/report-schedules",
    area="reports",
    pages=("reports:list",),
    response=list[ScheduleOut],
)
def report_schedules(request: HttpRequest) -> list[dict[str, Any]]:
    """List the schedules."""
    return [schedule_out(each) for each in schedules.all_schedules()]


@operation(
    "GET",
    "/report-schedules/{schedule}",
    area="reports",
    pages=("reports:schedule",),
    response=ScheduleOut,
)
def report_schedule(request: HttpRequest, schedule: Number) -> dict[str, Any]:
    """Show a schedule."""
    return schedule_out(schedule_views.found_schedule(schedule))


def schedule_out(schedule: PeriodicTask) -> dict[str, Any]:
    return {
        "id": schedule.pk,
        "report": str(schedules.arguments(schedule).get("report", "")),
        "words": schedules.in_words(schedule),
        "values": schedule_views.audited(schedule),
    }
