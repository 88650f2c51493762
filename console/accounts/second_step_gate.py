"""Lets nobody in whom the settings ask for a second step before it is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import redirect

from console.accounts.second_step import has_to_set_up
from console.audit.requests import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from django.http import HttpRequest, HttpResponse

OPEN = frozenset(
    {
        "accounts:second-step",
        "accounts:second-step-set-up",
        "accounts:sign-out",
        "preferences:theme",
        "words",
        "healthz",
        "readyz",
    }
)
"""What one needs to set it up, or to leave."""


class SecondStepFirst:
    """Middleware: leads whoever lacks a second step to the page that sets it up."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, _view: object, _args: object, _kwargs: Any
    ) -> HttpResponse | None:
        match = request.resolver_match
        # A program shows a token, and has no phone.
        if match is None or match.view_name in OPEN or TOKEN in request.META:
            return None
        if not has_to_set_up(request.user):
            return None
        return redirect("accounts:second-step")
