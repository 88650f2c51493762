"""Session checks outside Django's requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.http import parse_cookie
from django.utils.module_loading import import_string

from console.accounts.second_step import must_set_up

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest


async def is_signed_in(session_key: str | None) -> bool:
    """Return whether a session is still signed in, reading it again from the database."""
    if not session_key:
        return False
    return await database_sync_to_async(account_of)(session_key) is not None


async def is_cookie_signed_in(scope: dict[str, Any]) -> bool:
    """Return whether the cookie of an ASGI scope belongs to a signed-in session."""
    for name, value in scope["headers"]:
        if name == b"cookie":
            cookies = parse_cookie(value.decode("latin-1"))
            return await is_signed_in(cookies.get(settings.SESSION_COOKIE_NAME))
    return False


class CurrentSocketUser:
    """ASGI middleware: sets the socket's user from the session's current state."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        key = getattr(scope.get("session"), "session_key", None)
        if not await is_signed_in(key):
            scope = {**scope, "user": AnonymousUser()}
        await self._application(scope, receive, send)


def account_of(session_key: str) -> User | None:
    """Return the account that a session belongs to now; not for use in an event loop."""
    store = import_string(f"{settings.SESSION_ENGINE}.SessionStore")(session_key=session_key)
    user = get_user(cast("HttpRequest", SimpleNamespace(session=store)))
    if not user.is_authenticated or not user.is_active or must_set_up(user):
        return None
    return user
