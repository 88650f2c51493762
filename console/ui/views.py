"""Pages for requests that go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


def problem(request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
    context = {"status": status, "title": title, "text": text}
    return render(request, "problem.html", context, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(request, 400, _("Bad request"), _("The request could not be understood."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    text = _("Your account may look at this console but not change things. Ask an administrator.")
    return problem(request, 403, _("Not allowed"), text)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    text = _("The form was open for too long or came from another page. Go back and send it again.")
    return problem(request, 403, _("The form has expired"), text)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(request, 404, _("Nothing here"), _("No page lives at this address."))


def server_error(request: HttpRequest) -> HttpResponse:
    text = _("The console made a mistake. Its log says what happened; the broker is not affected.")
    return problem(request, 500, _("Something broke"), text)
