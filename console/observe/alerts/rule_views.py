"""The pages of rules: the list, and the editor with its preview."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.db.models import Count, Q
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    administrators_page,
    page,
)
from console.lib.moment import now_ms
from console.observe.alerts.forms import RuleForm
from console.observe.alerts.models import RULES_MAX, Alert, Rule
from console.observe.alerts.preview import preview
from console.observe.alerts.queries import queries
from console.observe.alerts.rules import (
    audit_state,
    danger_of,
    delete_rule,
    described,
    save_rule,
    switch_rule,
)
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.places import place_of
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

FIRED_SHOWN = 8
QUERY_NUMBER = re.compile(r"[0-9]{1,18}")


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
