"""Turns a broker that does not answer into a page that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render

from console.gateway.errors import GatewayError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse


class GatewayProblems:
    """Renders a GatewayError that a view did not handle: a page, or the part that asked."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, GatewayError):
            return None
        context = {"problem": exception}
        if request.headers.get("HX-Request") == "true":
            # htmx leaves the page as it is unless the answer says success.
            return render(request, "ui/broker_problem.html", context)
        status = 404 if isinstance(exception, NotFoundError) else 503
        return render(request, "broker_problem.html", context, status=status)
