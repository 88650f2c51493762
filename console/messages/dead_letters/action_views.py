"""Pages that replay, discard and export dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core import signing
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from console.accounts.actions import Action as Allowed
from console.accounts.permissions import action_for, form_for, page_for, require
from console.lib.moment import now_ms
from console.messages.dead_letters.exporting import export_letters
from console.messages.dead_letters.forms import DiscardForm, ReplayForm
from console.messages.dead_letters.models import (
    Target,
)
from console.messages.dead_letters.services import (
    TOKEN_SALT,
    ReplayRefusedError,
    chosen_of,
    danger_of,
    destinations_of,
    discard_letters,
    start_replay,
)

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


TOKEN_SECONDS_MAX = 600


@page_for(Allowed.REPLAY, "group")
def preview(request: HttpRequest, group: str) -> HttpResponse:
    """Show the effect of a replay without changing anything."""
    is_asked = "target" in request.GET or "rate" in request.GET
    form = ReplayForm(request.GET if is_asked else None)
    again = request.GET.get("again") == "on"
    selection, letters, before = chosen_of(request, group, again=again)
    context: dict[str, Any] = {
        "group": group,
        "form": form,
        "selection": selection,
        "letters": letters,
        "before": before,
        "read_at_ms": now_ms(),
    }
    if form.is_valid():
        if form.cleaned_data["trial"]:
            letters = letters[:1]
        target = Target(form.cleaned_data["target"])
        destinations = destinations_of(group, letters, target)
        if target is Target.ORIGIN:
            # Other groups read these topics too.
            for each in destinations:
                require(request, Allowed.SEND, each.topic)
        context["destinations"] = destinations
        context["danger"] = danger_of(group, selection, letters, form.cleaned_data, destinations)
    return render(request, "dead_letters/preview.html", context)


@action_for(Allowed.REPLAY, "group")
def start(request: HttpRequest, group: str) -> HttpResponse:
    """Start the replay from the preview, or show why it can't start."""
    back = redirect("dead_letters:group", group)
    try:
        token = signing.loads(
            request.POST.get("token", ""), salt=TOKEN_SALT, max_age=TOKEN_SECONDS_MAX
        )
    except signing.BadSignature:
        messages.error(
            request, _("The preview has expired, so nothing was changed. Create a new preview.")
        )
        return back
    if token["group"] != group:
        messages.error(request, _("This preview is for another group."))
        return back
    try:
        run = start_replay(request, token)
    except ReplayRefusedError as error:
        messages.error(request, str(error))
        return back
    return redirect("dead_letters:run", run.pk)


@form_for(Allowed.REPLAY, "group")
def discard(request: HttpRequest, group: str) -> HttpResponse:
    """Ask for a reason; a POST with a reason marks the dead letters as handled."""
    selection, letters, _before = chosen_of(request, group, again=False)
    form = DiscardForm(request.POST or None)
    back = f"{reverse('dead_letters:group', args=[group])}?{selection.query}"
    if request.method == "POST" and form.is_valid():
        run = discard_letters(request, group, selection, letters, form.cleaned_data["reason"])
        sentence = ngettext(
            "%(count)d dead letter discarded.",
            "%(count)d dead letters discarded.",
            run.total,
        )
        messages.success(request, sentence % {"count": run.total})
        return redirect("dead_letters:group", group)
    context = {
        "group": group,
        "form": form,
        "letters": letters,
        "selection": selection,
        "back": back,
    }
    return render(request, "dead_letters/discard.html", context)


@action_for(Allowed.EXPORT)
def export(request: HttpRequest, group: str, kind: str) -> HttpResponse:
    """Return the selected dead letters with their bodies as a file."""
    return export_letters(request, group, kind)
