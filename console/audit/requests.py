"""Each request has an id, which its answer and the audit name; one of a program, its token, too."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

# No header can set these: those of a request begin with HTTP_.
REQUEST_ID = "trebuchet.request_id"
TOKEN = "trebuchet.token"
HEADER = "X-Request-Id"


class RequestIds:
    """Middleware: gives each request its id."""

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
    """Return the name of the token that a program came with, empty for a person."""
    return str(request.META.get(TOKEN, ""))
