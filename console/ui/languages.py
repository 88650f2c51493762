"""The language of a WebSocket, since Django's middleware only handles HTTP requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from django.utils.translation import get_language_from_request

if TYPE_CHECKING:
    from django.http import HttpRequest


def language_of(scope: dict[str, Any]) -> str:
    """Return the language that the same browser's pages use."""
    headers = dict(scope["headers"])
    asked = headers.get(b"accept-language", b"").decode("latin-1")
    request = SimpleNamespace(
        COOKIES=scope.get("cookies", {}), META={"HTTP_ACCEPT_LANGUAGE": asked}
    )
    return get_language_from_request(cast("HttpRequest", request))
