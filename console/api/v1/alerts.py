"""Alerts: what fires, what has fired, who is told, and when nobody is."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Schema

from console.alerts import channel_views, rule_views, window_views
from console.alerts.models import Alert, Channel, Message, Rule, Silence, Window, preferences
from console.alerts.wording import words_of
from console.api.operations import Need, operation
from console.api.schemas import LIMIT, Cursor, Limit, Listed, Number, Text, newest
from console.gateway.moment import now_ms


class AlertOut(Schema):
    """One rule's word about one subject, from its first sign to its end."""

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
    """Somebody knows: alerts of a thread tell nobody until then."""

    id: int
    about: str
    rule: str
    began_ms: int
    until_ms: int
    by: str


class RuleOut(Schema):
    """A rule, as its page's form has it."""

    id: int
    what: str
    version: int
    values: dict[str, Any]


class ChannelOut(Schema):
    """A channel; of its address only what is no secret."""

    id: int
    name: str
    kind: str
    enabled: bool
    place: str


class DeliveryOut(Schema):
    """A message to a channel, and what became of it."""

    id: int
    state: str
    title: str
    created_ms: int
    tries: int
    last_ms: int | None
    outcome: str


class WindowOut(Schema):
    """Maintenance: while it is open, alerts about its subjects tell nobody."""

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
    """List what fires now, is about to, or is silenced."""
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
    """List what has fired, newest first."""
    found = Alert.objects.filter(fired_ms__isnull=False)
    if rule:
        found = found.filter(rule_name=rule)
    page, following = newest(narrowed(found, q, state, severity), cursor, limit)
    return {"items": [alert_out(each) for each in page], "next": following}


@operation("GET", "/silences", area="alerts", pages=("alerts:list",), response=list[SilenceOut])
def silences(request: HttpRequest) -> list[dict[str, Any]]:
    """List the silences that are not over."""
    found = Silence.objects.filter(until_ms__gt=now_ms()).select_related("rule")
    return [silence_out(each) for each in found]


def silence_out(each: Silence) -> dict[str, Any]:
    values = {name: getattr(each, name) for name in ("about", "began_ms", "until_ms", "by")}
    return {"id": each.pk, "rule": each.rule.name, **values}


@operation("GET", "/alert-rules", area="alerts", pages=("alerts:rules",), response=list[RuleOut])
def alert_rules(request: HttpRequest) -> list[dict[str, Any]]:
    """List the rules."""
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
    """Show a rule."""
    return rule_out(get_object_or_404(Rule, pk=rule))


def rule_out(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.pk,
        "what": rule_views.described(rule),
        "version": rule.version,
        "values": rule_views.audited(rule),
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
    """List the channels; their addresses and secrets stay here."""
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
    """Show a channel."""
    return channel_out(get_object_or_404(Channel, pk=channel))


def channel_out(channel: Channel) -> dict[str, Any]:
    values = {name: getattr(channel, name) for name in ("name", "kind", "enabled")}
    return {"id": channel.pk, "place": channel_views.place_of(channel), **values}


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
    """List what was sent to a channel, newest first."""
    kept = get_object_or_404(Channel, pk=channel)
    page, following = newest(kept.messages.all(), cursor, limit)
    return {"items": [delivery_out(each) for each in page], "next": following}


def delivery_out(message: Message) -> dict[str, Any]:
    names = ("state", "created_ms", "tries", "last_ms", "outcome")
    values = {name: getattr(message, name) for name in names}
    return {"id": message.pk, "title": channel_views.row_of(message)["title"], **values}


@operation(
    "GET",
    "/alert-preferences",
    area="alerts",
    need=Need.ADMINISTER,
    pages=("alerts:preferences",),
    response=PreferencesOut,
)
def alert_preferences(request: HttpRequest) -> dict[str, Any]:
    """Show the dead man's switch, and how long alerts are kept."""
    return channel_views.audited_preferences(preferences())


@operation(
    "GET",
    "/maintenance-windows",
    area="alerts",
    pages=("alerts:windows",),
    response=list[WindowOut],
)
def maintenance_windows(request: HttpRequest) -> list[dict[str, Any]]:
    """List the maintenance windows."""
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
    """Show a maintenance window."""
    return window_out(get_object_or_404(Window, pk=window))


def window_out(window: Window) -> dict[str, Any]:
    return {"id": window.pk, **window_views.audited(window)}
