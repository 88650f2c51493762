"""The pages of channels, their delivery log and the dead man's switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.db.models import Count, Max, Q
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    administrators_page,
)
from console.lib.lists import stored_page_of
from console.lib.moment import now_ms
from console.observe.alerts.forms import ChannelForm, PreferencesForm
from console.observe.alerts.models import CHANNELS_MAX, Channel, Message, Preferences, preferences
from console.observe.alerts.payloads import headline
from console.observe.alerts.targets import TargetError, parsed
from console.observe.history.reading import collector_state
from console.people.audit.record import change
from console.ui.danger import Danger, Effect, confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

STATES = {
    Message.State.WAITING: "info",
    Message.State.SENT: "ok",
    Message.State.FAILED: "bad",
    Message.State.LEFT_OUT: "warn",
}
TESTS_WAITING_MAX = 3


def place_of(channel: Channel) -> str:
    """Return a channel's address without its secret parts."""
    if channel.kind == Channel.Kind.EMAIL:
        return ", ".join(channel.addresses)
    return shown_url(channel.url)


def shown_url(url: str) -> str:
    try:
        return parsed(url).shown
    except TargetError:
        return "…"


def audit_state(channel: Channel) -> dict[str, Any]:
    return {
        "enabled": channel.enabled,
        "kind": channel.kind,
        "place": place_of(channel),
        "addresses": channel.addresses,
    }


def row_of(message: Message) -> dict[str, Any]:
    content = message.content
    try:
        title = headline(content)
    except (KeyError, TypeError):
        title = _("(not readable)")
    return {"message": message, "title": title, "state": STATES[Message.State(message.state)]}


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


def save_channel(
    request: HttpRequest,
    form: ChannelForm,
    before: dict[str, Any] | None,
    old: tuple[str, str],
) -> Channel:
    """Save a valid form under an audit log entry.

    `before` is None for a new channel; `old` holds the previous address and secret.
    """
    action = "alert-channel.create" if before is None else "alert-channel.update"
    with change(request, action, form.cleaned_data["name"], before=before) as entry:
        saved: Channel = form.save()
        changed = {
            "address_changed": saved.url != old[0],
            "secret_changed": saved.secret != old[1],
        }
        entry.after = audit_state(saved) | changed
    return saved


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


def has_tests_waiting(channel: Channel) -> bool:
    """Return whether enough test messages are pending that another one adds nothing."""
    waiting = channel.messages.filter(state=Message.State.WAITING, content__status="test")
    return waiting.count() >= TESTS_WAITING_MAX


def queue_test(request: HttpRequest, channel: Channel) -> None:
    """Queue a test message for a channel under an audit log entry."""
    with change(request, "alert-channel.test", channel.name):
        content = {"status": "test", "channel": channel.name, "alerts": []}
        Message.objects.create(channel=channel, created_ms=now_ms(), content=content)


def delete_channel(request: HttpRequest, channel: Channel) -> None:
    """Delete a channel and its log under an audit log entry."""
    with change(request, "alert-channel.delete", channel.name, before=audit_state(channel)):
        channel.delete()


def danger_of(channel: Channel) -> Danger:
    """Return the confirmation for deleting a channel with its log and pending messages."""
    waiting = channel.messages.filter(state=Message.State.WAITING).count()
    rules = [each.name for each in channel.rules.all()]
    return Danger(
        title=_("Delete channel %(name)s?") % {"name": channel.name},
        text=_("This channel stops receiving messages, and its delivery log is deleted."),
        effects=(
            Effect(_("Queued messages that won't be sent"), waiting, is_bad=True),
            Effect(_("Rules that use it"), len(rules), ", ".join(rules)),
            Effect(_("Delivery log entries"), channel.messages.count() - waiting),
        ),
        undo=_("This can't be undone. To pause the channel, turn it off instead."),
        action=_("Delete channel"),
        keep=_("Cancel"),
        address=reverse("alerts:channel-delete", args=[channel.pk]),
        back=reverse("alerts:channel-edit", args=[channel.pk]),
        name=channel.name,
    )


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


def save_preferences(request: HttpRequest, form: PreferencesForm, before: dict[str, Any]) -> None:
    """Save a valid form under an audit log entry."""
    with change(request, "alert.preferences", "alerts", before=before) as entry:
        entry.after = audited_preferences(form.save())


def audited_preferences(kept: Preferences) -> dict[str, Any]:
    return {
        "heartbeat": shown_url(kept.heartbeat_url) if kept.heartbeat_url else "",
        "heartbeat_seconds": kept.heartbeat_seconds,
        "keep_days": kept.keep_days,
    }
