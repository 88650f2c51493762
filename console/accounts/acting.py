"""Lets what a request does be done with the rights of whoever made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.accounts.rights import acts_for, rights_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse


class ActsForPerson:
    """Middleware: brokers are asked for the person who asks; rights are read when needed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with acts_for(lambda: rights_on(request)):
            return self._get_response(request)
