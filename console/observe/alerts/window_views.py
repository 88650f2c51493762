"""The pages of maintenance windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import operators_form, page
from console.lib.moment import now_ms
from console.observe.alerts.forms import WindowForm
from console.observe.alerts.models import WINDOWS_MAX, Window
from console.observe.alerts.windows import (
    audit_state,
    danger_of,
    delete_window,
    is_open,
    next_span,
    save_window,
    zones,
)
from console.people.preferences.middleware import preferences_on
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@page
def listing(request: HttpRequest) -> HttpResponse:
    now = now_ms()
    rows = [
        {"window": each, "is_open": is_open(each, now), "span": next_span(each, now)}
        for each in Window.objects.all()
    ]
    return render(request, "alerts/windows.html", {"rows": rows})


@operators_form
def create(request: HttpRequest) -> HttpResponse:
    if Window.objects.count() >= WINDOWS_MAX:
        messages.error(
            request, _("You already have %(count)d maintenance windows.") % {"count": WINDOWS_MAX}
        )
        return redirect("alerts:windows")
    return edited(request, Window())


@operators_form
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    return edited(request, get_object_or_404(Window, pk=pk))


def edited(request: HttpRequest, window: Window) -> HttpResponse:
    is_new = window.pk is None
    before = None if is_new else audit_state(window)
    zone = preferences_on(request).zone
    form = WindowForm(
        request.POST if request.method == "POST" else None,
        instance=window,
        initial={"zone": zone} if is_new and zone in zones() else None,
    )
    if request.method == "POST" and form.is_valid():
        saved = save_window(request, form, before)
        messages.success(request, _("Maintenance window %(name)s saved.") % {"name": saved.name})
        return redirect("alerts:windows")
    context = {"form": form, "window": window, "is_new": is_new, "zones": sorted(zones())}
    status = 422 if request.method == "POST" else 200
    return render(request, "alerts/window.html", context, status=status)


@operators_form
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    window = get_object_or_404(Window, pk=pk)
    question = confirmation(request, danger_of(window))
    if question is not None:
        return question
    delete_window(request, window)
    messages.success(request, _("Maintenance window %(name)s deleted.") % {"name": window.name})
    return redirect("alerts:windows")
