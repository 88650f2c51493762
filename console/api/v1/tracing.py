"""Tracing and demo traffic: what flight recorders kept, how much brokers trace."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema
from pydantic import Field

from console.accounts.actions import Action
from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.requestbody import given
from console.api.schemas import Done, Text
from console.demo import views as demo_views
from console.gateway.recorded import FULL_MINUTES_MAX, Level, Question
from console.tracing.filters import FilterError, parse_filter
from console.tracing.recorded_views import (
    MINUTES,
    MINUTES_MAX,
    QUESTIONS,
    WORDS,
    LevelError,
    levelled,
    levels,
    rows_of,
)


class RecordedOut(Schema):
    """Something that happened to a message; `event` has the broker's own names."""

    broker_name: str
    at_ms: int
    latency_us: int
    event: dict[str, Any]


class RecordedListOut(Schema):
    """What flight recorders kept, and why some brokers have nothing to say."""

    items: list[RecordedOut]
    problems: list[str]


class LevelOut(Schema):
    """How much a broker traces, and how far its recorder reaches back."""

    broker_name: str
    level: str
    full_until_ms: int | None
    entries: int
    bytes: int
    bytes_max: int
    since_ms: int


LEVEL: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["level"],
    "properties": {
        "level": {"enum": [each.value for each in Level]},
        "minutes": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": FULL_MINUTES_MAX,
            "description": "How long everything is traced; `full` takes it.",
        },
    },
}


@operation(
    "GET",
    "/tracing/recorded",
    area="messages",
    need=Action.SEE,
    pages=("tracing:recorded",),
    response=RecordedListOut,
)
def tracing_recorded(
    request: HttpRequest,
    ask: Annotated[Text, Field(description="`slowest`, `errors` or `all`.")] = Question.SLOWEST,
    minutes: Annotated[int, Field(ge=1, le=MINUTES_MAX)] = MINUTES,
    topic: Text = "",
    group: Text = "",
    tag: Text = "",
    key: Text = "",
    client: Text = "",
) -> dict[str, Any]:
    """Show what brokers' flight recorders kept: the slowest, the errors, or the newest."""
    if ask not in set(QUESTIONS):
        detail = _("ask is slowest, errors or all.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    given_words = (topic, group, tag, key, client)
    try:
        wanted = parse_filter(dict(zip(WORDS, given_words, strict=True)))
    except FilterError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    rows, problems = rows_of(Question(ask), minutes, wanted)
    items = [
        {
            "broker_name": each.broker_name,
            "at_ms": each.at_ms,
            "latency_us": each.latency_us,
            "event": each.event,
        }
        for each in rows
    ]
    return {"items": items, "problems": problems}


@operation(
    "GET",
    "/tracing/levels",
    area="brokers",
    pages=("tracing:recorded",),
    response=list[LevelOut],
)
def tracing_levels(request: HttpRequest) -> list[dict[str, Any]]:
    """List how much each broker traces; brokers that do not say are left out."""
    return [
        {
            "broker_name": name,
            "level": each.level,
            "full_until_ms": each.full_until_ms,
            "entries": each.entries,
            "bytes": each.bytes,
            "bytes_max": each.bytes_max,
            "since_ms": each.since_ms,
        }
        for name, each, _label in levels()
    ]


@operation(
    "POST",
    "/tracing/levels",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("tracing:level",),
    body=LEVEL,
    response=Done,
)
def tracing_level(request: HttpRequest) -> Done:
    """Set how much all brokers trace; everything ends by itself."""
    asked = given(request, tuple(LEVEL["properties"]))
    minutes = asked.get("minutes")
    try:
        span = minutes if type(minutes) is int else 0
        return Done(detail=levelled(request, str(asked.get("level")), span))
    except LevelError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


@operation(
    "POST",
    "/demo/start",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("demo:start",),
    response=Done,
)
def demo_start(request: HttpRequest) -> Done:
    """Start the demo traffic, unless it runs."""
    return Done(detail=demo_views.started(request)[1])


@operation(
    "POST",
    "/demo/stop",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("demo:stop",),
    response=Done,
)
def demo_stop(request: HttpRequest) -> Done:
    """Stop the demo traffic, if it runs."""
    return Done(detail=demo_views.stopped(request)[1])
