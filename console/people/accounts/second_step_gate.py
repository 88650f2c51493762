"""Middleware that requires people to set up a second step if the settings ask for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import redirect

from console.accounts.second_step import must_set_up
from console.people.audit.requests import TOKEN

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
"""Pages needed to set up the second step or to sign out."""


class RequireSecondStep:
    """Middleware: redirects accounts without a required second step to its setup page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, _view: object, _args: object, _kwargs: Any
    ) -> HttpResponse | None:
        match = request.resolver_match
        # Programs authenticate with a token and can't use an app.
        if match is None or match.view_name in OPEN or TOKEN in request.META:
            return None
        if not must_set_up(request.user):
            return None
        return redirect("accounts:second-step")
