"""The page of transactions without an outcome: list, commit, roll back and check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.urls import reverse

from console.accounts.actions import Action
from console.accounts.permissions import form_for, page
from console.accounts.rights import rights_on
from console.broker.brokers.services import visible
from console.broker.brokers.transactions import apply_decision, danger_of, decision, half_at, master
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms
from console.observe.history.range import whole
from console.ui.danger import ask

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@page
def transactions(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show transactions without an outcome, oldest first."""
    node = master(broker_name, broker_id)
    halves = gateway().sending.undecided(broker_name, whole(request.GET.get("from", "")) or 0)
    rights = rights_on(request)
    shown, hidden = visible(request, () if halves is None else halves.halves)
    context = {
        "node": node,
        "halves": halves,
        "rows": [(each, rights.may(Action.SEND, each.topic)) for each in shown],
        "hidden": hidden,
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/transactions.html", context)


@form_for(Action.SEND)
def decide(request: HttpRequest, broker_name: str, broker_id: int, offset: int) -> HttpResponse:
    """Commit, roll back or check a transaction after confirmation."""
    node = master(broker_name, broker_id)
    half = half_at(request, broker_name, offset)
    wanted = decision(request.POST.get("do") or request.GET.get("do", ""))
    back = reverse("brokers:transactions", args=[node.broker_name, node.broker_id])
    if request.method != "POST":
        return ask(request, danger_of(half, wanted, back, request.path))
    try:
        messages.success(request, apply_decision(request, half, wanted))
    except GatewayError as error:
        messages.error(request, f"{error.what} {error.advice}".strip())
    return redirect(back)
