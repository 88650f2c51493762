"""Renders pages in the person's time zone and language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.utils import timezone, translation

from console.lib.zones import zone_named
from console.people.preferences.cookies import remember_language
from console.people.preferences.models import Preferences, preferences_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse


class PersonalPages:
    """Sets `preferences` on the request; the defaults if nobody is signed in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        preferences = preferences_of(request.user)
        request.preferences = preferences  # type: ignore[attr-defined]  # Django's way
        chosen = preferences.language if preferences.language in dict(settings.LANGUAGES) else ""
        language = chosen or translation.get_language() or settings.LANGUAGE_CODE
        with timezone.override(zone_named(preferences.zone)), translation.override(language):
            answer = self._get_response(request)
        answer.headers.setdefault("Content-Language", language)
        cookie = settings.LANGUAGE_COOKIE_NAME
        # Sockets and the sign-in page only know the browser.
        if chosen and chosen != request.COOKIES.get(cookie) and cookie not in answer.cookies:
            remember_language(answer, chosen)
        return answer


def preferences_on(request: HttpRequest) -> Preferences:
    """Return the preferences set by the middleware, or the defaults if it didn't run."""
    found = getattr(request, "preferences", None)
    return found if isinstance(found, Preferences) else Preferences()
