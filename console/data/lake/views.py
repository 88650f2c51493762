"""The lake's page: its tables, its delay behind the log, and its problems."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.shortcuts import render
from django.utils.translation import gettext as _

from console.accounts.permissions import page
from console.accounts.roles import may_query
from console.data.pipeline.lake_status import SILENT_MS, status
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

GAPS = "bronze.gaps"
DAYS_DEFAULT = "30"
ENGINES = {"spark": "Spark", "arrow": "Arrow"}


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of the lake, and a command that fixes or explains it."""

    sentence: str
    state: str
    command: str = ""


@page
def index(request: HttpRequest) -> HttpResponse:
    """Show the page; the slow status is loaded afterwards, or at once without scripts."""
    context: dict[str, Any] = {"is_on": bool(settings.TREBUCHET_LAKE)}
    if settings.TREBUCHET_LAKE and "now" in request.GET:
        context |= shown()
    return render(request, "lake/index.html", context | {"may_query": may_query(request.user)})


@page
def state(request: HttpRequest) -> HttpResponse:
    """Show only the state; the page polls this every ten seconds."""
    return render(request, "lake/_status.html", shown() if settings.TREBUCHET_LAKE else {})


def shown() -> dict[str, Any]:
    """Return the template context for the state of the lake."""
    known = status()
    if known.problem:
        return {"problem": known.problem}
    found = known.found
    jobs = found.get("jobs") or {}
    size = sum(each["bytes"] for each in found["tables"])
    return {
        "found": found,
        "looked_ms": jobs.get("checked_ms") or None,
        "engine": ENGINES.get(jobs.get("engine", ""), ""),
        "troubles": troubles(found, now_ms()),
        "size": size,
        "last_batch_ms": found.get("committed_ms"),
        "rows": sum(each["rows"] for each in found["tables"] if each["table"] == "bronze.messages"),
        "days": os.environ.get("TREBUCHET_LAKE_DAYS", "") or DAYS_DEFAULT,
        "read_ms": now_ms(),
    }


def troubles(found: dict[str, Any], now: int) -> list[Trouble]:
    """Return the problems, worst first: errors, no activity, messages about to expire, gaps."""
    jobs = found.get("jobs") or {}
    # After a quiet hour the last job is old, but a new message is no reason for an alarm.
    waiting_ms = max(int(jobs.get("checked_ms") or 0), int(found.get("pending_since_ms") or 0))
    wrong = []
    if jobs.get("error"):
        wrong.append(Trouble(jobs["error"], "bad", "manage.py lake verify"))
    elif found.get("pending_bytes") and now - waiting_ms > SILENT_MS:
        sentence = _(
            "The log has new messages, and the pipeline hasn't ingested any for more than ten "
            "minutes. Check that its worker is running."
        )
        wrong.append(Trouble(sentence, "bad", "manage.py lake ingest"))
    if found.get("warning"):
        wrong.append(Trouble(found["warning"], "warn", "manage.py lake ingest"))
    gaps = next((each["rows"] for each in found["tables"] if each["table"] == GAPS), 0)
    if gaps:
        sentence = _("Some ranges of the log couldn't be read. See the table bronze.gaps.")
        wrong.append(Trouble(sentence, "warn", "manage.py lake verify"))
    return wrong
