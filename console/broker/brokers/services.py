"""Brokers: find them, and promote a slave, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.rights import rights_on
from console.gateway.access import gateway
from console.gateway.answers import MASTER_ID, Cluster, Promoted
from console.gateway.errors import GatewayError
from console.lib.missing import MissingError
from console.observe.overview.replication import BrokerSet, sets_of
from console.people.audit.record import change
from console.ui.danger import Choice, Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

    from console.gateway.answers import BrokerNode


class HasTopic(Protocol):
    """A message, or a transaction, in a topic."""

    @property
    def topic(self) -> str: ...


OfTopic = TypeVar("OfTopic", bound=HasTopic)


def broker_node(broker_name: str, broker_id: int) -> BrokerNode:
    for node in gateway().cluster.registered().nodes:
        if (node.broker_name, node.broker_id) == (broker_name, broker_id):
            return node
    raise MissingError(
        _("No broker named %(name)s with ID %(id)d is registered.")
        % {"name": broker_name, "id": broker_id}
    )


def set_of(cluster: Cluster, broker_name: str) -> tuple[BrokerSet, ...]:
    """Return a broker's set if it has a slave."""
    if all(each.broker_name != broker_name for each in cluster.in_sets):
        return ()
    found = sets_of(cluster, gateway().cluster.replication())
    return tuple(each for each in found if each.broker_name == broker_name)


def danger_of(node: BrokerNode) -> Danger:
    """Return the confirmation for a promotion, with the amount of data only the old master has."""
    ends = {
        each.node.broker_id: each.max_offset
        for each in gateway().cluster.replication().values()
        if not isinstance(each, GatewayError) and each.node.broker_name == node.broker_name
    }
    master, own = ends.get(MASTER_ID), ends.get(node.broker_id)
    return Danger(
        title=_("Promote %(address)s to master of %(name)s?")
        % {"address": node.address, "name": node.broker_name},
        text=_(
            "The slave starts accepting messages. When the old master returns, it becomes the "
            "slave. Messages that exist only on the old master are saved separately there and are "
            "no longer visible to consumers."
        ),
        effects=(
            Effect(
                _("CommitLog bytes that only the master has"),
                None if master is None or own is None else max(0, master - own),
                _("as both currently report"),
                is_bad=True,
            ),
        ),
        choices=(
            Choice(
                "force",
                _(
                    "Promote even if the old master may still be running. Consumers won't receive "
                    "messages that it accepts from now on."
                ),
            ),
        ),
        undo=_(
            "You can't undo this directly, but you can promote the old master again once it's "
            "in sync."
        ),
        action=_("Promote"),
        keep=_("Cancel"),
        address=reverse("brokers:promote", args=[node.broker_name, node.broker_id]),
        back=reverse("brokers:detail", args=[node.broker_name, node.broker_id]),
        name=node.address,
        icon="triangle-alert",
        refusal=_("This broker is already the master.") if node.is_master else "",
    )


def apply_promotion(request: HttpRequest, node: BrokerNode, *, is_forced: bool) -> Promoted:
    """Promote a slave to master under an audit log entry.

    Raises:
        GatewayError: the slave rejected it.
    """
    subject = f"{node.broker_name}:{node.broker_id} {node.address}"
    with change(request, "broker.promote", subject, before={"force": is_forced}) as entry:
        done = gateway().cluster.promote(node, force=is_forced)
        entry.after = {
            "epoch": done.epoch,
            "start_offset": str(done.start_offset),
            "broker_role": done.broker_role,
        }
    return done


def promotion_message(node: BrokerNode, done: Promoted) -> str:
    """Return the message after a promotion."""
    sentence = _("%(address)s is now the master of %(name)s, in epoch %(epoch)d.")
    return sentence % {
        "address": node.address,
        "name": node.broker_name,
        "epoch": done.epoch,
    }


def visible(request: HttpRequest, rows: Sequence[OfTopic]) -> tuple[list[OfTopic], int]:
    """Return the rows whose topic's messages the user may see, and how many others there are."""
    rights = rights_on(request)
    shown = [each for each in rows if rights.may(Action.SEE, each.topic)]
    return shown, len(rows) - len(shown)
