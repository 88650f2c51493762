"""Alerts: firing alerts, past alerts, rules, channels, silences and maintenance windows."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.requestbody import json_object, valid_form
from console.api.schemas import (
    LIMIT,
    Cursor,
    Done,
    DryRun,
    Limit,
    Listed,
    Number,
    PlanOut,
    Text,
    newest,
    plan_of,
)
from console.lib.moment import now_ms
from console.observe.alerts import channels, rules, silencing, windows
from console.observe.alerts.forms import ChannelForm, PreferencesForm, RuleForm, WindowForm
from console.observe.alerts.models import (
    CHANNELS_MAX,
    RULES_MAX,
    WINDOWS_MAX,
    Alert,
    Channel,
    Message,
    Rule,
    Silence,
    Window,
    preferences,
)
from console.observe.alerts.preview import preview
from console.observe.alerts.silencing import MINUTES, MINUTES_DEFAULT, SilenceError, silence
from console.observe.alerts.wording import words_of
from console.observe.history.access import history_store


class AlertOut(Schema):
    """An alert: one rule's finding about one subject, from first detection until it ends."""

    id: int
    rule_name: str
    state: str
    severity: str
    muted: str
    kind: str
    broker: str
    name: str
    subject: str
    title: str
    began_ms: int
    fired_ms: int | None
    ended_ms: int | None
    ended_why: str


class SilenceOut(Schema):
    """A silence: alerts of one thread send no notifications until it ends."""

    id: int
    about: str
    rule: str
    began_ms: int
    until_ms: int
    by: str


class RuleOut(Schema):
    """A rule with the values of its form."""

    id: int
    what: str
    version: int
    values: dict[str, Any]


class ChannelOut(Schema):
    """A channel, without the secret parts of its address."""

    id: int
    name: str
    kind: str
    enabled: bool
    place: str


class ChannelWithSecretOut(ChannelOut):
    """A channel with its newly generated secret, which can't be read again later."""

    secret: str


class DeliveryOut(Schema):
    """A message to a channel and its delivery state."""

    id: int
    state: str
    title: str
    created_ms: int
    tries: int
    last_ms: int | None
    outcome: str


class WindowOut(Schema):
    """A maintenance window: alerts about its subjects send no notifications while it is open."""

    id: int
    name: str
    enabled: bool
    kind: str
    zone: str
    begins: str
    minutes: int
    weekdays: list[int]
    broker_pattern: str
    name_pattern: str


class PreferencesOut(Schema):
    """The dead man's switch, and how long alerts are kept."""

    heartbeat: str
    heartbeat_seconds: int
    keep_days: int


def alert_out(alert: Alert) -> dict[str, Any]:
    words = words_of(alert)
    names = (
        *("rule_name", "state", "severity", "muted", "kind", "broker", "name"),
        *("began_ms", "fired_ms", "ended_ms", "ended_why"),
    )
    values = {name: getattr(alert, name) for name in names}
    return {"id": alert.pk, "subject": words.subject, "title": str(words.title), **values}


def narrowed(found: QuerySet[Alert], q: str, state: str, severity: str) -> QuerySet[Alert]:
    if q:
        found = found.filter(Q(name__icontains=q) | Q(broker__icontains=q))
    if state:
        found = found.filter(state=state)
    return found.filter(severity=severity) if severity else found


