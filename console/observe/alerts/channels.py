"""Alert channels: save, test and delete them, and the preferences of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import gettext as _

from console.lib.moment import now_ms
from console.observe.alerts.models import Channel, Message, Preferences
from console.observe.alerts.payloads import headline
from console.observe.alerts.targets import TargetError, parsed
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.observe.alerts.forms import ChannelForm, PreferencesForm

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
