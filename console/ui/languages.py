"""The language of a WebSocket: Django's middleware sees HTTP requests only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from django.utils.translation import get_language_from_request

if TYPE_CHECKING:
    from django.http import HttpRequest


def language_of(scope: dict[str, Any]) -> str:
    """Return the language that a page of the same browser would have."""
    headers = dict(scope["headers"])
    asked = headers.get(b"accept-language", b"").decode("latin-1")
    request = SimpleNamespace(
        COOKIES=scope.get("cookies", {}), META={"HTTP_ACCEPT_LANGUAGE": asked}
    )
    return get_language_from_request(cast("HttpRequest", request))
