"""Middleware that runs each request with the rights of its user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.accounts.rights import acts_for, rights_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse


class RequestRights:
    """Middleware: broker requests use the rights of the request's user, read when first needed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with acts_for(lambda: rights_on(request)):
            return self._get_response(request)
