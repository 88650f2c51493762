"""The lake: its state, SQL queries, and who can run them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.schemas import Limit
from console.data.pipeline.lake_status import status
from console.data.sql import rights, services
from console.data.sql.desk import tables
from console.data.sql.models import SAVED_MAX, SavedQuery, visible_to
from console.data.sql.rights import every_right, topics_of
from console.data.sql.runs import Outcome, Run, newest

RUNS_SHOWN = 50


class LakeOut(Schema):
    """The state of the lake, or why it is unknown."""

    is_on: bool
    problem: str
    state: dict[str, Any]


class SqlRunOut(Schema):
    """A query run; `state`: running, done, failed, cancelled."""

    id: str
    sql: str
    by: str
    began_ms: int
    state: str
    ended_ms: int | None
    sentence: str
    row_count: int
    cut: str


class SqlResultOut(SqlRunOut):
    """A query run with the first rows of its result."""

    columns: list[dict[str, str]]
    rows: list[list[Any]]
    progress: dict[str, Any]


class SqlOut(Schema):
    """The tables that can be queried; `topics` is null if all topics are allowed."""

    tables: list[Any]
    problem: str
    topics: list[str] | None
    runs: list[SqlRunOut]


class SavedOut(Schema):
    """A saved query."""

    id: int
    name: str
    owner: str
    sql: str
    is_shared: bool


class RightOut(Schema):
    """A person's or group's access to the lake; `topics` is null for all topics."""

    who: str
    name: str
    topics: list[str] | None


@operation("GET", "/lake", area="lake", pages=("lake:index", "lake:state"), response=LakeOut)
def lake(request: HttpRequest) -> dict[str, Any]:
    """Get the lake's tables and how far they are behind the log."""
    if not settings.TREBUCHET_LAKE:
        return {"is_on": False, "problem": "", "state": {}}
    known = status()
    return {"is_on": True, "problem": known.problem, "state": known.found}


def require_lake() -> None:
    if not settings.TREBUCHET_LAKE:
        detail = _("This appliance has no lake, so there's nothing to query.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)


@operation(
    "GET",
    "/sql",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:editor",),
    response=SqlOut,
)
def sql(request: HttpRequest) -> dict[str, Any]:
    """List the tables you can query and your recent queries."""
    require_lake()
    assert request.user.is_authenticated
    known, topics = tables(), topics_of(request.user)
    return {
        "tables": [each for each in known["tables"] if topics is None or each["has_topic"]],
        "problem": known.get("problem", ""),
        "topics": topics,
        "runs": [run_out(run, run.outcome()) for run in newest(request.user.pk, RUNS_SHOWN)],
    }


def run_out(run: Run, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "id": run.id,
        "sql": run.sql,
        "by": run.user_name,
        "began_ms": run.began_ms,
        "state": "running" if outcome is None else outcome.state,
        "ended_ms": None if outcome is None else outcome.ended_ms,
        "sentence": "" if outcome is None else outcome.sentence,
        "row_count": 0 if outcome is None else outcome.rows,
        "cut": "" if outcome is None else outcome.cut,
    }


@operation(
    "GET",
    "/sql/runs/{run_id}",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:result", "sql:progress", "sql:chart"),
    response=SqlResultOut,
)
def sql_run(request: HttpRequest, run_id: UUID, limit: Limit = 500) -> dict[str, Any]:
    """Get a query's progress, or the first rows of its result."""
    found, outcome = services.get_run(request, run_id)
    is_done = outcome is not None and outcome.state == "done"
    return {
        **run_out(found, outcome),
        "columns": [{"name": each.name, "type": each.type} for each in outcome.columns]
        if outcome is not None
        else [],
        "rows": list(found.rows(limit)) if is_done else [],
        "progress": services.progress_of(found) if outcome is None else {},
    }


@operation(
    "GET",
    "/sql/runs/{run_id}/export/{kind}",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:export",),
    file="application/octet-stream",
)
def sql_export(request: HttpRequest, run_id: UUID, kind: str) -> HttpResponseBase:
    """Export a result as csv, jsonl or parquet; the audit log records the export."""
    return services.exported(request, run_id, kind)


@operation(
    "GET",
    "/sql/saved",
    area="lake",
    need=Need.ASK_THE_LAKE,
    pages=("sql:editor",),
    response=list[SavedOut],
)
def sql_saved(request: HttpRequest) -> list[dict[str, Any]]:
    """List your saved queries and those shared by others."""
    assert request.user.is_authenticated
    return [saved_out(each) for each in visible_to(request.user)[:SAVED_MAX]]


def saved_out(kept: SavedQuery) -> dict[str, Any]:
    return {
        "id": kept.pk,
        "name": kept.name,
        "owner": kept.owner.get_username(),
        "sql": kept.sql,
        "is_shared": kept.is_shared,
    }


@operation(
    "GET",
    "/sql/rights",
    area="lake",
    need=Need.ADMINISTER,
    pages=("sql:rights",),
    response=list[RightOut],
)
def sql_rights(request: HttpRequest) -> list[dict[str, Any]]:
    """List who can query the lake, and for which topics."""
    return [
        {"who": rights.key_of(who), "name": str(who), "topics": topics}
        for who, topics in every_right()
    ]
