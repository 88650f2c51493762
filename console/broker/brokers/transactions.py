"""Transactions without an outcome: find, commit, roll back and check them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import require
from console.broker.brokers.services import broker_node
from console.gateway.access import gateway
from console.lib.missing import MissingError
from console.people.audit.record import change
from console.ui.danger import Danger

if TYPE_CHECKING:
    from django.http import HttpRequest

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
