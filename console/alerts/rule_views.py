"""The pages of rules: the list, the editor with its preview."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.db import transaction
from django.db.models import Count, Q
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    administrators_page,
    page,
)
from console.alerts.evaluator import end_all
from console.alerts.forms import RuleForm
from console.alerts.models import RULES_MAX, Alert, Rule
from console.alerts.notices import announce
from console.alerts.preview import preview
from console.alerts.series import SERIES
from console.alerts.wording import number
from console.audit.record import change
from console.gateway.moment import now_ms
from console.history.access import history_store
from console.history.database import HistoryError
from console.history.places import place_of
from console.sql.scheduled import scheduled_queries
from console.ui.danger import Danger, Effect, unanswered
from console.verdicts.words import WORDS

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

FIRED_SHOWN = 8
QUERY_NUMBER = re.compile(r"[0-9]{1,18}")


def described(rule: Rule) -> str:
    """Return what a rule looks at, in a line."""
    if rule.source == Rule.Source.VERDICT:
        names = [str(WORDS[each].title) for each in rule.verdicts if each in WORDS]
        kinds = ", ".join(names) or _("all verdicts")
        return f"{kinds} ({rule.get_least_display()})"
    if rule.source == Rule.Source.QUERY:
        name = _("a deleted query") if rule.query is None else rule.query.name
        return _("Rows come back from %(name)s") % {"name": name}
    series = SERIES.get(rule.series)
    if series is None:
        return rule.series
    what = series.title
    if rule.compare == Rule.Compare.MISSING:
        return f"{what} {rule.get_compare_display()}"
    return f"{what} {rule.get_compare_display()} {number(rule.fires_at)} {series.unit}".strip()


def audited(rule: Rule) -> dict[str, Any]:
    """Return what the audit compares before and after."""
    names = [each.attname for each in Rule._meta.fields]
    values = {name: getattr(rule, name) for name in names if name not in ("id", "version")}
    channels = [each.name for each in rule.channels.all()] if rule.pk else []
    return values | {"channels": channels}


@page
def listing(request: HttpRequest) -> HttpResponse:
    firing = Count("alerts", filter=Q(alerts__state=Alert.State.FIRING))
    rules = Rule.objects.annotate(firing=firing).prefetch_related("channels")
    context = {
        "rows": [{"rule": rule, "what": described(rule)} for rule in rules],
        "is_full": len(rules) >= RULES_MAX,
    }
    return render(request, "alerts/rules.html", context)


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    if Rule.objects.count() >= RULES_MAX:
        messages.error(request, _("There are %(count)d rules already.") % {"count": RULES_MAX})
        return redirect("alerts:rules")
    query = request.GET.get("query", "")
    wanted = scheduled_queries().filter(pk=int(query)) if QUERY_NUMBER.fullmatch(query) else None
    found = None if wanted is None else wanted.first()
    if found is None:
        return edited(request, Rule())
    # Runs come seldom, so that each of them counts at once.
    source = Rule.Source.QUERY
    return edited(request, Rule(name=found.name[:80], source=source, query=found, for_minutes=0))


@administrators_form
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    return edited(request, get_object_or_404(Rule, pk=pk))


def edited(request: HttpRequest, rule: Rule) -> HttpResponse:
    is_new = rule.pk is None
    before, version = (None, 1) if is_new else (audited(rule), rule.version)
    form = RuleForm(request.POST if request.method == "POST" else None, instance=rule)
    if request.method == "POST" and form.is_valid():
        if not is_new and form.cleaned_data["version"] != version:
            form.add_error(
                None,
                _("Somebody else has changed this rule meanwhile; open it again to see how."),
            )
        else:
            saved = kept(request, form, before, version)
            messages.success(
                request, _("The rule %(name)s applies from now on.") % {"name": saved.name}
            )
            return redirect("alerts:rules")
    context = {"form": form, "rule": rule, "is_new": is_new}
    status = 422 if request.method == "POST" else 200
    return render(request, "alerts/rule.html", context, status=status)


def kept(request: HttpRequest, form: RuleForm, before: dict[str, Any] | None, version: int) -> Rule:
    """Keep what a valid form says under an audit entry; `before` None: it is a new rule."""
    is_new = before is None
    action = "alert-rule.create" if is_new else "alert-rule.update"
    name = form.cleaned_data["name"]
    with change(request, action, name, before=before) as entry, transaction.atomic():
        saved: Rule = form.save(commit=False)
        saved.version = version if is_new else version + 1
        saved.save()
        form.save_m2m()
        entry.after = audited(saved)
    return saved


@administrators_page
def show_preview(request: HttpRequest) -> HttpResponse:
    """Show how often the rule of the form would have fired."""
    pk = request.GET.get("pk", "")
    known = (
        Rule.objects.filter(pk=int(pk)).first()
        if pk.isascii() and pk.isdigit() and len(pk) < 10
        else None
    )
    form = RuleForm(request.GET, instance=known or Rule())
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        rule = form.save(commit=False)
        try:
            found = preview(history_store(), rule, now_ms())
        except HistoryError as error:
            context["problem"] = str(error)
        else:
            context |= {
                "found": found,
                "count": len(found.fired),
                "shown": [
                    {"subject": place_of(*each.subject)[0], "fired": each}
                    for each in found.fired[:FIRED_SHOWN]
                ],
            }
    return render(request, "alerts/_preview.html", context)


@administrators_action
def switch(request: HttpRequest, pk: int) -> HttpResponse:
    on = request.POST.get("enabled") == "on"
    switched(request, get_object_or_404(Rule, pk=pk), on=on)
    messages.success(
        request,
        _("The rule applies again.")
        if on
        else _("The rule is off; its alerts end within a minute."),
    )
    return redirect("alerts:rules")


def switched(request: HttpRequest, rule: Rule, *, on: bool) -> None:
    """Switch a rule on or off, under an audit entry."""
    before, after = {"enabled": rule.enabled}, {"enabled": on}
    with change(request, "alert-rule.switch", rule.name, before=before, after=after):
        Rule.objects.filter(pk=rule.pk).update(enabled=on, version=rule.version + 1)


def danger_of(rule: Rule) -> Danger:
    """Return what goes with a rule: its open alerts end, its silences go."""
    channels = [each.name for each in rule.channels.all()]
    return Danger(
        title=_("Delete rule %(name)s?") % {"name": rule.name},
        text=described(rule),
        effects=(
            Effect(
                _("Alerts that end now"),
                rule.alerts.filter(open_key__isnull=False).count(),
                _("their history stays"),
                is_bad=True,
            ),
            Effect(_("Silences that go"), rule.silences.count()),
            Effect(_("Channels that hear no more of it"), len(channels), ", ".join(channels)),
        ),
        undo=_("This cannot be undone; to pause it, switch it off instead."),
        action=_("Delete rule"),
        keep=_("Keep it"),
        address=reverse("alerts:rule-delete", args=[rule.pk]),
        back=reverse("alerts:rule-edit", args=[rule.pk]),
        name=rule.name,
    )


@administrators_form
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a rule; its alerts end, which is told, and stay in the history."""
    rule = get_object_or_404(Rule, pk=pk)
    question = unanswered(request, danger_of(rule))
    if question is not None:
        return question
    deleted(request, rule)
    messages.success(request, _("The rule %(name)s is deleted.") % {"name": rule.name})
    return redirect("alerts:rules")


def deleted(request: HttpRequest, rule: Rule) -> None:
    """Delete a rule and end its alerts, under an audit entry."""
    with (
        change(request, "alert-rule.delete", rule.name, before=audited(rule)),
        transaction.atomic(),
    ):
        now = now_ms()
        end_all(rule, now)
        rule.threads.all().delete()
        announce(rule, 0, now)
        rule.delete()
