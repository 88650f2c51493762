"""What answers share: lists with a cursor, plans, keys of rows."""

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

Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX, description="How many at most.")]
Cursor = Annotated[
    str,
    Field(max_length=CURSOR_CHARACTERS_MAX, description="`next` of the page before; empty: first."),
]
Text = Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
DryRun = Annotated[bool, Field(description="Show what it would do, and do nothing.")]


class Problem(Schema):
    """What went wrong; `detail` is a sentence for people."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, str]] = []


class Listed(Schema, Generic[Item]):
    """A part of a list; `next` is the cursor of the part after it, None at the end."""

    items: list[Item]
    next: str | None = None


class Done(Schema):
    """What was done, in a sentence, and the audit's entry of it."""

    detail: str
    entry: int | None = None


class EffectOut(Schema):
    """One kind of things that goes, counted; a value of None is not known."""

    label: str
    value: int | None
    note: str
    is_bad: bool


class PlanOut(Schema):
    """What an operation would do. `refusal` says why it cannot be done now.

    `objection` has to be accepted by `accept=true` before it is done.
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
    """Return what a page would ask before it does something."""
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
    """Return what a cursor stands for, None for the beginning.

    Raises:
        ProblemError: it is none of this list.
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
            _("This cursor is none of this list; begin without one."),
            errors=[{"field": "cursor", "problem": _("It is none of this list.")}],
        )
    found: list[Any] = place
    return found


def by_name(
    rows: Iterable[Item], name: Callable[[Item], str], cursor: str, limit: int
) -> tuple[list[Item], str | None]:
    """Return the rows behind a cursor in the order of their names; rows may come and go between."""
    place = place_of(cursor, (str,))
    ordered = sorted(rows, key=name)
    behind = ordered if place is None else [each for each in ordered if name(each) > place[0]]
    page = behind[:limit]
    return page, cursor_of(name(page[-1])) if len(behind) > limit else None


def newest(rows: QuerySet[Row], cursor: str, limit: int) -> tuple[Sequence[Row], str | None]:
    """Return the stored rows behind a cursor, newest first, as their keys say."""
    place = place_of(cursor, (int,))
    if place is not None:
        rows = rows.filter(pk__lt=max(0, min(place[0], 2**63 - 1)))
    found = list(rows.order_by("-pk")[: limit + 1])
    page = found[:limit]
    return page, cursor_of(page[-1].pk) if len(found) > limit else None
