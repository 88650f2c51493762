"""Turns gateway errors into pages that explain them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render

from console.gateway.errors import GatewayError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse


class GatewayProblems:
    """Renders a GatewayError that a view didn't handle, as a page or as a part of one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, GatewayError):
            return None
        context = {"problem": exception}
        if request.headers.get("HX-Request") == "true":
            # htmx only updates the page if the response is a success.
            return render(request, "ui/broker_problem.html", context)
        status = 404 if isinstance(exception, NotFoundError) else 503
        return render(request, "broker_problem.html", context, status=status)
