"""The pages of rules: the list, and the editor with its preview."""

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
from console.lib.moment import now_ms
from console.observe.alerts.evaluator import end_all
from console.observe.alerts.forms import RuleForm
from console.observe.alerts.models import RULES_MAX, Alert, Rule
from console.observe.alerts.notices import announce
from console.observe.alerts.preview import preview
from console.observe.alerts.queries import queries
from console.observe.alerts.series import SERIES
from console.observe.alerts.wording import number
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.places import place_of
from console.observe.verdicts.words import WORDS
from console.people.audit.record import change
from console.ui.danger import Danger, Effect, confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

FIRED_SHOWN = 8
QUERY_NUMBER = re.compile(r"[0-9]{1,18}")


def described(rule: Rule) -> str:
    """Return a one-line description of a rule's condition."""
    if rule.source == Rule.Source.VERDICT:
        names = [str(WORDS[each].title) for each in rule.verdicts if each in WORDS]
        kinds = ", ".join(names) or _("all issues")
        return f"{kinds} ({rule.get_least_display()})"
    if rule.source == Rule.Source.QUERY:
        name = _("a deleted query") if rule.query is None else rule.query.name
        return _("%(name)s returned rows") % {"name": name}
    series = SERIES.get(rule.series)
    if series is None:
        return rule.series
    what = series.title
    if rule.compare == Rule.Compare.MISSING:
        return f"{what} {rule.get_compare_display()}"
    return f"{what} {rule.get_compare_display()} {number(rule.fires_at)} {series.unit}".strip()


def audit_state(rule: Rule) -> dict[str, Any]:
    """Return the values that the audit log compares."""
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
        messages.error(request, _("You already have %(count)d rules.") % {"count": RULES_MAX})
        return redirect("alerts:rules")
    query = request.GET.get("query", "")
    wanted = queries().scheduled().filter(pk=int(query)) if QUERY_NUMBER.fullmatch(query) else None
    found = None if wanted is None else wanted.first()
    if found is None:
        return edited(request, Rule())
    # Queries run rarely, so every run counts at once.
    source = Rule.Source.QUERY
    return edited(request, Rule(name=found.name[:80], source=source, query=found, for_minutes=0))


@administrators_form
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    return edited(request, get_object_or_404(Rule, pk=pk))


def edited(request: HttpRequest, rule: Rule) -> HttpResponse:
    is_new = rule.pk is None
    before, version = (None, 1) if is_new else (audit_state(rule), rule.version)
    form = RuleForm(request.POST if request.method == "POST" else None, instance=rule)
    if request.method == "POST" and form.is_valid():
        if not is_new and form.cleaned_data["version"] != version:
            form.add_error(
                None,
                _(
                    "Someone else changed this rule in the meantime. Open it again to see the "
                    "changes."
                ),
            )
        else:
            saved = save_rule(request, form, before, version)
            messages.success(request, _("Rule %(name)s is now active.") % {"name": saved.name})
            return redirect("alerts:rules")
    context = {"form": form, "rule": rule, "is_new": is_new}
    status = 422 if request.method == "POST" else 200
    return render(request, "alerts/rule.html", context, status=status)


def save_rule(
    request: HttpRequest, form: RuleForm, before: dict[str, Any] | None, version: int
) -> Rule:
    """Save a valid form under an audit log entry; `before` is None for a new rule."""
    is_new = before is None
    action = "alert-rule.create" if is_new else "alert-rule.update"
    name = form.cleaned_data["name"]
    with change(request, action, name, before=before) as entry, transaction.atomic():
        saved: Rule = form.save(commit=False)
        saved.version = version if is_new else version + 1
        saved.save()
        form.save_m2m()
        entry.after = audit_state(saved)
    return saved


@administrators_page
def show_preview(request: HttpRequest) -> HttpResponse:
    """Show how often the form's rule would have fired."""
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
    switch_rule(request, get_object_or_404(Rule, pk=pk), on=on)
    messages.success(
        request,
        _("Rule turned on.") if on else _("Rule turned off. Its alerts resolve within a minute."),
    )
    return redirect("alerts:rules")


def switch_rule(request: HttpRequest, rule: Rule, *, on: bool) -> None:
    """Enable or disable a rule under an audit log entry."""
    before, after = {"enabled": rule.enabled}, {"enabled": on}
    with change(request, "alert-rule.switch", rule.name, before=before, after=after):
        Rule.objects.filter(pk=rule.pk).update(enabled=on, version=rule.version + 1)


def danger_of(rule: Rule) -> Danger:
    """Return the confirmation for deleting a rule, which ends its alerts and silences."""
    channels = [each.name for each in rule.channels.all()]
    return Danger(
        title=_("Delete rule %(name)s?") % {"name": rule.name},
        text=described(rule),
        effects=(
            Effect(
                _("Alerts that will be resolved"),
                rule.alerts.filter(open_key__isnull=False).count(),
                _("their history is kept"),
                is_bad=True,
            ),
            Effect(_("Silences that will be deleted"), rule.silences.count()),
            Effect(
                _("Channels that will no longer be notified"), len(channels), ", ".join(channels)
            ),
        ),
        undo=_("This can't be undone. To pause the channel, turn it off instead."),
        action=_("Delete rule"),
        keep=_("Cancel"),
        address=reverse("alerts:rule-delete", args=[rule.pk]),
        back=reverse("alerts:rule-edit", args=[rule.pk]),
        name=rule.name,
    )


@administrators_form
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a rule; its alerts end with a notification and stay in the history."""
    rule = get_object_or_404(Rule, pk=pk)
    question = confirmation(request, danger_of(rule))
    if question is not None:
        return question
    delete_rule(request, rule)
    messages.success(request, _("Rule %(name)s deleted.") % {"name": rule.name})
    return redirect("alerts:rules")


def delete_rule(request: HttpRequest, rule: Rule) -> None:
    """Delete a rule and end its alerts, under an audit log entry."""
    with (
        change(request, "alert-rule.delete", rule.name, before=audit_state(rule)),
        transaction.atomic(),
    ):
        now = now_ms()
        end_all(rule, now)
        rule.threads.all().delete()
        announce(rule, 0, now)
        rule.delete()
