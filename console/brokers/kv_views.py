"""Pages of the name servers' key-value table: an entry is put and deleted as a plan, and undone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django import forms
from django.core import signing
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.permissions import administrators_form
from console.audit.models import Entry
from console.audit.undo import tell
from console.brokers import kv_changing
from console.brokers.kv_changing import KIND, entry_of
from console.configs.plan import sealed_state, unsealed, unsealed_state
from console.configs.plan_page import PlanPages, PlanSurroundings, PlanWords, show_plan
from console.gateway.naming import ORDER_TOPIC_CONFIG
from console.ui.danger import Danger, Effect, ask, unanswered
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.brokers.kv_changing import KvEntry
    from console.configs.plan import Plan, State

LIST = "brokers:name-servers"
NAME_CHARACTERS_MAX, VALUE_CHARACTERS_MAX = 255, 4_096
PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class KvForm(forms.Form):
    """One entry of a namespace."""

    namespace = forms.CharField(
        label=gettext_lazy("Namespace"),
        max_length=NAME_CHARACTERS_MAX,
        initial=ORDER_TOPIC_CONFIG,
        widget=forms.TextInput(attrs=PLAIN),
    )
    key = forms.CharField(
        label=gettext_lazy("Key"),
        help_text=gettext_lazy("In ORDER_TOPIC_CONFIG the name of a topic."),
        max_length=NAME_CHARACTERS_MAX,
        widget=forms.TextInput(attrs=PLAIN),
    )
    value = forms.CharField(
        label=gettext_lazy("Value"),
        help_text=gettext_lazy(
            "In ORDER_TOPIC_CONFIG the queues of each broker, as in broker-a:4;broker-b:4."
        ),
        max_length=VALUE_CHARACTERS_MAX,
        widget=forms.TextInput(attrs=PLAIN),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)


def back_to(namespace: str) -> str:
    return f"{reverse(LIST)}?{urlencode({'namespace': namespace})}"


@administrators_form
def put(request: HttpRequest) -> HttpResponse:
    """Keep an entry at every name server: form, plan, apply."""
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
        # A link leads to one that is there, to be changed.
        named = {name: request.GET[name].strip() for name in form.fields if name in request.GET}
        form.initial.update(named)
        if {"namespace", "key"} <= named.keys():
            found = entry_of(named["namespace"], named["key"])
            form.initial["value"] = found.value or ""
            seen = sealed_state(found.state, KIND)
    context = {"form": form, "seen": seen, "back": back_to(form["namespace"].value() or "")}
    return render(request, "brokers/kv.html", context)


def seen_in(token: str, found: KvEntry) -> State | None:
    """Return what a form was opened on, None where it does not say or it is of another entry."""
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
    """Delete an entry at every name server, once that is confirmed."""
    found = entry_of(namespace, key)
    danger = danger_of(found)
    question = unanswered(request, danger)
    if question is not None:
        return question
    plan = found.plan(None)
    outcome = kv_changing.carried_out(request, plan)
    if outcome.problem:
        return ask(request, replace(danger, problem=outcome.problem))
    tell(request, kv_changing.said(plan), outcome.entry)
    return redirect(back_to(namespace))


def danger_of(found: KvEntry) -> Danger:
    """Return the question before an entry is deleted.

    Raises:
        MissingError: no name server has it.
    """
    if not found.is_anywhere:
        raise MissingError(_("No name server has %(key)s.") % {"key": found.key})
    silent = Effect(
        _("Name servers that do not answer, and keep it"),
        len(found.silent),
        ", ".join(found.silent),
        is_bad=True,
    )
    return Danger(
        title=_("Delete %(key)s?") % {"key": found.key},
        text=_("Every name server loses the entry; clients of ordered topics may read it."),
        undo=_("It can be put back: by the notice afterwards, or by the audit."),
        action=_("Delete"),
        keep=_("Keep it"),
        address=reverse("brokers:kv-delete", args=[found.namespace, found.key]),
        back=back_to(found.namespace),
        effects=(silent,) if found.silent else (),
    )


@administrators_form
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Show what undoing a change would do; a POST does it while nobody has changed it since."""
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
    """Do what a plan showed, unless somebody has changed it since: then show both."""
    try:
        data = unsealed(request.POST["token"], KIND)
    except signing.BadSignature as error:
        said = _("This plan is not one of a name server's entry; nothing was done.")
        raise MissingError(said) from error
    plan = kv_changing.current(data)
    if plan.is_overtaken or plan.is_idle:
        return show_kv_plan(request, plan)
    return carry_out(request, plan)


def carry_out(request: HttpRequest, plan: Plan) -> HttpResponse:
    if kv_changing.objection_to(plan) and request.POST.get("accepted") != "on":
        return show_kv_plan(request, plan, is_refused="token" in request.POST)
    outcome = kv_changing.carried_out(request, plan)
    if outcome.problem:
        left = {"seen": {}, "wanted": plan.wanted, "undoes": plan.undoes}
        return show_kv_plan(request, kv_changing.current(left), problem=outcome.problem)
    tell(request, kv_changing.said(plan), outcome.entry)
    namespace, _key = kv_changing.names_in(plan.wanted, plan.now)
    return redirect(back_to(namespace))


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
        back=back_to(namespace),
        is_new=plan.verb == "create",
        entries=[(name, str(form.data[name])) for name in names] if form is not None else (),
        problem=problem,
        objection="" if plan.is_idle else kv_changing.objection_to(plan),
        is_refused=is_refused,
        fields=KvForm.base_fields,
    )
    return show_plan(request, plan, PlanPages(words, LIST), around)
