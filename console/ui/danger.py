"""Confirmation of destructive actions: what is deleted, how much, and whether it can be undone.

A link with `data-danger` leads to the page that `ask` renders; the frame's script shows the same
form as a dialog over the current page.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


REASON_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class Effect:
    """One kind of affected things and their number; None if it is unknown."""

    label: str
    value: int | None
    note: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """An optional additional action."""

    name: str
    label: str
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class Danger:
    """A destructive action.

    `undo` says whether and how the action can be undone. If it can't, the person must type `name`.
    `wants_reason` asks for a reason, for the audit log. `refusal` explains why the action isn't
    possible now; there is then no button. `problem` is why the last attempt failed.
    """

    title: str
    text: str
    undo: str
    action: str
    keep: str
    address: str
    back: str
    name: str = ""
    icon: str = "trash-2"
    effects: tuple[Effect, ...] = ()
    choices: tuple[Choice, ...] = ()
    hidden: dict[str, str] = field(default_factory=dict)
    refusal: str = ""
    problem: str = ""
    wants_reason: bool = False


def ask(request: HttpRequest, danger: Danger) -> HttpResponse:
    """Render the confirmation; status 422 if the last attempt failed."""
    status = 422 if danger.problem else 200
    return render(request, "ui/danger.html", {"danger": danger}, status=status)


def confirmation(request: HttpRequest, danger: Danger) -> HttpResponse | None:
    """Return the confirmation page, or None if the request confirms the action."""
    if request.method != "POST":
        return ask(request, danger)
    if not is_confirmed(request, danger):
        problem = _("The name you typed doesn't match, so nothing was deleted.")
        return ask(request, replace(danger, problem=problem))
    if danger.wants_reason and not reason_of(request):
        problem = _("Enter a reason. Nothing was changed.")
        return ask(request, replace(danger, problem=problem))
    return None


def reason_of(request: HttpRequest) -> str:
    """Return the reason that the person gave."""
    return request.POST.get("reason", "").strip()[:REASON_CHARACTERS_MAX]


def is_confirmed(request: HttpRequest, danger: Danger) -> bool:
    """Whether the form was submitted with the required name."""
    return not danger.name or request.POST.get("name") == danger.name
