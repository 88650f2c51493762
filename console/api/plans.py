"""Responses about plans: their changes, or the reason a plan wasn't applied."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from console.api.problems import ProblemError
from console.api.schemas import Done

if TYPE_CHECKING:
    from console.broker.configs.plan import Plan


def changes_of(plan: Plan) -> dict[str, Any]:
    return {"seen": plan.seen, "now": plan.now, "wanted": plan.wanted}


def unchanged() -> Done:
    """Return the response to a request for the values that are already set."""
    return Done(detail=_("The account already has these values, so nothing was changed."))


def overtaken(changes: dict[str, Any]) -> ProblemError:
    """Return the problem of a plan whose subject was changed since it was seen."""
    detail = _("Someone else made a change in the meantime, so nothing was changed.")
    return ProblemError(HTTPStatus.CONFLICT, detail, more=changes)
