"""The page of transactions without an outcome: which wait, and commit, roll back, check now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import form_for, page, require
from console.accounts.rights import rights_on
from console.audit.record import change
from console.brokers.configuration_views import found
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.moment import now_ms
from console.history.range import whole
from console.ui.danger import Danger, ask
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import BrokerNode
    from console.gateway.outgoing import Half

COMMIT, ROLL_BACK, CHECK = "commit", "roll-back", "check"


def master(broker_name: str, broker_id: int) -> BrokerNode:
    node = found(broker_name, broker_id)
    if not node.is_master:
        raise MissingError(_("A slave decides nothing; look at its master."))
    return node


@page
def transactions(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show the transactions without an outcome, the oldest first."""
    node = master(broker_name, broker_id)
    halves = gateway().sending.undecided(broker_name, whole(request.GET.get("from", "")) or 0)
    rights = rights_on(request)
    rows = [] if halves is None else list(halves.halves)
    shown = [each for each in rows if rights.may(Action.SEE, each.topic)]
    context = {
        "node": node,
        "halves": halves,
        "rows": [(each, rights.may(Action.SEND, each.topic)) for each in shown],
        "hidden": len(rows) - len(shown),
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/transactions.html", context)


@form_for(Action.SEND)
def decide(request: HttpRequest, broker_name: str, broker_id: int, offset: int) -> HttpResponse:
    """Commit, roll back or check a transaction, once it is confirmed."""
    node = master(broker_name, broker_id)
    half = half_at(request, broker_name, offset)
    wanted = decision(request.POST.get("do") or request.GET.get("do", ""))
    back = reverse("brokers:transactions", args=[node.broker_name, node.broker_id])
    if request.method != "POST":
        return ask(request, danger_of(half, wanted, back, request.path))
    try:
        messages.success(request, decided(request, half, wanted))
    except GatewayError as error:
        messages.error(request, f"{error.what} {error.advice}".strip())
    return redirect(back)


def half_at(request: HttpRequest, broker_name: str, offset: int) -> Half:
    """Return a transaction that waits, to whoever may send to its topic.

    Raises:
        MissingError: there is none (any more).
    """
    halves = gateway().sending.undecided(broker_name, offset)
    rows = () if halves is None else halves.halves
    half = next((each for each in rows if each.queue_offset == offset), None)
    if half is None:
        raise MissingError(
            _("This transaction has an outcome by now, or was asked about: look at the list again.")
        )
    require(request, Action.SEND, half.topic)
    return half


def decision(asked: str) -> str:
    """Return what shall become of a transaction.

    Raises:
        MissingError: it is nothing that could.
    """
    if asked not in (COMMIT, ROLL_BACK, CHECK):
        raise MissingError(_("A transaction is committed, rolled back or checked."))
    return asked


def decided(request: HttpRequest, half: Half, wanted: str) -> str:
    """Commit, roll back or check a transaction; return what was done.

    Raises:
        GatewayError: its broker refused.
    """
    subject = f"{half.topic} {half.uniq_key or half.queue_offset}"
    with change(request, f"transaction.{wanted}", subject, before={"group": half.group}):
        if wanted == CHECK:
            gateway().sending.check(half)
        else:
            gateway().sending.decide(half, is_commit=wanted == COMMIT)
    said = {
        COMMIT: _("The transaction is committed: its message is in %(topic)s."),
        ROLL_BACK: _("The transaction is rolled back: nobody gets its message."),
        CHECK: _("A producer of %(group)s is asked; its answer decides the transaction."),
    }
    return said[wanted] % {"topic": half.topic, "group": half.group}


def danger_of(half: Half, wanted: str, back: str, address: str) -> Danger:
    """Return what a decision means, which its producer may see otherwise."""
    titles = {
        COMMIT: _("Commit the transaction in %(topic)s?"),
        ROLL_BACK: _("Roll back the transaction in %(topic)s?"),
        CHECK: _("Ask a producer about the transaction in %(topic)s?"),
    }
    texts = {
        COMMIT: _("Its consumers get the message, whatever the producer %(group)s has done."),
        ROLL_BACK: _("Nobody gets the message, whatever the producer %(group)s has done."),
        CHECK: _("The broker asks one that is connected now; %(group)s decides."),
    }
    actions = {COMMIT: _("Commit"), ROLL_BACK: _("Roll back"), CHECK: _("Check now")}
    values = {"topic": half.topic, "group": half.group}
    undo = "" if wanted == CHECK else _("The first outcome stays: this cannot be undone.")
    return Danger(
        title=titles[wanted] % values,
        text=texts[wanted] % values,
        undo=undo,
        action=actions[wanted],
        keep=_("Cancel"),
        address=address,
        back=back,
        icon="hourglass",
        hidden={"do": wanted},
    )