@operation("GET", "/alerts", area="alerts", pages=("alerts:list",), response=Listed[AlertOut])
def alerts(
    request: HttpRequest,
    q: Text = "",
    state: Text = "",
    severity: Text = "",
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List alerts that are firing, pending or silenced."""
    found = Alert.objects.filter(open_key__isnull=False).select_related("rule")
    page, following = newest(narrowed(found, q, state, severity), cursor, limit)
    return {"items": [alert_out(each) for each in page], "next": following}


@operation(
    "GET", "/alerts/history", area="alerts", pages=("alerts:history",), response=Listed[AlertOut]
)
def alert_history(
    request: HttpRequest,
    q: Text = "",
    state: Text = "",
    severity: Text = "",
    rule: Text = "",
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List past and current alerts, newest first."""
    found = Alert.objects.filter(fired_ms__isnull=False)
    if rule:
        found = found.filter(rule_name=rule)
    page, following = newest(narrowed(found, q, state, severity), cursor, limit)
    return {"items": [alert_out(each) for each in page], "next": following}


@operation("GET", "/silences", area="alerts", pages=("alerts:list",), response=list[SilenceOut])
def silences(request: HttpRequest) -> list[dict[str, Any]]:
    """List active silences."""
    found = Silence.objects.filter(until_ms__gt=now_ms()).select_related("rule")
    return [silence_out(each) for each in found]


def silence_out(each: Silence) -> dict[str, Any]:
    values = {name: getattr(each, name) for name in ("about", "began_ms", "until_ms", "by")}
    return {"id": each.pk, "rule": each.rule.name, **values}


@operation("GET", "/alert-rules", area="alerts", pages=("alerts:rules",), response=list[RuleOut])
def alert_rules(request: HttpRequest) -> list[dict[str, Any]]:
    """List alert rules."""
    return [rule_out(each) for each in Rule.objects.prefetch_related("channels")]


@operation(
    "GET",
    "/alert-rules/{rule}",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:rule-edit",),
    response=RuleOut,
)
def alert_rule(request: HttpRequest, rule: Number) -> dict[str, Any]:
    """Get an alert rule."""
    return rule_out(get_object_or_404(Rule, pk=rule))


def rule_out(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.pk,
        "what": rules.described(rule),
        "version": rule.version,
        "values": rules.audit_state(rule),
    }


@operation(
    "GET",
    "/alert-channels",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:channels",),
    response=list[ChannelOut],
)
def alert_channels(request: HttpRequest) -> list[dict[str, Any]]:
    """List channels, without their secrets."""
    return [channel_out(each) for each in Channel.objects.all()]


@operation(
    "GET",
    "/alert-channels/{channel}",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:channel-edit",),
    response=ChannelOut,
)
def alert_channel(request: HttpRequest, channel: Number) -> dict[str, Any]:
    """Get a channel."""
    return channel_out(get_object_or_404(Channel, pk=channel))


def channel_out(channel: Channel) -> dict[str, Any]:
    values = {name: getattr(channel, name) for name in ("name", "kind", "enabled")}
    return {"id": channel.pk, "place": channels.place_of(channel), **values}


@operation(
    "GET",
    "/alert-channels/{channel}/log",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:channel-log",),
    response=Listed[DeliveryOut],
)
def alert_channel_log(
    request: HttpRequest, channel: Number, cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List messages sent to a channel, newest first."""
    kept = get_object_or_404(Channel, pk=channel)
    page, following = newest(kept.messages.all(), cursor, limit)
    return {"items": [delivery_out(each) for each in page], "next": following}


def delivery_out(message: Message) -> dict[str, Any]:
    names = ("state", "created_ms", "tries", "last_ms", "outcome")
    values = {name: getattr(message, name) for name in names}
    return {"id": message.pk, "title": channels.row_of(message)["title"], **values}


@operation(
    "GET",
    "/alert-preferences",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:preferences",),
    response=PreferencesOut,
)
def alert_preferences(request: HttpRequest) -> dict[str, Any]:
    """Get the dead man's switch settings and the retention of alerts."""
    return channels.audited_preferences(preferences())


@operation(
    "GET",
    "/maintenance-windows",
    area="alerts",
    pages=("alerts:windows",),
    response=list[WindowOut],
)
def maintenance_windows(request: HttpRequest) -> list[dict[str, Any]]:
    """List maintenance windows."""
    return [window_out(each) for each in Window.objects.all()]


@operation(
    "GET",
    "/maintenance-windows/{window}",
    area="alerts",
    need=Need.OPERATE,
    pages=("alerts:window-edit",),
    response=WindowOut,
)
def maintenance_window(request: HttpRequest, window: Number) -> dict[str, Any]:
    """Get a maintenance window."""
    return window_out(get_object_or_404(Window, pk=window))


def window_out(window: Window) -> dict[str, Any]:
    return {"id": window.pk, **windows.audit_state(window)}


SILENCE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "minutes": {"type": "integer", "enum": list(MINUTES), "default": MINUTES_DEFAULT}
    },
}


