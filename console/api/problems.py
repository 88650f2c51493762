"""Errors as `application/problem+json` (RFC 9457), with a readable sentence in `detail`."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.http import JsonResponse
from django.utils.translation import gettext as _

from console.gateway.errors import (
    GatewayError,
    NotFoundError,
    RequestFailedError,
    UnreadableAnswerError,
)
from console.people.audit.requests import request_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.forms import BaseForm
    from django.http import HttpRequest

CONTENT_TYPE = "application/problem+json"


class ProblemError(Exception):
    """An operation that failed; `errors` lists invalid fields, `more` extends the response."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.more = more or {}


def answer(
    request: HttpRequest,
    status: int,
    detail: str,
    *,
    errors: Sequence[Mapping[str, str]] = (),
    more: Mapping[str, Any] | None = None,
) -> JsonResponse:
    """Return a problem response."""
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "request_id": request_id_of(request),
    }
    if errors:
        problem["errors"] = list(errors)
    return JsonResponse(
        problem | dict(more or {}),
        status=status,
        content_type=CONTENT_TYPE,
        json_dumps_params={"ensure_ascii": False},
    )


def of_form(form: BaseForm) -> ProblemError:
    """Return a form's validation errors as a problem."""
    errors = [
        {"field": "" if name == "__all__" else name, "problem": str(problem)}
        for name, problems in form.errors.items()
        for problem in problems
    ]
    detail = " ".join(
        f"{each['field']}: {each['problem']}" if each["field"] else each["problem"]
        for each in errors
    )
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)


def status_of(error: GatewayError) -> HTTPStatus:
    """Return the HTTP status for a failed broker request."""
    if isinstance(error, NotFoundError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, RequestFailedError):
        return HTTPStatus.CONFLICT
    if isinstance(error, UnreadableAnswerError):
        return HTTPStatus.BAD_GATEWAY
    return HTTPStatus.SERVICE_UNAVAILABLE


def sentence_for(status: int) -> str:
    """Return the default sentence for an HTTP status."""
    match status:
        case HTTPStatus.NOT_FOUND:
            return _(
                "There's nothing at this address. See /api/v1/openapi.json for all operations."
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return _("This address doesn't support that method.")
        case HTTPStatus.FORBIDDEN:
            return _("The owner of this token isn't allowed to do this.")
        case _other:
            return HTTPStatus(status).phrase
