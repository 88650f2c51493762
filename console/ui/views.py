"""Pages for requests that go wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from django.db import DatabaseError, OperationalError
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from console.accounts.rights import NotAllowedError
from console.audit.record import refused
from console.ui.database import sentence_for
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from django.http import HttpRequest


def problem(request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
    context = {"status": status, "title": title, "text": text}
    return render(request, "problem.html", context, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(request, 400, _("Bad request"), _("The request could not be understood."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    record_refusal(request, "access.refused", str(exception))
    text = _("Your account may look at this console but not change things. Ask an administrator.")
    if isinstance(exception, NotAllowedError):
        text = _("This takes the role %(role)s. Ask an administrator.") % {
            "role": exception.role.label.lower()
        }
        if exception.action is not None:
            more = _("A role made here may allow it, too: %(action)s.")
            about = f" ({exception.name})" if exception.name else ""
            text += " " + more % {"action": f"{exception.action.label}{about}"}
    return problem(request, 403, _("Not allowed"), text)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    record_refusal(request, "form.refused", reason)
    text = _("The form was open for too long or came from another page. Go back and send it again.")
    return problem(request, 403, _("The form has expired"), text)


def record_refusal(request: HttpRequest, action: str, reason: str) -> None:
    """Record what the console refused somebody who has signed in; strangers are sent to sign in."""
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        match = request.resolver_match
        refused(request, action, f"{request.method} {match.view_name if match else ''}", reason)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    is_ours = isinstance(exception, MissingError)
    text = str(exception) if is_ours else _("No page lives at this address.")
    return problem(request, 404, _("Nothing here"), text)


def server_error(request: HttpRequest) -> HttpResponse:
    error = sys.exception()
    if isinstance(error, OperationalError):
        return database_problem(request, error)
    text = _("The console failed to make this page. Its log says why; the broker is not affected.")
    return problem(request, 500, _("Something broke"), text)


def database_problem(request: HttpRequest, error: OperationalError) -> HttpResponse:
    title, text = _("The console's database"), sentence_for(error)
    try:
        return problem(request, 503, title, text)
    except DatabaseError:
        # The frame of a page asks who is signed in.
        return HttpResponse(f"{title}\n\n{text}\n", "text/plain; charset=utf-8", 503)
