"""Cookies with settings that pages and sockets need before they know the person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from django.http import HttpResponseBase

COOKIE_AGE_S = 365 * 86_400
# The sign-in page is rendered before anyone is signed in.
THEME_COOKIE = "trebuchet_theme"


def remember(answer: HttpResponseBase, cookie: str, value: str) -> None:
    """Set a cookie, or delete it if the value is empty."""
    if not value:
        answer.delete_cookie(cookie, samesite="Lax")
        return
    answer.set_cookie(
        cookie, value, max_age=COOKIE_AGE_S, secure=settings.TREBUCHET_HTTPS, samesite="Lax"
    )


def remember_language(answer: HttpResponseBase, language: str) -> None:
    remember(answer, settings.LANGUAGE_COOKIE_NAME, language)
