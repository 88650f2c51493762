"""Request IDs for responses and the audit log, and the token of a program's request."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

# Headers can't set these keys, because Django prefixes theirs with HTTP_.
REQUEST_ID = "trebuchet.request_id"
TOKEN = "trebuchet.token"
HEADER = "X-Request-Id"


class RequestIds:
    """Middleware: gives each request an ID."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.META[REQUEST_ID] = uuid4().hex
        response = self._get_response(request)
        response[HEADER] = request_id_of(request)
        return response


def request_id_of(request: HttpRequest) -> str:
    return str(request.META.get(REQUEST_ID, ""))


def token_name_of(request: HttpRequest) -> str:
    """Return the name of the token that a program used, or "" for a person."""
    return str(request.META.get(TOKEN, ""))
