"""Pages of the key-value table: put, delete and undo, as plans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.core import signing
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form
from console.broker.brokers import kv_changing
from console.broker.brokers.forms import KvForm
from console.broker.brokers.kv_changing import KIND, LIST, danger_of, entry_of, list_url, undoable
from console.broker.configs.plan import sealed_state, unsealed, unsealed_state
from console.broker.configs.plan_page import PlanPages, PlanSurroundings, PlanWords, show_plan
from console.lib.missing import MissingError
from console.people.audit.undo import offer_undo
from console.ui.danger import ask, confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.broker.brokers.kv_changing import KvEntry
    from console.broker.configs.plan import Plan, State


@administrators_form
def put(request: HttpRequest) -> HttpResponse:
    """Store an entry on every name server: form, plan, apply."""
    if "token" in request.POST:
        return apply(request)
    form = KvForm(request.POST or None)
    if form.is_bound and "back" not in request.POST and form.is_valid():
        data = form.cleaned_data
        found = entry_of(data["namespace"], data["key"])
        plan = found.plan(data["value"], seen_in(data["seen"], found))
        return show_kv_plan(request, plan, form=form)
    seen = form.data.get("seen", "")
    if not form.is_bound:
        # Links from the list prefill the form with an existing entry.
        named = {name: request.GET[name].strip() for name in form.fields if name in request.GET}
        form.initial.update(named)
        if {"namespace", "key"} <= named.keys():
            found = entry_of(named["namespace"], named["key"])
            form.initial["value"] = found.value or ""
            seen = sealed_state(found.state, KIND)
    context = {"form": form, "seen": seen, "back": list_url(form["namespace"].value() or "")}
    return render(request, "brokers/kv.html", context)


def seen_in(token: str, found: KvEntry) -> State | None:
    """Return the state that a form was opened on, or None if it was for another entry."""
    if not token:
        return None
    try:
        seen = unsealed_state(token, KIND)
    except signing.BadSignature:
        return None
    names = {(values["namespace"], values["key"]) for values in seen.values() if values}
    return seen if names <= {(found.namespace, found.key)} else None


@administrators_form
def remove(request: HttpRequest, namespace: str, key: str) -> HttpResponse:
    """Delete an entry on every name server after confirmation."""
    found = entry_of(namespace, key)
    danger = danger_of(found)
    question = confirmation(request, danger)
    if question is not None:
        return question
    plan = found.plan(None)
    outcome = kv_changing.apply_plan(request, plan)
    if outcome.problem:
        return ask(request, replace(danger, problem=outcome.problem))
    offer_undo(request, kv_changing.done_message(plan), outcome.entry)
    return redirect(list_url(namespace))


@administrators_form
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Preview undoing a change; a POST undoes it unless the state has changed since."""
    if "token" in request.POST:
        return apply(request)
    plan = kv_changing.undoing(undoable(entry))
    if request.method != "POST" or plan.is_overtaken or plan.is_idle:
        return show_kv_plan(request, plan)
    return carry_out(request, plan)


def apply(request: HttpRequest) -> HttpResponse:
    """Apply a plan, or show both versions if the state has changed since the preview."""
    try:
        data = unsealed(request.POST["token"], KIND)
    except signing.BadSignature as error:
        text = _("This plan isn't for a name server entry, so nothing was changed.")
        raise MissingError(text) from error
    plan = kv_changing.current(data)
    if plan.is_overtaken or plan.is_idle:
        return show_kv_plan(request, plan)
    return carry_out(request, plan)


def carry_out(request: HttpRequest, plan: Plan) -> HttpResponse:
    if kv_changing.objection_to(plan) and request.POST.get("accepted") != "on":
        return show_kv_plan(request, plan, is_refused="token" in request.POST)
    outcome = kv_changing.apply_plan(request, plan)
    if outcome.problem:
        left = {"seen": {}, "wanted": plan.wanted, "undoes": plan.undoes}
        return show_kv_plan(request, kv_changing.current(left), problem=outcome.problem)
    offer_undo(request, kv_changing.done_message(plan), outcome.entry)
    namespace, _key = kv_changing.names_in(plan.wanted, plan.now)
    return redirect(list_url(namespace))


def show_kv_plan(
    request: HttpRequest,
    plan: Plan,
    *,
    form: KvForm | None = None,
    problem: str = "",
    is_refused: bool = False,
) -> HttpResponse:
    words = PlanWords(_("Name servers"), _("New entry"), _("Change entry"))
    names = ("namespace", "key", "value")
    namespace, _key = kv_changing.names_in(plan.wanted, plan.now, plan.seen)
    around = PlanSurroundings(
        back=list_url(namespace),
        is_new=plan.verb == "create",
        entries=[(name, str(form.data[name])) for name in names] if form is not None else (),
        problem=problem,
        objection="" if plan.is_idle else kv_changing.objection_to(plan),
        is_refused=is_refused,
        fields=KvForm.base_fields,
    )
    return show_plan(request, plan, PlanPages(words, LIST), around)
