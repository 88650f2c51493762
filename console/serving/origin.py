"""SameOrigin: only lets this console's pages open a WebSocket, by scheme, host and port.

Browsers send a host's cookies to all its ports. Without this check, a page of any other program on
the host could read with the visitor's session. Django has the same check for forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.utils.http import is_same_domain
from django.utils.translation import gettext as _

from console.people.audit.record import refused

if TYPE_CHECKING:
    from console.serving.body_limit import Application, Receive, Scope, Send

ORIGIN_CHARACTERS_MAX = 200


class SameOrigin:
    """Refuses WebSockets from pages of other sites; audits attempts that have a session."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = header(scope, b"origin")
        if is_allowed(scope, origin):
            await self._application(scope, receive, send)
            return
        if scope["user"].is_authenticated:
            # The page used a person's session, so that person should learn of it.
            await database_sync_to_async(refused)(
                request_of(scope),
                "socket.refused",
                scope["path"],
                _("A page at %(origin)s tried to read with this session.")
                % {"origin": origin[:ORIGIN_CHARACTERS_MAX] or _("an unknown origin")},
            )
        # Before `accept`, the server turns this into a 403.
        await send({"type": "websocket.close", "code": 1008})


def request_of(scope: Scope) -> ASGIRequest:
    """Return the scope as a Django request, to apply its rules for hosts and proxies."""
    request = ASGIRequest({**scope, "type": "http", "method": "GET"}, None)  # type: ignore[arg-type]
    if "user" in scope:
        request.user = scope["user"]
    return request


def is_allowed(scope: Scope, origin: str) -> bool:
    """Return whether the origin is the requested address or trusted in the settings.

    A missing origin and `null` are refused: every browser sends an origin, and only a browser has
    the
    cookie.
    """
    request = request_of(scope)
    try:
        host = request.get_host()
    except DisallowedHost:
        return False
    scheme = "https" if request.is_secure() or scope.get("scheme") == "wss" else "http"
    if not origin:
        return False
    if normal(origin) == normal(f"{scheme}://{host}"):
        return True
    return any(matches(origin, pattern) for pattern in settings.CSRF_TRUSTED_ORIGINS)


def normal(origin: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port of an origin, or None if it isn't valid."""
    try:
        parts = urlsplit(origin.lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path:
        return None
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)


def matches(origin: str, pattern: str) -> bool:
    """Return whether a pattern matches an origin; `https://*.example.org` is any subdomain."""
    found, wanted = normal(origin), normal(pattern.replace("://*.", "://", 1))
    if found is None or wanted is None:
        return False
    if "://*." not in pattern:
        return found == wanted
    return (found[0], found[2]) == (wanted[0], wanted[2]) and is_same_domain(
        found[1], f".{wanted[1]}"
    )


def header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
