"""Flight recorders, trace levels and demo traffic."""

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
from console.api.requestbody import json_object
from console.api.schemas import Done, Text
from console.demo import services as demo_services
from console.gateway.flight_recorder import FULL_MINUTES_MAX, Level, Question
from console.messages.tracing.filters import FilterError, parse_filter
from console.messages.tracing.recorder import (
    MINUTES,
    MINUTES_MAX,
    QUESTIONS,
    WORDS,
    LevelError,
    change_level,
    levels,
    rows_of,
)


class RecordedOut(Schema):
    """A recorded event of a message; `event` uses the broker's field names."""

    broker_name: str
    at_ms: int
    latency_us: int
    event: dict[str, Any]


class RecordedListOut(Schema):
    """Recorded events, and why some brokers returned nothing."""

    items: list[RecordedOut]
    problems: list[str]


class LevelOut(Schema):
    """A broker's trace level, and how far back its recorder reaches."""

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
            "description": "How long to trace everything; required for `full`.",
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
    """List recorded events: the slowest, the errors or the newest."""
    if ask not in set(QUESTIONS):
        detail = _("ask must be slowest, errors or all.")
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
    """List each broker's trace level; brokers that don't report it are left out."""
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
    """Set the trace level of all brokers; `full` ends automatically."""
    asked = json_object(request, tuple(LEVEL["properties"]))
    minutes = asked.get("minutes")
    try:
        span = minutes if type(minutes) is int else 0
        return Done(detail=change_level(request, str(asked.get("level")), span))
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
    """Start demo traffic if it isn't running."""
    return Done(detail=demo_services.start_demo(request)[1])


@operation(
    "POST",
    "/demo/stop",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("demo:stop",),
    response=Done,
)
def demo_stop(request: HttpRequest) -> Done:
    """Stop demo traffic if it is running."""
    return Done(detail=demo_services.stop_demo(request)[1])
