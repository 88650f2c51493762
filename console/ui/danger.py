"""The question before something is taken away: what goes, how much, whether it comes back.

A link with `data-danger` leads to the page that `ask` renders; the frame's script shows the same
form as a dialog over the page that the link is on.
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
    """One kind of things that goes, counted; a value of None is not known."""

    label: str
    value: int | None
    note: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that may be done as well."""

    name: str
    label: str
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class Danger:
    """A destructive action.

    `undo` says whether and how it can be taken back. Where it cannot, `name` is what has to be
    typed; `wants_reason` asks why, for the audit. `refusal` is why it cannot be done now: then
    there is no button. `problem` is why the last attempt did nothing.
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
    """Render the question; 422 where the last answer to it did nothing."""
    status = 422 if danger.problem else 200
    return render(request, "ui/danger.html", {"danger": danger}, status=status)


def unanswered(request: HttpRequest, danger: Danger) -> HttpResponse | None:
    """Return the question until it is answered as it asks; None: what it asks about may be done."""
    if request.method != "POST":
        return ask(request, danger)
    if not is_confirmed(request, danger):
        problem = _("The name typed is another one; nothing was deleted.")
        return ask(request, replace(danger, problem=problem))
    if danger.wants_reason and not reason_of(request):
        problem = _("Say why; nothing was done.")
        return ask(request, replace(danger, problem=problem))
    return None


def reason_of(request: HttpRequest) -> str:
    """Return why somebody does it, as they wrote."""
    return request.POST.get("reason", "").strip()[:REASON_CHARACTERS_MAX]


def is_confirmed(request: HttpRequest, danger: Danger) -> bool:
    """Whether the form was sent with the name that it asks for."""
    return not danger.name or request.POST.get("name") == danger.name
