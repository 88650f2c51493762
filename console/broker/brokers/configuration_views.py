"""A broker's configuration: the list of keys, and changing a key of a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core import signing
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from console.accounts.permissions import administrators_form, administrators_page
from console.broker.configs.plan import Plan, unsealed
from console.broker.configs.plan_page import PlanPages, PlanSurroundings, PlanWords, show_plan
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.lists import Chip, search_text
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.tables import Column, Table
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.people.audit.undo import offer_undo
from console.ui.copies import mqadmin, mqadmin_text
from console.ui.templatetags.ui import grouped

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.broker.configs.plan import State
    from console.gateway.answers import BrokerNode
    from console.gateway.configuration import BrokerKey

KIND, ACTION = "broker", "broker.configure"
VALUE_CHARACTERS_MAX = 4_096
ALL, CHANGED, LIVE, INERT = "all", "changed", "live", "inert"

COLUMNS = (
    Column("key", pgettext_lazy("setting", "Key"), is_sorted=True),
    Column("value", gettext_lazy("Value"), is_fact=True),
    Column("default", gettext_lazy("Default")),
    Column("changes", gettext_lazy("How to change"), is_fact=True, is_sorted=True),
    Column("unit", gettext_lazy("Unit"), is_extra=True),
)


class KeyForm(forms.Form):
    """The new value of one key."""

    def __init__(self, key: BrokerKey, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["value"] = field_of(key)
        self.fields["seen"] = forms.CharField(required=False, widget=forms.HiddenInput)
        self.initial.update(value=key.value, seen=key.value)


def field_of(key: BrokerKey) -> forms.Field:
    if key.choices:
        return forms.ChoiceField(label=key.key, choices=[(each, each) for each in key.choices])
    if key.kind == "int":
        high = f"{grouped(key.high)} {key.unit}".strip()
        text = _("From %(low)s to %(high)s.") % {"low": grouped(key.low), "high": high}
        return forms.IntegerField(
            label=key.key, min_value=key.low, max_value=key.high, help_text=text
        )
    return forms.CharField(
        label=key.key,
        required=False,
        max_length=VALUE_CHARACTERS_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


def broker_node(broker_name: str, broker_id: int) -> BrokerNode:
    for node in gateway().cluster.registered().nodes:
        if (node.broker_name, node.broker_id) == (broker_name, broker_id):
            return node
    raise MissingError(
        _("No broker named %(name)s with ID %(id)d is registered.")
        % {"name": broker_name, "id": broker_id}
    )


@administrators_page
def listing(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show a broker's keys with value, default, and how to change them."""
    node = broker_node(broker_name, broker_id)
    every = gateway().cluster.configuration(node)
    query = search_text(request)
    matching = [each for each in every if query.lower() in f"{each.key} {each.value}".lower()]
    kinds = {
        ALL: matching,
        CHANGED: [each for each in matching if each.is_changed],
        LIVE: [each for each in matching if each.is_live],
        INERT: [each for each in matching if not each.is_effective],
    }
    kind = request.GET.get("kind", ALL)
    kind = kind if kind in kinds else ALL
    table = Table(request, COLUMNS, sort="key")
    context = {
        "node": node,
        "table": table,
        "rows": table.sorted(
            kinds[kind],
            {
                "key": lambda each: each.key.lower(),
                "changes": lambda each: (not each.is_live, each.key.lower()),
            },
        ),
        "query": query,
        "kind": kind,
        "chips": [
            Chip(ALL, _("All"), len(kinds[ALL])),
            Chip(CHANGED, _("Non-default"), len(kinds[CHANGED])),
            Chip(LIVE, _("Changeable at runtime"), len(kinds[LIVE])),
            Chip(INERT, _("No effect"), len(kinds[INERT])),
        ],
        "is_narrowed": True,
        "is_described": any(each.is_described for each in every),
        "copies": [mqadmin_text([mqadmin("getBrokerConfig", {"b": node.address})])],
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/configuration.html", context)


@administrators_form
def edit(request: HttpRequest, broker_name: str, broker_id: int, key: str) -> HttpResponse:
    """Change a key that can change while the broker runs: form, plan, apply."""
    node = broker_node(broker_name, broker_id)
    if "token" in request.POST:
        return apply(request, node)
    now = key_of(node, key)
    form = KeyForm(now, request.POST or None)
    if form.is_bound and "back" not in request.POST and form.is_valid():
        seen = form.cleaned_data["seen"] or now.value
        plan = Plan(
            name_of(node),
            state(node, key, seen),
            state(node, key, now.value),
            state(node, key, str(form.cleaned_data["value"])),
            kind=KIND,
        )
        return show_key_plan(request, node, key, plan, entries=[("value", form.data["value"])])
    context = {"form": form, "key": now, "node": node}
    return render(request, "brokers/key.html", context)


@administrators_form
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Preview undoing a change; a POST undoes it unless the state has changed since."""
    done = get_object_or_404(Entry, pk=entry, action=ACTION, outcome=Entry.Outcome.DONE)
    node, key, plan = undoing(done)
    if "token" in request.POST:
        return apply(request, node)
    if request.method != "POST" or plan.is_overtaken or plan.is_idle:
        return show_key_plan(request, node, key, plan)
    return carry_out(request, node, key, plan)


def undoing(done: Entry) -> tuple[BrokerNode, str, Plan]:
    """Return the broker, the key and the plan for undoing a change."""
    broker_name, _colon, number = done.subject.rpartition(":")
    node = broker_node(broker_name, int(number))
    key = key_in(done.before, node)
    now = state(node, key, key_of(node, key).value)
    return node, key, Plan(done.subject, done.after, now, done.before, done.pk, kind=KIND)


def apply(request: HttpRequest, node: BrokerNode) -> HttpResponse:
    """Apply a plan, or show both versions if the key has changed since the preview."""
    try:
        data = unsealed(request.POST["token"], KIND)
    except signing.BadSignature:
        data = {}
    if data.get("name") != name_of(node):
        raise MissingError(_("This plan isn't for this broker, so nothing was changed."))
    key = key_in(data["wanted"], node)
    now = state(node, key, key_of(node, key).value)
    plan = Plan(data["name"], data["seen"], now, data["wanted"], data["undoes"], kind=KIND)
    if plan.is_overtaken or plan.is_idle:
        return show_key_plan(request, node, key, plan)
    return carry_out(request, node, key, plan)


def carry_out(request: HttpRequest, node: BrokerNode, key: str, plan: Plan) -> HttpResponse:
    try:
        entry = configure(request, node, key, plan)
    except GatewayError as error:
        problem = f"{error.what} {error.advice}".strip()
        return show_key_plan(request, node, key, plan, problem=problem)
    offer_undo(request, done_message(key, plan), entry)
    return redirect("brokers:configuration", node.broker_name, node.broker_id)


def configure(request: HttpRequest, node: BrokerNode, key: str, plan: Plan) -> Entry:
    """Change a key according to a plan, under an audit log entry.

    Raises:
        GatewayError: the broker rejected the change.
    """
    wanted = plan.wanted[node.broker_name]
    assert wanted is not None
    with change(request, ACTION, plan.name, before=plan.now, after=plan.wanted) as entry:
        if plan.undoes is not None:
            entry.remark = _("Undoes entry %(entry)d.") % {"entry": plan.undoes}
        gateway().cluster.configure(node, {key: str(wanted[key])})
    return entry


def done_message(key: str, plan: Plan) -> str:
    return _("%(key)s was changed on %(broker)s.") % {"key": key, "broker": plan.name}


def show_key_plan(
    request: HttpRequest,
    node: BrokerNode,
    key: str,
    plan: Plan,
    *,
    problem: str = "",
    entries: list[tuple[str, str]] | None = None,
) -> HttpResponse:
    words = PlanWords(_("Overview"), "", _("Change %(key)s") % {"key": key})
    around = PlanSurroundings(
        back=reverse("brokers:configuration", args=[node.broker_name, node.broker_id]),
        entries=entries or (),
        problem=problem,
    )
    return show_plan(request, plan, PlanPages(words, "overview:index"), around)


def name_of(node: BrokerNode) -> str:
    return f"{node.broker_name}:{node.broker_id}"


def state(node: BrokerNode, key: str, value: str) -> State:
    return {node.broker_name: {key: value}}


def key_of(node: BrokerNode, key: str) -> BrokerKey:
    """Return a broker's key that can change while the broker runs.

    Raises:
        MissingError: there is no such key, or it can't change at run time.
    """
    now = next((each for each in gateway().cluster.configuration(node) if each.key == key), None)
    if now is None or not now.is_live:
        raise MissingError(
            _(
                "%(key)s can't be changed while %(broker)s is running. Set it in the broker's "
                "configuration file and restart the broker."
            )
            % {"key": key, "broker": name_of(node)}
        )
    return now


def key_in(side: Any, node: BrokerNode) -> str:
    """Return the only key in a plan or entry."""
    values = side.get(node.broker_name) if isinstance(side, dict) else None
    if not isinstance(values, dict) or len(values) != 1:
        raise Http404
    return str(next(iter(values)))
