"""The alert pages: current alerts, past alerts, and silences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib import messages
from django.db.models import Q
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import operators_action, operators_form, page
from console.lib.lists import search_text, stored_page_of
from console.lib.moment import now_ms
from console.observe.alerts.models import Alert, Channel, Preferences, Rule, Silence
from console.observe.alerts.silencing import (
    MINUTES,
    SilenceError,
    danger_of,
    finish_silence,
    minutes_from,
    silence,
)
from console.observe.alerts.wording import Words, words_of
from console.observe.history.reading import collector_state
from console.observe.history.tiers import MINUTE_MS
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

SHOWN_MAX = 200
LATE_MS = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Row:
    """An alert with its texts."""

    alert: Alert
    words: Words

    @property
    def state(self) -> str:
        if self.alert.muted or self.alert.state != Alert.State.FIRING:
            return ""
        return self.alert.severity

    @property
    def lasted_s(self) -> float | None:
        if self.alert.fired_ms is None or self.alert.ended_ms is None:
            return None
        return (self.alert.ended_ms - self.alert.fired_ms) / 1000


def rows_of(alerts: QuerySet[Alert]) -> list[Row]:
    return [Row(alert, words_of(alert)) for alert in alerts]


@page
def current(request: HttpRequest) -> HttpResponse:
    """Show firing, pending and silenced alerts."""
    now = now_ms()
    found = Alert.objects.filter(open_key__isnull=False).select_related("rule")
    firing = found.filter(state=Alert.State.FIRING)
    kept = Preferences.objects.filter(pk=1).first()
    looked_ms = kept.looked_ms if kept else None
    context = {
        "firing": rows_of(firing.filter(muted="").order_by("severity", "-fired_ms")[:SHOWN_MAX]),
        "muted": rows_of(firing.exclude(muted="").order_by("-fired_ms")[:SHOWN_MAX]),
        "pending": rows_of(found.filter(state=Alert.State.PENDING)[:SHOWN_MAX]),
        "count": found.count(),
        "shown_max": SHOWN_MAX,
        "silences": Silence.objects.filter(until_ms__gt=now).select_related("rule"),
        "rule_count": Rule.objects.filter(enabled=True).count(),
        "has_channel": Channel.objects.filter(enabled=True).exists(),
        "minutes": MINUTES,
        "collector": collector_state(now),
        "looked_ms": looked_ms,
        "is_late": looked_ms is not None and abs(now - looked_ms) > LATE_MS,
        "problem": kept.looked_problem if kept else "",
    }
    return render(request, "alerts/current.html", context)


@page
def history(request: HttpRequest) -> HttpResponse:
    """Show past alerts, newest first, filtered by state, severity, rule and text."""
    query = search_text(request)
    state = request.GET.get("state", "")
    severity = request.GET.get("severity", "")
    rule = request.GET.get("rule", "")
    found = Alert.objects.filter(fired_ms__isnull=False).order_by("-fired_ms", "-id")
    if query:
        found = found.filter(Q(name__icontains=query) | Q(broker__icontains=query))
    if state in (Alert.State.FIRING, Alert.State.RESOLVED):
        found = found.filter(state=state)
    if severity in Rule.Severity:
        found = found.filter(severity=severity)
    if rule:
        found = found.filter(rule_name=rule[:80])
    shown = stored_page_of(request, found)
    names = Alert.objects.order_by("rule_name").values_list("rule_name", flat=True).distinct()
    context = {
        "rows": [Row(alert, words_of(alert)) for alert in shown.object_list],
        "page": shown,
        "query": query,
        "state": state,
        "severity": severity,
        "rule": rule,
        "rules": list(names[:SHOWN_MAX]),
        "severities": Rule.Severity.choices,
        "is_narrowed": bool(query or state or severity or rule),
    }
    return render(request, "alerts/history.html", context)


@operators_action
def silence_alert(request: HttpRequest, pk: int) -> HttpResponse:
    alert = get_object_or_404(Alert.objects.select_related("rule"), pk=pk)
    minutes = minutes_from(request.POST.get("minutes", ""))
    try:
        made = silence(request, alert, minutes, request.user.get_username())
    except SilenceError as error:
        messages.error(request, str(error))
    else:
        messages.success(
            request,
            _("%(about)s silenced for %(how_long)s.")
            % {"about": made.about, "how_long": MINUTES[minutes]},
        )
    return redirect("alerts:list")


@operators_form
def end_silence(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Silence.objects.select_related("rule"), pk=pk)
    question = confirmation(request, danger_of(found))
    if question is not None:
        return question
    finish_silence(request, found)
    messages.success(
        request,
        _("Silence ended. Alerts that are still firing send notifications within a minute."),
    )
    return redirect("alerts:list")
