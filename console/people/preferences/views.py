"""Views of a person's settings and places. All roles may change their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import translation
from django.utils.translation import get_language_from_request, gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.people.preferences import places
from console.people.preferences.cookies import THEME_COOKIE, remember, remember_language
from console.people.preferences.forms import SettingsForm
from console.people.preferences.middleware import preferences_on
from console.people.preferences.models import PLACES_MAX, Preferences

if TYPE_CHECKING:
    from django.http import HttpRequest


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def own(request: HttpRequest) -> HttpResponse:
    """Show and save the person's own settings."""
    mine = preferences_on(request)
    initial = {
        "zone": mine.zone,
        "density": mine.density,
        "theme": mine.theme,
        "language": mine.language,
    }
    form = SettingsForm(request.POST or None, initial=initial)
    assert request.user.is_authenticated
    if request.method == "POST" and form.is_valid():
        chosen = {
            name: form.cleaned_data[name] for name in ("language", "zone", "density", "theme")
        }
        Preferences.objects.update_or_create(user=request.user, defaults=chosen)
        with translation.override(chosen["language"] or get_language_from_request(request)):
            messages.success(request, _("Settings saved."))
        answer: HttpResponse = redirect("preferences:own")
        remember(answer, THEME_COOKIE, chosen["theme"])
        remember_language(answer, chosen["language"])
        return answer
    return render(request, "preferences/own.html", {"form": form})


@never_cache
@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Save the theme that the menu's switch has already applied."""
    chosen = request.POST.get("theme", "")
    if chosen not in Preferences.Theme.values:
        return HttpResponse(status=400)
    assert request.user.is_authenticated
    Preferences.objects.update_or_create(user=request.user, defaults={"theme": chosen})
    answer = HttpResponse(status=204)
    remember(answer, THEME_COOKIE, chosen)
    return answer


@login_not_required
@never_cache
@require_POST
def language(request: HttpRequest) -> HttpResponse:
    """Set the language of the browser's pages, as offered on the sign-in page."""
    chosen = request.POST.get("language", "")
    if chosen not in dict(settings.LANGUAGES):
        return HttpResponse(status=400)
    back = request.POST.get("next", "")
    answer = redirect(back if places.is_console_address(back) else settings.LOGIN_URL)
    if request.user.is_authenticated:
        Preferences.objects.update_or_create(user=request.user, defaults={"language": chosen})
    remember_language(answer, chosen)
    return answer


@never_cache
@require_POST
def place(request: HttpRequest) -> HttpResponse:
    """Add or remove a place; the response says which."""
    assert request.user.is_authenticated
    address = request.POST.get("address", "")
    if request.POST.get("keep") == "off":
        places.forget(request.user, address)
        return JsonResponse({"kept": False})
    if not places.keep(request.user, address, request.POST.get("label", "")):
        problem = _("This page can't be added to your favourites. The limit is %(max)d.")
        return JsonResponse({"kept": False, "problem": problem % {"max": PLACES_MAX}}, status=400)
    return JsonResponse({"kept": True})
