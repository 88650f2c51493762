"""Flight recorder pages: the slowest messages, errors, and trace levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_action, page
from console.gateway.errors import GatewayError
from console.gateway.flight_recorder import (
    Level,
    Question,
)
from console.lib.moment import now_ms
from console.messages.tracing.filters import FilterError, parse_filter
from console.messages.tracing.recorder import (
    MINUTES,
    MINUTES_MAX,
    QUESTIONS,
    WORDS,
    LevelError,
    Row,
    change_level,
    levels,
    rows_of,
)
from console.observe.history.range import whole

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


FULL_MINUTES = (1, 5, 15, 60)
RECORDING = frozenset({Level.RECORDER, Level.FULL})
"""Levels at which a broker's recorder is active."""


@page
def recorded(request: HttpRequest) -> HttpResponse:
    """Show recorded events: by default the slowest of the last ten minutes."""
    asked = request.GET.get("ask", "")
    question = Question(asked) if asked in set(QUESTIONS) else Question.SLOWEST
    typed = request.GET.get("minutes", "").strip()
    minutes = whole(typed) if typed else MINUTES
    is_possible = minutes is not None and 1 <= minutes <= MINUTES_MAX
    words = {name: request.GET.get(name, "") for name in WORDS}
    problems: list[str] = []
    rows: list[Row] = []
    try:
        wanted = parse_filter(words)
        if minutes is not None and is_possible:
            rows, problems = rows_of(question, minutes, wanted)
        else:
            problems = [
                _("Enter a whole number of minutes from 1 to %(max)d.") % {"max": MINUTES_MAX}
            ]
    except FilterError as error:
        problems = [str(error)]
    in_force = levels()
    are_off = [found.level not in RECORDING for _, found, _ in in_force]
    context: dict[str, Any] = {
        "rows": rows,
        "problems": problems,
        "question": question,
        "questions": QUESTIONS.items(),
        "minutes": minutes if is_possible else MINUTES,
        "words": words,
        "levels": in_force,
        "no_recorder": bool(are_off) and all(are_off),
        "full_minutes": FULL_MINUTES,
        "read_at_ms": now_ms(),
    }
    return render(request, "tracing/recorded.html", context)


@administrators_action
def level(request: HttpRequest) -> HttpResponse:
    """Set the trace level of all brokers; every level ends automatically."""
    minutes = whole(request.POST.get("minutes", "")) or 0
    try:
        messages.success(request, change_level(request, request.POST.get("level", ""), minutes))
    except LevelError as error:
        messages.error(request, str(error))
    except GatewayError as error:
        messages.error(request, error.what)
    return redirect("tracing:recorded")
