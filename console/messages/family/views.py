"""The page of a message's history."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.http import Http404, HttpResponse
from django.shortcuts import render

from console.accounts.permissions import page
from console.accounts.rights import OBSERVER_RIGHTS, acts_for
from console.gateway.access import gateway
from console.gateway.answers import Replication
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.messages.browse.readers import readers_of
from console.messages.browse.views import stored_at
from console.messages.family.clients import comparisons, steps_of_clients
from console.messages.family.otlp import json_lines_of, otlp_of
from console.messages.family.recorder import recorded_events, with_recorded
from console.messages.family.relatives import relatives_of
from console.messages.family.steps import CERTAINTIES, steps_from_log
from console.messages.family.waterfall import waterfall_of

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.lib.stored import StoredMessage
    from console.messages.family.relatives import Relatives
    from console.messages.family.steps import Step


class Family(NamedTuple):
    """A message with its records and steps."""

    relatives: Relatives
    steps: list[Step]

    @property
    def root(self) -> StoredMessage:
        return self.relatives.root


@page
def family(
    request: HttpRequest, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Show the history of a message from any of its records."""
    asked = stored_at(topic, BrokerQueue(broker_name, queue_id), offset)
    found = family_of(asked)
    context = {
        "asked": asked,
        "message": found.root,
        "relatives": found.relatives,
        "waterfall": waterfall_of(found.steps),
        "comparisons": comparisons(found.relatives),
        "certainties": CERTAINTIES.items(),
        "read_at_ms": now_ms(),
    }
    return render(request, "family/family.html", context)


EXPORTS = {"otlp": "application/json", "jsonl": "application/x-ndjson"}


@page
def export(
    request: HttpRequest, kind: str, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Return the history as OTLP JSON or as JSON lines, without message bodies."""
    if kind not in EXPORTS:
        raise Http404
    found = family_of(stored_at(topic, BrokerQueue(broker_name, queue_id), offset))
    text = otlp_of(found.relatives, found.steps) if kind == "otlp" else json_lines_of(found.steps)
    answer = HttpResponse(text, content_type=EXPORTS[kind])
    suffix = "json" if kind == "otlp" else kind
    answer["Content-Disposition"] = f'attachment; filename="family-{queue_id}-{offset}.{suffix}"'
    return answer


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
