"""Silences, created on pages or through the signed link in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.decorators import login_not_required
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from console.lib.moment import now_ms
from console.observe.alerts.links import alert_of
from console.observe.alerts.models import SILENCES_MAX, Alert, Silence
from console.observe.alerts.wording import words_of
from console.observe.history.tiers import MINUTE_MS
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

MINUTES = {
    30: gettext_lazy("30 min"),
    60: gettext_lazy("1 h"),
    240: gettext_lazy("4 h"),
    1_440: gettext_lazy("24 h"),
}
MINUTES_DEFAULT = 60


class SilenceError(Exception):
    """A silence that can't be created; the text gives the reason for people."""


def minutes_from(text: str) -> int:
    """Return one of MINUTES, or the default for any other input."""
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return found if found in MINUTES else MINUTES_DEFAULT


def silence(request: HttpRequest, alert: Alert, minutes: int, by: str) -> Silence:
    """Silence an alert's thread, replacing an existing silence, under an audit log entry.

    Raises:
        SilenceError: there are too many silences, or the rule was deleted.
    """
    now = now_ms()
    if alert.rule is None:
        raise SilenceError(_("This alert's rule was deleted, so it no longer sends notifications."))
    Silence.objects.filter(until_ms__lte=now - 30 * 24 * 60 * MINUTE_MS).delete()
    old = Silence.objects.filter(rule=alert.rule, thread=alert.thread)
    if not old.exists() and Silence.objects.filter(until_ms__gt=now).count() >= SILENCES_MAX:
        raise SilenceError(_("You already have %(count)d silences.") % {"count": SILENCES_MAX})
    about = about_of(alert)
    after = {"rule": alert.rule.name, "minutes": minutes}
    with change(request, "alert.silence", about, after=after):
        old.delete()
        made = Silence.objects.create(
            rule=alert.rule,
            thread=alert.thread,
            about=about,
            began_ms=now,
            until_ms=now + minutes * MINUTE_MS,
            by=by,
        )
        # Pages show the change at once; the collector would apply it in its next round.
        Alert.objects.filter(rule=alert.rule, thread=alert.thread, state=Alert.State.FIRING).update(
            muted=Alert.Muted.SILENCE
        )
    return made


def about_of(alert: Alert) -> str:
    """Return a description of an alert's thread."""
    words = words_of(alert)
    alone = f"{alert.what} {alert.broker} {alert.name}"
    return f"{words.subject}: {words.title}" if alert.thread == alone else alert.thread


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def by_link(request: HttpRequest, token: str) -> HttpResponse:
    """Ask, then silence; show a message if the link is invalid or too old."""
    number = alert_of(token)
    alert = Alert.objects.select_related("rule").filter(pk=number).first() if number else None
    if alert is None:
        return render(request, "alerts/by_link.html", {"alert": None}, status=404)
    context = {
        "alert": alert,
        "words": words_of(alert),
        "minutes": MINUTES,
        "minutes_default": MINUTES_DEFAULT,
        "is_over": alert.state != Alert.State.FIRING,
    }
    if request.method == "POST" and not context["is_over"]:
        minutes = minutes_from(request.POST.get("minutes", ""))
        by = request.user.get_username() or _("link in a message")
        try:
            context["silence"] = silence(request, alert, minutes, by)
        except SilenceError as error:
            context["problem"] = str(error)
    return render(request, "alerts/by_link.html", context)


def danger_of(found: Silence) -> Danger:
    """Return the confirmation for ending a silence, which resumes notifications."""
    quiet = Alert.objects.filter(
        rule=found.rule,
        thread=found.thread,
        muted=Alert.Muted.SILENCE,
        open_key__isnull=False,
    )
    return Danger(
        title=_("End the silence for %(about)s?") % {"about": found.about},
        text=_("Alerts that are still firing send notifications within a minute."),
        effects=(Effect(_("Alerts currently silenced"), quiet.count(), found.rule.name),),
        undo=_("You can silence it again from the alert."),
        action=_("End silence"),
        keep=_("Keep silence"),
        address=reverse("alerts:silence-end", args=[found.pk]),
        back=reverse("alerts:list"),
        icon="play",
    )


def finish_silence(request: HttpRequest, found: Silence) -> None:
    """End a silence under an audit log entry."""
    with change(request, "alert.silence-end", found.about):
        found.delete()
        Alert.objects.filter(
            rule=found.rule, thread=found.thread, muted=Alert.Muted.SILENCE
        ).update(muted="")
