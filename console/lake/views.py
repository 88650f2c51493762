"""The lake's page: its tables, how far behind the log they are, and what is wrong."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.shortcuts import render
from django.utils.translation import gettext as _

from console.accounts.permissions import page
from console.gateway.moment import now_ms
from console.lake.status import SILENT_MS, status
from console.sql.rights import may_query

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

GAPS = "bronze.gaps"
DAYS_DEFAULT = "30"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with the lake, and the command that mends it or says more."""

    sentence: str
    state: str
    command: str = ""


@page
def index(request: HttpRequest) -> HttpResponse:
    """Show the page; what takes a second to ask comes after it, or at once without a script."""
    context: dict[str, Any] = {"is_on": bool(settings.TREBUCHET_LAKE)}
    if settings.TREBUCHET_LAKE and "now" in request.GET:
        context |= shown()
    return render(request, "lake/index.html", context | {"may_query": may_query(request.user)})


@page
def state(request: HttpRequest) -> HttpResponse:
    """Show only the state, which the page asks for every ten seconds."""
    return render(request, "lake/_status.html", shown() if settings.TREBUCHET_LAKE else {})


def shown() -> dict[str, Any]:
    """Return the template's values for the state of the lake."""
    known = status()
    if known.problem:
        return {"problem": known.problem}
    found = known.found
    keeper = found.get("keeper") or {}
    size = sum(each["bytes"] for each in found["tables"])
    return {
        "found": found,
        "looked_ms": keeper.get("checked_ms") or None,
        "troubles": troubles(found, now_ms()),
        "size": size,
        "last_batch_ms": found.get("committed_ms"),
        "rows": sum(each["rows"] for each in found["tables"] if each["table"] == "bronze.messages"),
        "days": os.environ.get("TREBUCHET_LAKE_DAYS", "") or DAYS_DEFAULT,
        "read_ms": now_ms(),
    }


def troubles(found: dict[str, Any], now: int) -> list[Trouble]:
    """Return what is wrong, the worst first: an error, silence, messages soon lost, gaps."""
    keeper = found.get("keeper") or {}
    wrong = []
    if keeper.get("error"):
        wrong.append(Trouble(keeper["error"], "bad", "manage.py lake verify"))
    if not keeper.get("checked_ms"):
        wrong.append(Trouble(_("No process keeps the lake."), "bad", "manage.py lake run"))
    elif now - keeper["checked_ms"] > SILENT_MS:
        sentence = _("The lake's process has not looked at the log for more than ten minutes.")
        wrong.append(Trouble(sentence, "bad", "manage.py lake run"))
    if found.get("warning"):
        wrong.append(Trouble(found["warning"], "warn", "manage.py lake ingest"))
    gaps = next((each["rows"] for each in found["tables"] if each["table"] == GAPS), 0)
    if gaps:
        sentence = _("Ranges of the log could not be read: the table bronze.gaps says which.")
        wrong.append(Trouble(sentence, "warn", "manage.py lake verify"))
    return wrong
