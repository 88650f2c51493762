"""The page of a plan: the changes for each broker, with the button that applies them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.shortcuts import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.forms import Field
    from django.http import HttpRequest, HttpResponse

    from console.broker.configs.plan import Plan

OVERTAKEN, UNPROCESSABLE = 409, 422


@dataclass(frozen=True, slots=True)
class PlanWords:
    """The texts about the subject on a plan's page."""

    plural: str
    new: str
    edit: str


@dataclass(frozen=True, slots=True)
class PlanPages:
    """The interface that a plan's page needs from the pages it belongs to."""

    words: PlanWords
    list_name: str


@dataclass(frozen=True, slots=True)
class PlanSurroundings:
    """The context of a plan: the way back, refusals and objections, and the form's inputs.

    `problem` says why it stopped halfway, `refusal` why it can't be applied, `objection` which
    consequence the user has to accept, and `is_refused` that the user didn't.
    """

    back: str
    is_new: bool = False
    entries: Sequence[tuple[str, str]] = ()
    problem: str = ""
    refusal: str | None = None
    objection: str | None = None
    is_refused: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict)


def show_plan(
    request: HttpRequest, plan: Plan, pages: object, around: PlanSurroundings
) -> HttpResponse:
    """Render a plan; `pages` has `words` and `list_name`."""
    context = {
        "plan": plan,
        "parts": [(part, list(part.lines(around.fields))) for part in plan.parts],
        "pages": pages,
        "is_new": around.is_new,
        "back": around.back,
        "entries": around.entries,
        "problem": around.problem,
        "refusal": around.refusal,
        "objection": around.objection,
        "is_refused": around.is_refused,
    }
    status = 200
    if plan.is_overtaken:
        status = OVERTAKEN
    elif around.problem or around.is_refused:
        status = UNPROCESSABLE
    return render(request, "configs/plan.html", context, status=status)
