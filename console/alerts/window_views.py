"""The pages of maintenance windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_action, administrators_form, page
from console.alerts.forms import WindowForm
from console.alerts.models import WINDOWS_MAX, Window
from console.alerts.windows import is_open, next_span, zones
from console.audit.record import change
from console.gateway.moment import now_ms
from console.preferences.middleware import preferences_on

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


def audited(window: Window) -> dict[str, Any]:
    return {
        each.name: getattr(window, each.name) for each in Window._meta.fields if each.name != "id"
    }


@page
def listing(request: HttpRequest) -> HttpResponse:
    now = now_ms()
    rows = [
        {"window": each, "is_open": is_open(each, now), "span": next_span(each, now)}
        for each in Window.objects.all()
    ]
    return render(request, "alerts/windows.html", {"rows": rows})


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    if Window.objects.count() >= WINDOWS_MAX:
        messages.error(request, _("There are %(count)d windows already.") % {"count": WINDOWS_MAX})
        return redirect("alerts:windows")
    return edited(request, Window())


@administrators_form
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    return edited(request, get_object_or_404(Window, pk=pk))


def edited(request: HttpRequest, window: Window) -> HttpResponse:
    is_new = window.pk is None
    before = None if is_new else audited(window)
    zone = preferences_on(request).zone
    form = WindowForm(
        request.POST if request.method == "POST" else None,
        instance=window,
        initial={"zone": zone} if is_new and zone in zones() else None,
    )
    if request.method == "POST" and form.is_valid():
        action = "alert-window.create" if is_new else "alert-window.update"
        with change(request, action, form.cleaned_data["name"], before=before) as entry:
            saved = form.save()
            entry.after = audited(saved)
        messages.success(request, _("The window %(name)s is kept.") % {"name": saved.name})
        return redirect("alerts:windows")
    context = {"form": form, "window": window, "is_new": is_new, "zones": sorted(zones())}
    status = 422 if request.method == "POST" else 200
    return render(request, "alerts/window.html", context, status=status)


@administrators_action
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    window = get_object_or_404(Window, pk=pk)
    with change(request, "alert-window.delete", window.name, before=audited(window)):
        window.delete()
    messages.success(request, _("The window %(name)s is deleted.") % {"name": window.name})
    return redirect("alerts:windows")
