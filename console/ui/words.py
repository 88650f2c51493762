"""The scripts' translations: Django's catalogue of a language, as cacheable JavaScript."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import translation
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from django.views.i18n import JavaScriptCatalog

SECONDS_A_YEAR = 365 * 86_400


@lru_cache
def script(language: str) -> bytes:
    """Return the script that defines `gettext` and related functions for a language."""
    with translation.override(language):
        response = JavaScriptCatalog().get(HttpRequest())
    assert isinstance(response, HttpResponse)
    return response.content


def address(language: str) -> str:
    """Return the URL of the script; it changes with the script's content."""
    digest = hashlib.sha256(script(language)).hexdigest()
    return reverse("words", args=[language]) + f"?v={digest[:12]}"


@login_not_required
@require_safe
@cache_control(public=True, max_age=SECONDS_A_YEAR, immutable=True)
def words(request: HttpRequest, language: str) -> HttpResponse:
    """Return the script for a language; the sign-in page needs it too."""
    if language not in dict(settings.LANGUAGES):
        raise Http404
    return HttpResponse(script(language), content_type="text/javascript; charset=utf-8")
