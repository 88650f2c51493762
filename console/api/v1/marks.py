"""Marks: events outside the brokers, shown on charts."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.requestbody import json_object
from console.api.schemas import (
    LIMIT,
    Cursor,
    Done,
    DryRun,
    Limit,
    Listed,
    Number,
    PlanOut,
    newest,
    plan_of,
)
from console.observe.marks.models import TEXT_CHARACTERS_MAX, Mark
from console.observe.marks.setting import MarkError, add_mark, delete_mark, mark_danger_of


class MarkOut(Schema):
    """An event that every chart shows at its time."""

    id: int
    at_ms: int
    text: str
    by: str


BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {
        "text": {
            "type": "string",
            "maxLength": TEXT_CHARACTERS_MAX,
            "description": "What happened, in one line.",
        },
        "at_ms": {
            "type": ["integer", "null"],
            "description": "Time in ms since 1970 UTC, within the last year; defaults to now.",
        },
    },
}


@operation("GET", "/marks", area="marks", pages=("marks:list",), response=Listed[MarkOut])
def marks(request: HttpRequest, cursor: Cursor = "", limit: Limit = LIMIT) -> dict[str, Any]:
    """List marks, most recently added first."""
    page, following = newest(Mark.objects.all(), cursor, limit)
    return {"items": page, "next": following}


@operation(
    "POST",
    "/marks",
    area="marks",
    need=Need.OPERATE,
    pages=("marks:add",),
    body=BODY,
    response=MarkOut,
    status=201,
)
def mark_add(request: HttpRequest) -> Mark:
    """Add a mark, for now or for a time in the past."""
    asked = json_object(request, tuple(BODY["properties"]))
    try:
        return add_mark(request, asked.get("text"), asked.get("at_ms"))
    except MarkError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


@operation(
    "DELETE",
    "/marks/{mark}",
    area="marks",
    need=Need.OPERATE,
    pages=("marks:delete",),
    response=Done | PlanOut,
)
def mark_delete(request: HttpRequest, mark: Number, dry_run: DryRun = False) -> Done | PlanOut:
    """Delete a mark and its line on charts."""
    found = get_object_or_404(Mark, pk=mark)
    if dry_run:
        return plan_of(mark_danger_of(found))
    delete_mark(request, found)
    return Done(detail=_("Mark deleted."))
