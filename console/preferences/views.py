"""Views of a person's settings and places. Everyone may change their own, readers too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import get_language, gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.preferences import places
from console.preferences.forms import SettingsForm
from console.preferences.middleware import preferences_on
from console.preferences.models import PLACES_MAX, Preferences

if TYPE_CHECKING:
    from django.http import HttpRequest

COOKIE_AGE_S = 365 * 86_400
# The page of signing in is rendered before anybody is known.
THEME_COOKIE = "trebuchet_theme"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def own(request: HttpRequest) -> HttpResponse:
    """Show and store the settings of whoever asks."""
    mine = preferences_on(request)
    initial = {
        "zone": mine.zone,
        "density": mine.density,
        "theme": mine.theme,
        "language": get_language(),
    }
    form = SettingsForm(request.POST or None, initial=initial)
    assert request.user.is_authenticated
    if request.method == "POST" and form.is_valid():
        chosen = {name: form.cleaned_data[name] for name in ("zone", "density", "theme")}
        Preferences.objects.update_or_create(user=request.user, defaults=chosen)
        messages.success(request, _("Your settings are saved."))
        answer: HttpResponse = redirect("preferences:own")
        remember(answer, THEME_COOKIE, chosen["theme"])
        if form.cleaned_data.get("language"):
            remember(answer, settings.LANGUAGE_COOKIE_NAME, form.cleaned_data["language"])
        return answer
    return render(request, "preferences/own.html", {"form": form})


@never_cache
@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Store the theme that the menu's switch has already shown."""
    chosen = request.POST.get("theme", "")
    if chosen not in Preferences.Theme.values:
        return HttpResponse(status=400)
    assert request.user.is_authenticated
    Preferences.objects.update_or_create(user=request.user, defaults={"theme": chosen})
    answer = HttpResponse(status=204)
    remember(answer, THEME_COOKIE, chosen)
    return answer


@never_cache
@require_POST
def place(request: HttpRequest) -> HttpResponse:
    """Keep or forget a page; the answer says which it was."""
    assert request.user.is_authenticated
    address = request.POST.get("address", "")
    if request.POST.get("keep") == "off":
        places.forget(request.user, address)
        return JsonResponse({"kept": False})
    if not places.keep(request.user, address, request.POST.get("label", "")):
        problem = _("This page cannot be kept. One person keeps %(max)d at most.")
        return JsonResponse({"kept": False, "problem": problem % {"max": PLACES_MAX}}, status=400)
    return JsonResponse({"kept": True})


def remember(answer: HttpResponse, cookie: str, value: str) -> None:
    answer.set_cookie(
        cookie, value, max_age=COOKIE_AGE_S, secure=settings.TREBUCHET_HTTPS, samesite="Lax"
    )
