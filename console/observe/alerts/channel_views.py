"""The pages of channels, their delivery log and the dead man's switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.db.models import Count, Max, Q
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    administrators_page,
)
from console.lib.lists import stored_page_of
from console.lib.moment import now_ms
from console.observe.alerts.channels import (
    audit_state,
    audited_preferences,
    danger_of,
    delete_channel,
    has_tests_waiting,
    place_of,
    queue_test,
    row_of,
    save_channel,
    save_preferences,
    shown_url,
)
from console.observe.alerts.forms import ChannelForm, PreferencesForm
from console.observe.alerts.models import CHANNELS_MAX, Channel, Message, preferences
from console.observe.history.reading import collector_state
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    sent = Max("messages__last_ms", filter=Q(messages__state=Message.State.SENT))
    waiting = Count("messages", filter=Q(messages__state=Message.State.WAITING))
    failed = Count("messages", filter=Q(messages__state=Message.State.FAILED))
    channels = Channel.objects.annotate(sent_ms=sent, waiting=waiting, failed=failed)
    kept = preferences()
    recent = Message.objects.select_related("channel")[:10]
    context = {
        "rows": [{"channel": each, "place": place_of(each)} for each in channels],
        "recent": [row_of(each) for each in recent],
        "kept": kept,
        "heartbeat": shown_url(kept.heartbeat_url) if kept.heartbeat_url else "",
        "form": PreferencesForm(instance=kept),
        "collector": collector_state(now_ms()),
        "has_mail": bool(settings.EMAIL_HOST),
    }
    return render(request, "alerts/channels.html", context)


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    if Channel.objects.count() >= CHANNELS_MAX:
        text = _("You already have %(count)d channels.") % {"count": CHANNELS_MAX}
        messages.error(request, text)
        return redirect("alerts:channels")
    return edited(request, Channel())


@administrators_form
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    return edited(request, get_object_or_404(Channel, pk=pk))


def edited(request: HttpRequest, channel: Channel) -> HttpResponse:
    is_new = channel.pk is None
    before = None if is_new else audit_state(channel)
    old = (channel.url, channel.secret)
    form = ChannelForm(request.POST if request.method == "POST" else None, instance=channel)
    if request.method == "POST" and form.is_valid():
        saved = save_channel(request, form, before, old)
        if form.made_secret:
            # The only time the secret is shown: the receiver needs it, and it can't be read later.
            return render(
                request, "alerts/secret.html", {"channel": saved, "secret": form.made_secret}
            )
        messages.success(request, _("Channel %(name)s saved.") % {"name": saved.name})
        return redirect("alerts:channel-edit", pk=saved.pk)
    context: dict[str, Any] = {
        "form": form,
        "channel": channel,
        "is_new": is_new,
        "place": "" if is_new else place_of(channel),
        "has_mail": bool(settings.EMAIL_HOST),
    }
    if not is_new:
        context |= log_context(request, channel)
    status = 422 if request.method == "POST" else 200
    return render(request, "alerts/channel.html", context, status=status)


def log_context(request: HttpRequest, channel: Channel) -> dict[str, Any]:
    shown = stored_page_of(request, channel.messages.all())
    return {
        "channel": channel,
        "page": shown,
        "rows": [row_of(each) for each in shown.object_list],
        "is_active": channel.messages.filter(state=Message.State.WAITING).exists(),
        "collector": collector_state(now_ms()),
    }


@administrators_page
def log(request: HttpRequest, pk: int) -> HttpResponse:
    """Show only the delivery log, which the page refreshes while messages are pending."""
    channel = get_object_or_404(Channel, pk=pk)
    return render(request, "alerts/_log.html", log_context(request, channel))


@administrators_action
def test(request: HttpRequest, pk: int) -> HttpResponse:
    """Send a test message the way alerts are sent."""
    channel = get_object_or_404(Channel, pk=pk)
    if has_tests_waiting(channel):
        messages.info(
            request,
            _("Test messages are already queued. See the delivery log below for the result."),
        )
        return redirect("alerts:channel-edit", pk=pk)
    queue_test(request, channel)
    messages.success(request, _("Test message queued. See the delivery log below for the result."))
    return redirect("alerts:channel-edit", pk=pk)


@administrators_form
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(Channel, pk=pk)
    question = confirmation(request, danger_of(channel))
    if question is not None:
        return question
    delete_channel(request, channel)
    messages.success(request, _("Channel %(name)s deleted.") % {"name": channel.name})
    return redirect("alerts:channels")


@administrators_form
def preferences_form(request: HttpRequest) -> HttpResponse:
    kept = preferences()
    before = audited_preferences(kept)
    form = PreferencesForm(request.POST if request.method == "POST" else None, instance=kept)
    if request.method == "POST" and form.is_valid():
        save_preferences(request, form, before)
        messages.success(request, _("Saved."))
        return redirect("alerts:channels")
    status = 422 if request.method == "POST" else 200
    heartbeat = shown_url(kept.heartbeat_url) if kept.heartbeat_url else ""
    context = {"form": form, "kept": kept, "heartbeat": heartbeat}
    return render(request, "alerts/preferences.html", context, status=status)