@operation(
    "POST",
    "/alerts/{alert}/silence",
    area="alerts",
    need=Need.OPERATE,
    pages=("alerts:silence",),
    body=SILENCE,
    response=SilenceOut,
)
def alert_silence(request: HttpRequest, alert: Number) -> dict[str, Any]:
    """Silence an alert and the alerts that share its messages."""
    found = get_object_or_404(Alert.objects.select_related("rule"), pk=alert)
    minutes = json_object(request, ("minutes",)).get("minutes", MINUTES_DEFAULT)
    if not isinstance(minutes, int) or minutes not in MINUTES:
        detail = _("minutes must be one of %(choices)s.")
        choices = ", ".join(str(each) for each in MINUTES)
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail % {"choices": choices})
    try:
        return silence_out(silence(request, found, minutes, request.user.get_username()))
    except SilenceError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from error


@operation(
    "DELETE",
    "/silences/{pk}",
    area="alerts",
    need=Need.OPERATE,
    pages=("alerts:silence-end",),
    response=Done | PlanOut,
)
def silence_end(request: HttpRequest, pk: Number, dry_run: DryRun = False) -> Done | PlanOut:
    """End a silence; alerts that still fire send notifications within a minute."""
    found = get_object_or_404(Silence.objects.select_related("rule"), pk=pk)
    if dry_run:
        return plan_of(silencing.danger_of(found))
    silencing.finish_silence(request, found)
    return Done(
        detail=_("Silence ended. Alerts that are still firing send notifications within a minute.")
    )


def require_room(count: int, count_max: int) -> None:
    """Raise a conflict if the maximum number already exists."""
    if count >= count_max:
        detail = _("The maximum of %(count)d has been reached.")
        raise ProblemError(HTTPStatus.CONFLICT, detail % {"count": count_max})


@operation(
    "POST",
    "/alert-rules",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:rule-create",),
    form=RuleForm,
    response=RuleOut,
)
def alert_rule_create(request: HttpRequest) -> dict[str, Any]:
    """Create an alert rule."""
    require_room(Rule.objects.count(), RULES_MAX)
    form = valid_form(request, lambda data: RuleForm(data, instance=Rule()))
    return rule_out(rules.save_rule(request, form, None, 1))


@operation(
    "POST",
    "/alert-rule-previews",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:rule-preview",),
    form=RuleForm,
    response=dict[str, Any],
)
def alert_rule_preview(request: HttpRequest) -> dict[str, Any]:
    """Preview how often a rule would have fired in the recorded history."""
    form = valid_form(request, lambda data: RuleForm(data, instance=Rule()))
    found = preview(history_store(), form.save(commit=False), now_ms())
    return {"count": len(found.fired), "fired": [each._asdict() for each in found.fired]}


@operation(
    "PATCH",
    "/alert-rules/{rule}",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:rule-edit", "alerts:rule-switch"),
    form=RuleForm,
    response=RuleOut,
)
def alert_rule_change(request: HttpRequest, rule: Number) -> dict[str, Any]:
    """Update an alert rule; `enabled` turns it on or off."""
    found = get_object_or_404(Rule, pk=rule)
    before, version = rules.audit_state(found), found.version
    form = valid_form(request, lambda data: RuleForm(data, instance=found))
    return rule_out(rules.save_rule(request, form, before, version))


@operation(
    "DELETE",
    "/alert-rules/{rule}",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:rule-delete",),
    response=Done | PlanOut,
)
def alert_rule_delete(
    request: HttpRequest, rule: Number, dry_run: DryRun = False
) -> Done | PlanOut:
    """Delete an alert rule and end its alerts, which sends notifications."""
    found = get_object_or_404(Rule, pk=rule)
    if dry_run:
        return plan_of(rules.danger_of(found))
    rules.delete_rule(request, found)
    return Done(detail=_("Rule %(name)s deleted.") % {"name": found.name})


@operation(
    "POST",
    "/alert-channels",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:channel-create",),
    form=ChannelForm,
    response=ChannelWithSecretOut,
)
def alert_channel_create(request: HttpRequest) -> dict[str, Any]:
    """Create a channel; a generated secret is only in this response."""
    require_room(Channel.objects.count(), CHANNELS_MAX)
    return channel_kept(request, Channel())


