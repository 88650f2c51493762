"""A broker's configuration: the list of keys, and changing a key of a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core import signing
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from console.accounts.permissions import administrators_form, administrators_page
from console.broker.brokers.configuring import (
    ACTION,
    KIND,
    configure,
    done_message,
    key_in,
    key_of,
    name_of,
    state,
    undoing,
)
from console.broker.brokers.forms import KeyForm
from console.broker.brokers.services import broker_node
from console.broker.configs.plan import Plan, unsealed
from console.broker.configs.plan_page import PlanPages, PlanSurroundings, PlanWords, show_plan
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.lists import Chip, search_text
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.tables import Column, Table
from console.people.audit.models import Entry
from console.people.audit.undo import offer_undo
from console.ui.copies import mqadmin, mqadmin_text

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import BrokerNode

ALL, CHANGED, LIVE, INERT = "all", "changed", "live", "inert"

COLUMNS = (
    Column("key", pgettext_lazy("setting", "Key"), is_sorted=True),
    Column("value", gettext_lazy("Value"), is_fact=True),
    Column("default", gettext_lazy("Default")),
    Column("changes", gettext_lazy("How to change"), is_fact=True, is_sorted=True),
    Column("unit", gettext_lazy("Unit"), is_extra=True),
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
