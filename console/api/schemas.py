"""Schemas that responses share: lists with a cursor, plans, primary keys."""

from __future__ import annotations

import base64
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from django.utils.translation import gettext as _
from ninja import Schema
from pydantic import Field

from console.api.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.db.models import Model, QuerySet

    from console.ui.danger import Danger

LIMIT_MAX = 500
LIMIT = 100
CURSOR_CHARACTERS_MAX = 1_024

Item = TypeVar("Item")
Row = TypeVar("Row", bound="Model")

Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX, description="Maximum number of items.")]
Cursor = Annotated[
    str,
    Field(
        max_length=CURSOR_CHARACTERS_MAX,
        description="`next` of the previous page, or empty.",
    ),
]
Text = Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
DryRun = Annotated[bool, Field(description="Preview the change without applying it.")]


class Problem(Schema):
    """An error; `detail` is a readable sentence."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, str]] = []


class Listed(Schema, Generic[Item]):
    """One page of a list; `next` is the cursor of the next page, null on the last page."""

    items: list[Item]
    next: str | None = None


class Done(Schema):
    """The result of a change: a sentence and the ID of its audit log entry."""

    detail: str
    entry: int | None = None


class EffectOut(Schema):
    """How many objects of one kind a change affects; `value` is null if unknown."""

    label: str
    value: int | None
    note: str
    is_bad: bool


class PlanOut(Schema):
    """A preview of a change. `refusal` says why it can't be applied now.

    To apply a change that has an `objection`, send `accept=true`.
    """

    dry_run: bool = True
    title: str
    text: str = ""
    effects: list[EffectOut] = []
    undo: str = ""
    refusal: str = ""
    objection: str = ""
    changes: Any = None
    seen: str = ""


def plan_of(danger: Danger, changes: Any = None) -> PlanOut:
    """Return the plan that a page would show before the change."""
    return PlanOut(
        title=danger.title,
        text=danger.text,
        effects=[EffectOut.from_orm(each) for each in danger.effects],
        undo=danger.undo,
        refusal=danger.refusal,
        changes=changes,
    )


def cursor_of(*place: object) -> str:
    text = json.dumps(place, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def place_of(cursor: str, kinds: tuple[type, ...]) -> list[Any] | None:
    """Return the values in a cursor, or None for an empty cursor.

    Raises:
        ProblemError: the cursor doesn't belong to this list.
    """
    if not cursor:
        return None
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        place = None
    is_ours = isinstance(place, list) and len(place) == len(kinds)
    if not is_ours or not all(type(each) is kind for each, kind in zip(place, kinds, strict=True)):
        raise ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("This cursor doesn't belong to this list. Start without a cursor."),
            errors=[{"field": "cursor", "problem": _("Not in this list.")}],
        )
    found: list[Any] = place
    return found


def by_name(
    rows: Iterable[Item], name: Callable[[Item], str], cursor: str, limit: int
) -> tuple[list[Item], str | None]:
    """Return the rows after a cursor, ordered by name; rows may change between pages."""
    place = place_of(cursor, (str,))
    ordered = sorted(rows, key=name)
    behind = ordered if place is None else [each for each in ordered if name(each) > place[0]]
    page = behind[:limit]
    return page, cursor_of(name(page[-1])) if len(behind) > limit else None


def newest(rows: QuerySet[Row], cursor: str, limit: int) -> tuple[Sequence[Row], str | None]:
    """Return the rows after a cursor, newest first by primary key."""
    place = place_of(cursor, (int,))
    if place is not None:
        rows = rows.filter(pk__lt=max(0, min(place[0], 2**63 - 1)))
    found = list(rows.order_by("-pk")[: limit + 1])
    page = found[:limit]
    return page, cursor_of(page[-1].pk) if len(found) > limit else None
