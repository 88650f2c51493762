"""Sending: messages, transactions, a message for one member."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _, ngettext
from ninja import Schema
from pydantic import Field

from console.accounts.actions import Action
from console.accounts.permissions import require
from console.accounts.rights import rights_on
from console.api.operations import operation
from console.api.requestbody import filled, given
from console.api.schemas import Done, DryRun, Number, PlanOut, Text
from console.browse.views import stored_at
from console.gateway.access import gateway
from console.gateway.answers import BrokerQueue
from console.sending.forms import SendForm
from console.sending.models import HalfMessage
from console.sending.views import delivered, ended, ended_in_words, forgotten, send_all


class SentOut(Schema):
    """A message that is stored, and where."""

    topic: str
    queue: str
    queue_offset: int
    offset_msg_id: str
    uniq_key: str


class SendingOut(Schema):
    """What came of sending; `problem` says why the rest of `wanted` is not stored."""

    sent: list[SentOut]
    wanted: int
    problem: str


class TransactionOut(Schema):
    """A transaction without an outcome."""

    id: int
    topic: str
    keys: str
    by: str
    made_ms: int
    offset_msg_id: str


class DeliveredOut(Schema):
    """What a member made of a message."""

    result: str
    remark: str
    is_consumed: bool
    spent_ms: int | None


@operation(
    "POST",
    "/messages",
    area="messages",
    need=Action.SEND,
    pages=("sending:send",),
    form=SendForm,
    response=SendingOut | PlanOut,
)
def message_send(request: HttpRequest, dry_run: DryRun = False) -> Any:
    """Send a message, or many made of one template; as a transaction with `is_half`."""
    topics = gateway().topics.all()
    form = filled(request, lambda data: SendForm(data, topics=topics))
    data = form.cleaned_data
    require(request, Action.SEND, data["topic"])
    if dry_run:
        title = ngettext(
            "Send %(count)d message to %(topic)s",
            "Send %(count)d messages to %(topic)s",
            data["count"],
        )
        return PlanOut(title=title % {"count": data["count"], "topic": data["topic"]})
    outcome = send_all(request, form)
    return {
        "sent": [
            {
                "topic": each.queue.topic,
                "queue": f"{each.queue.broker_name}:{each.queue.queue_id}",
                "queue_offset": each.queue_offset,
                "offset_msg_id": each.offset_msg_id,
                "uniq_key": each.uniq_key,
            }
            for each in outcome.sent
        ],
        "wanted": data["count"],
        "problem": "" if outcome.problem is None else outcome.problem.what,
    }


@operation(
    "GET",
    "/transactions",
    area="messages",
    need=Action.SEND,
    pages=("sending:send",),
    response=list[TransactionOut],
)
def transactions(request: HttpRequest) -> list[HalfMessage]:
    """List the transactions that were begun here and have no outcome."""
    rights = rights_on(request).of_owner
    return [each for each in HalfMessage.objects.all() if rights.may(Action.SEND, each.topic)]


OUTCOME = {
    "type": "object",
    "additionalProperties": False,
    "required": ["commit"],
    "properties": {"commit": {"type": "boolean", "description": "Else it is rolled back."}},
}


@operation(
    "POST",
    "/transactions/{pk}/end",
    area="messages",
    need=Action.SEND,
    pages=("sending:end",),
    body=OUTCOME,
    response=Done,
)
def transaction_end(request: HttpRequest, pk: Number) -> Done:
    """Commit or roll back a transaction."""
    half = get_object_or_404(HalfMessage, pk=pk)
    require(request, Action.SEND, half.topic)
    is_commit = given(request, ("commit",)).get("commit") is True
    ended(request, half, is_commit=is_commit)
    return Done(detail=ended_in_words(is_commit=is_commit))


@operation(
    "DELETE",
    "/transactions/{pk}",
    area="messages",
    need=Action.SEND,
    pages=("sending:forget",),
    response=Done,
)
def transaction_forget(request: HttpRequest, pk: Number) -> Done:
    """Take a transaction off the list; the broker does with it what it does with those left."""
    half = get_object_or_404(HalfMessage, pk=pk)
    forgotten(request, half)
    return Done(detail=_("The transaction is off the list."))


@operation(
    "POST",
    "/deliveries/{broker_name}/{queue_id}/{offset}/{path:topic}",
    area="dead-letters",
    need=Action.REPLAY,
    varying="messages:read for messages that are no dead letters",
    pages=("sending:deliver",),
    response=DeliveredOut,
)
def message_deliver(
    request: HttpRequest,
    broker_name: Text,
    queue_id: Number,
    offset: Number,
    topic: Text,
    group: Annotated[Text, Field(min_length=1)],
    client_id: Annotated[Text, Field(min_length=1)],
) -> Any:
    """Hand a message to one member of a group; no offset moves."""
    require(request, Action.REPLAY, group)
    found = stored_at(topic, BrokerQueue(broker_name, queue_id), offset)
    return delivered(request, found, group, client_id)
