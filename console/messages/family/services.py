"""A message's history, from all sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from console.accounts.rights import OBSERVER_RIGHTS, acts_for
from console.gateway.access import gateway
from console.gateway.answers import Replication
from console.gateway.errors import GatewayError
from console.messages.browse.readers import readers_of
from console.messages.family.clients import steps_of_clients
from console.messages.family.recorder import recorded_events, with_recorded
from console.messages.family.relatives import Relatives, relatives_of
from console.messages.family.steps import Step, steps_from_log

if TYPE_CHECKING:
    from console.lib.stored import StoredMessage


class Family(NamedTuple):
    """A message with its records and steps."""

    relatives: Relatives
    steps: list[Step]

    @property
    def root(self) -> StoredMessage:
        return self.relatives.root


def family_of(asked: StoredMessage) -> Family:
    """Return the history of a stored message from all sources.

    People who can see one record also see the locations of the others; opening those checks rights.
    """
    with acts_for(lambda: OBSERVER_RIGHTS):
        relatives = relatives_of(asked)
        try:
            readings = readers_of(relatives.root).rows
        except GatewayError as error:
            relatives.problems.append(error.what)
            readings = ()
        from_log = steps_from_log(relatives, readings, replication_of(relatives.root))
        steps = [
            *steps_of_clients(relatives),
            *with_recorded(from_log, recorded_events(relatives)),
        ]
    return Family(relatives, steps)


def replication_of(message: StoredMessage) -> Replication | None:
    """Return the slaves' state as reported by the message's master, or None."""
    try:
        answers = gateway().cluster.replication()
    except GatewayError:
        return None
    for answer in answers.values():
        if (
            isinstance(answer, Replication)
            and answer.is_master
            and answer.node.broker_name == message.broker_name
        ):
            return answer
    return None
