"""Change a key of a running broker's configuration, and undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from console.broker.brokers.services import broker_node
from console.broker.configs.plan import Plan, State
from console.gateway.access import gateway
from console.lib.missing import MissingError
from console.people.audit.record import change

if TYPE_CHECKING:
    from console.gateway.answers import BrokerNode
    from console.gateway.configuration import BrokerKey
    from console.people.audit.models import Entry

KIND, ACTION = "broker", "broker.configure"


def undoing(done: Entry) -> tuple[BrokerNode, str, Plan]:
    """Return the broker, the key and the plan for undoing a change."""
    broker_name, _colon, number = done.subject.rpartition(":")
    node = broker_node(broker_name, int(number))
    key = key_in(done.before, node)
    now = state(node, key, key_of(node, key).value)
    return node, key, Plan(done.subject, done.after, now, done.before, done.pk, kind=KIND)


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
