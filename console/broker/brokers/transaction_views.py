"""The page of transactions without an outcome: list, commit, roll back and check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import form_for, page, require
from console.accounts.rights import rights_on
from console.broker.brokers.configuration_views import broker_node
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.observe.history.range import whole
from console.people.audit.record import change
from console.ui.danger import Danger, ask

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import BrokerNode
    from console.gateway.outgoing import Half

COMMIT, ROLL_BACK, CHECK = "commit", "roll-back", "check"


def master(broker_name: str, broker_id: int) -> BrokerNode:
    node = broker_node(broker_name, broker_id)
    if not node.is_master:
        raise MissingError(
            _("This broker is a slave and can't resolve transactions. Open its master instead.")
        )
    return node


@page
def transactions(request: HttpRequest, broker_name: str, broker_id: int) -> HttpResponse:
    """Show transactions without an outcome, oldest first."""
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


def half_at(request: HttpRequest, broker_name: str, offset: int) -> Half:
    """Return a pending transaction, for people who can send to its topic.

    Raises:
        MissingError: the transaction doesn't exist or has an outcome by now.
    """
    halves = gateway().sending.undecided(broker_name, offset)
    rows = () if halves is None else halves.halves
    half = next((each for each in rows if each.queue_offset == offset), None)
    if half is None:
        raise MissingError(
            _(
                "This transaction was resolved or checked in the meantime. Refresh the list "
                "and try again."
            )
        )
    require(request, Action.SEND, half.topic)
    return half


def decision(asked: str) -> str:
    """Return the decision with this name.

    Raises:
        MissingError: there is no such decision.
    """
    if asked not in (COMMIT, ROLL_BACK, CHECK):
        raise MissingError(_("Choose commit, roll back or check."))
    return asked


def apply_decision(request: HttpRequest, half: Half, wanted: str) -> str:
    """Commit, roll back or check a transaction; return a sentence for the user.

    Raises:
        GatewayError: the broker rejected it.
    """
    subject = f"{half.topic} {half.uniq_key or half.queue_offset}"
    with change(request, f"transaction.{wanted}", subject, before={"group": half.group}):
        if wanted == CHECK:
            gateway().sending.check(half)
        else:
            gateway().sending.decide(half, is_commit=wanted == COMMIT)
    values = {
        COMMIT: _("Transaction committed. Its message is now in %(topic)s."),
        ROLL_BACK: _("Transaction rolled back. Its message won't be delivered."),
        CHECK: _(
            "The broker is asking a producer in %(group)s. The producer's answer decides the "
            "transaction."
        ),
    }
    return values[wanted] % {"topic": half.topic, "group": half.group}


def danger_of(half: Half, wanted: str, back: str, address: str) -> Danger:
    """Return the confirmation for a decision, which may contradict the producer's own."""
    titles = {
        COMMIT: _("Commit the transaction in %(topic)s?"),
        ROLL_BACK: _("Roll back the transaction in %(topic)s?"),
        CHECK: _("Check the transaction in %(topic)s with its producer?"),
    }
    texts = {
        COMMIT: _(
            "Consumers will receive the message, whatever producer group %(group)s has done."
        ),
        ROLL_BACK: _(
            "No consumer will receive the message, whatever producer group %(group)s has done."
        ),
        CHECK: _("The broker asks a connected producer in %(group)s, which decides the outcome."),
    }
    actions = {COMMIT: _("Commit"), ROLL_BACK: _("Roll back"), CHECK: _("Check now")}
    values = {"topic": half.topic, "group": half.group}
    undo = "" if wanted == CHECK else _("The first outcome is final. This can't be undone.")
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
