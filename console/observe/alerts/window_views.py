"""The pages of maintenance windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import operators_form, page
from console.lib.moment import now_ms
from console.observe.alerts.forms import WindowForm
from console.observe.alerts.models import WINDOWS_MAX, Alert, Window
from console.observe.alerts.windows import is_open, next_span, zones
from console.people.audit.record import change
from console.people.preferences.middleware import preferences_on
from console.ui.danger import Danger, Effect, confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


def audit_state(window: Window) -> dict[str, Any]:
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


def save_window(request: HttpRequest, form: WindowForm, before: dict[str, Any] | None) -> Window:
    """Save a valid form under an audit log entry; `before` is None for a new window."""
    action = "alert-window.create" if before is None else "alert-window.update"
    with change(request, action, form.cleaned_data["name"], before=before) as entry:
        saved: Window = form.save()
        entry.after = audit_state(saved)
    return saved


def delete_window(request: HttpRequest, window: Window) -> None:
    """Delete a window under an audit log entry."""
    with change(request, "alert-window.delete", window.name, before=audit_state(window)):
        window.delete()


def danger_of(window: Window) -> Danger:
    """Return the confirmation for deleting a window, which ends it if it is open now."""
    quiet = 0
    if is_open(window, now_ms()):
        quiet = Alert.objects.filter(open_key__isnull=False, muted=Alert.Muted.WINDOW).count()
    return Danger(
        title=_("Delete window %(name)s?") % {"name": window.name},
        text=_("Alerts also send notifications at these times, starting within a minute."),
        effects=(Effect(_("Alerts currently muted by windows"), quiet, is_bad=True),),
        undo=_("This can't be undone. To pause the channel, turn it off instead."),
        action=_("Delete window"),
        keep=_("Cancel"),
        address=reverse("alerts:window-delete", args=[window.pk]),
        back=reverse("alerts:window-edit", args=[window.pk]),
        name=window.name,
    )


@operators_form
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    window = get_object_or_404(Window, pk=pk)
    question = confirmation(request, danger_of(window))
    if question is not None:
        return question
    delete_window(request, window)
    messages.success(request, _("Maintenance window %(name)s deleted.") % {"name": window.name})
    return redirect("alerts:windows")
