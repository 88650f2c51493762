"""Pages of the key-value table: put, delete and undo, as plans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django import forms
from django.core import signing
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from console.accounts.permissions import administrators_form
from console.broker.brokers import kv_changing
from console.broker.brokers.kv_changing import KIND, entry_of
from console.broker.configs.plan import sealed_state, unsealed, unsealed_state
from console.broker.configs.plan_page import PlanPages, PlanSurroundings, PlanWords, show_plan
from console.gateway.naming import ORDER_TOPIC_CONFIG
from console.lib.missing import MissingError
from console.people.audit.models import Entry
from console.people.audit.undo import offer_undo
from console.ui.danger import Danger, Effect, ask, confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.broker.brokers.kv_changing import KvEntry
    from console.broker.configs.plan import Plan, State

LIST = "brokers:name-servers"
NAME_CHARACTERS_MAX, VALUE_CHARACTERS_MAX = 255, 4_096
PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class KvForm(forms.Form):
    """An entry of a namespace."""

    namespace = forms.CharField(
        label=gettext_lazy("Namespace"),
        max_length=NAME_CHARACTERS_MAX,
        initial=ORDER_TOPIC_CONFIG,
        widget=forms.TextInput(attrs=PLAIN),
    )
    key = forms.CharField(
        label=pgettext_lazy("setting", "Key"),
        help_text=gettext_lazy("For ORDER_TOPIC_CONFIG, the topic name."),
        max_length=NAME_CHARACTERS_MAX,
        widget=forms.TextInput(attrs=PLAIN),
    )
    value = forms.CharField(
        label=gettext_lazy("Value"),
        help_text=gettext_lazy(
            "For ORDER_TOPIC_CONFIG, the number of queues on each broker, for example "
            "broker-a:4;broker-b:4."
        ),
        max_length=VALUE_CHARACTERS_MAX,
        widget=forms.TextInput(attrs=PLAIN),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)


def list_url(namespace: str) -> str:
    return f"{reverse(LIST)}?{urlencode({'namespace': namespace})}"


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


def danger_of(found: KvEntry) -> Danger:
    """Return the confirmation for deleting an entry.

    Raises:
        MissingError: no name server has the entry.
    """
    if not found.is_anywhere:
        raise MissingError(_("No name server has an entry for %(key)s.") % {"key": found.key})
    silent = Effect(
        _("Name servers that aren't responding and will keep the entry"),
        len(found.silent),
        ", ".join(found.silent),
        is_bad=True,
    )
    return Danger(
        title=_("Delete %(key)s?") % {"key": found.key},
        text=_(
            "The entry is deleted from every name server. Clients of ordered topics may depend "
            "on it."
        ),
        undo=_("You can undo this from the notification or the audit log."),
        action=_("Delete"),
        keep=_("Cancel"),
        address=reverse("brokers:kv-delete", args=[found.namespace, found.key]),
        back=list_url(found.namespace),
        effects=(silent,) if found.silent else (),
    )


@administrators_form
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Preview undoing a change; a POST undoes it unless the state has changed since."""
    if "token" in request.POST:
        return apply(request)
    plan = kv_changing.undoing(undoable(entry))
    if request.method != "POST" or plan.is_overtaken or plan.is_idle:
        return show_kv_plan(request, plan)
    return carry_out(request, plan)


def undoable(entry: int) -> Entry:
    found: Entry = get_object_or_404(
        Entry, pk=entry, action__in=kv_changing.UNDONE, outcome=Entry.Outcome.DONE
    )
    return found


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
