"""Error pages."""

from __future__ import annotations

import io
import json
import sys
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, OperationalError
from django.http import HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import get_language_from_request, gettext as _, override

from console.accounts.rights import NotAllowedError
from console.lib.missing import MissingError
from console.people.audit.record import refused
from console.ui.database import sentence_for

if TYPE_CHECKING:
    from django.http import HttpRequest


def problem(request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
    context = {"status": status, "title": title, "text": text}
    return render(request, "problem.html", context, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(request, 400, _("Bad request"), _("The server couldn't understand the request."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    record_refusal(request, "access.refused", str(exception))
    text = _("Your account has read-only access. Ask an administrator if you need to make changes.")
    if isinstance(exception, NotAllowedError):
        text = _("You need the role %(role)s. Ask an administrator.") % {
            "role": exception.role.label.lower()
        }
        if exception.action is not None:
            more = _("A custom role that allows this action also works: %(action)s.")
            about = f" ({exception.name})" if exception.name else ""
            text += " " + more % {"action": f"{exception.action.label}{about}"}
    return problem(request, 403, _("Not allowed"), text)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    record_refusal(request, "form.refused", reason)
    text = _("The form expired or came from another page. Go back and submit it again.")
    return problem(request, 403, _("Form expired"), text)


def record_refusal(request: HttpRequest, action: str, reason: str) -> None:
    """Record refused requests of people who are signed in; redirect others to sign in."""
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        match = request.resolver_match
        refused(request, action, f"{request.method} {match.view_name if match else ''}", reason)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    is_ours = isinstance(exception, MissingError)
    text = str(exception) if is_ours else _("There's no page at this address.")
    return problem(request, 404, _("Page not found"), text)


def server_error(request: HttpRequest) -> HttpResponse:
    error = sys.exception()
    if isinstance(error, OperationalError):
        return database_problem(request, error)
    text = _(
        "The console couldn't render this page. See the console log for details. The broker "
        "isn't affected."
    )
    return problem(request, 500, _("Something went wrong"), text)


def database_problem(request: HttpRequest, error: OperationalError) -> HttpResponse:
    title, text = _("The console's database"), sentence_for(error)
    try:
        return problem(request, 503, title, text)
    except DatabaseError:
        # The page frame would query the database for the signed-in user.
        return HttpResponse(f"{title}\n\n{text}\n", "text/plain; charset=utf-8", 503)


async def too_large(scope: dict[str, Any]) -> tuple[str, bytes]:
    """Return the content type and body of a 413 answer; no middleware has seen the request."""
    request = ASGIRequest(scope, io.BytesIO())
    return too_large_in(
        get_language_from_request(request), is_program=scope["path"].startswith("/api/")
    )


@lru_cache
def too_large_in(language: str, *, is_program: bool) -> tuple[str, bytes]:
    with override(language):
        text = _(
            "The server didn't accept the request because its body is too large. Send less at "
            "once, for example a shorter message."
        )
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if is_program:
            problem = {"type": "about:blank", "title": "Content Too Large", "status": status}
            body = json.dumps({**problem, "detail": text}, ensure_ascii=False)
            return "application/problem+json", body.encode()
        context = {"status": int(status), "title": _("Request too large"), "text": text}
        return "text/html; charset=utf-8", render_to_string("problem.html", context).encode()