@operation(
    "PATCH",
    "/alert-channels/{channel}",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:channel-edit",),
    form=ChannelForm,
    response=ChannelWithSecretOut,
)
def alert_channel_change(request: HttpRequest, channel: Number) -> dict[str, Any]:
    """Update a channel."""
    return channel_kept(request, get_object_or_404(Channel, pk=channel))


def channel_kept(request: HttpRequest, channel: Channel) -> dict[str, Any]:
    is_new = channel.pk is None
    before = None if is_new else channels.audit_state(channel)
    old = (channel.url, channel.secret)
    form = valid_form(request, lambda data: ChannelForm(data, instance=channel))
    saved = channels.save_channel(request, form, before, old)
    return {**channel_out(saved), "secret": form.made_secret or ""}


@operation(
    "POST",
    "/alert-channels/{channel}/test",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:channel-test",),
    response=Done,
)
def alert_channel_test(request: HttpRequest, channel: Number) -> Done:
    """Send a test message to a channel; the channel's log shows the result."""
    found = get_object_or_404(Channel, pk=channel)
    if channels.has_tests_waiting(found):
        raise ProblemError(
            HTTPStatus.CONFLICT, _("Test messages are already queued. Check the log.")
        )
    channels.queue_test(request, found)
    return Done(detail=_("Test message queued. The log shows the result."))


@operation(
    "DELETE",
    "/alert-channels/{channel}",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:channel-delete",),
    response=Done | PlanOut,
)
def alert_channel_delete(
    request: HttpRequest, channel: Number, dry_run: DryRun = False
) -> Done | PlanOut:
    """Delete a channel and its log."""
    found = get_object_or_404(Channel, pk=channel)
    if dry_run:
        return plan_of(channels.danger_of(found))
    channels.delete_channel(request, found)
    return Done(detail=_("Channel %(name)s deleted.") % {"name": found.name})


@operation(
    "PATCH",
    "/alert-preferences",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:preferences",),
    form=PreferencesForm,
    response=PreferencesOut,
)
def alert_preferences_change(request: HttpRequest) -> dict[str, Any]:
    """Update the dead man's switch or the retention of alerts."""
    found = preferences()
    before = channels.audited_preferences(found)
    form = valid_form(request, lambda data: PreferencesForm(data, instance=found))
    channels.save_preferences(request, form, before)
    return channels.audited_preferences(preferences())


@operation(
    "POST",
    "/maintenance-windows",
    area="alerts",
    need=Need.OPERATE,
    pages=("alerts:window-create",),
    form=WindowForm,
    response=WindowOut,
)
def maintenance_window_create(request: HttpRequest) -> dict[str, Any]:
    """Create a maintenance window."""
    require_room(Window.objects.count(), WINDOWS_MAX)
    form = valid_form(request, lambda data: WindowForm(data, instance=Window()))
    return window_out(windows.save_window(request, form, None))


@operation(
    "PATCH",
    "/maintenance-windows/{window}",
    area="alerts",
    need=Need.OPERATE,
    pages=("alerts:window-edit",),
    form=WindowForm,
    response=WindowOut,
)
def maintenance_window_change(request: HttpRequest, window: Number) -> dict[str, Any]:
    """Update a maintenance window."""
    found = get_object_or_404(Window, pk=window)
    before = windows.audit_state(found)
    form = valid_form(request, lambda data: WindowForm(data, instance=found))
    return window_out(windows.save_window(request, form, before))


@operation(
    "DELETE",
    "/maintenance-windows/{window}",
    area="alerts",
    need=Need.OPERATE,
    pages=("alerts:window-delete",),
    response=Done | PlanOut,
)
def maintenance_window_delete(
    request: HttpRequest, window: Number, dry_run: DryRun = False
) -> Done | PlanOut:
    """Delete a maintenance window."""
    found = get_object_or_404(Window, pk=window)
    if dry_run:
        return plan_of(windows.danger_of(found))
    windows.delete_window(request, found)
    return Done(detail=_("Maintenance window %(name)s deleted.") % {"name": found.name})
