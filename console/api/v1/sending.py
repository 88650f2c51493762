"""Sending: messages, transactions, and deliveries to one consumer."""

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
from console.api.requestbody import json_object, valid_form
from console.api.schemas import Done, DryRun, Number, PlanOut, Text
from console.gateway.access import gateway
from console.lib.stored import BrokerQueue
from console.messages.browse.services import stored_at
from console.messages.sending.forms import SendForm
from console.messages.sending.models import HalfMessage
from console.messages.sending.services import (
    deliver_message,
    end_transaction,
    forget_transaction,
    outcome_in_words,
    send_all,
)


class SentOut(Schema):
    """A stored message and its location."""

    topic: str
    queue: str
    queue_offset: int
    offset_msg_id: str
    uniq_key: str


class SendingOut(Schema):
    """The result of sending; `problem` says why fewer than `wanted` messages were stored."""

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
    """A consumer's result for a delivered message."""

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
    """Send a message, or many from one template; `is_half` starts a transaction."""
    topics = gateway().topics.all()
    form = valid_form(request, lambda data: SendForm(data, topics=topics))
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
    """List transactions started here that have no outcome."""
    rights = rights_on(request).of_owner
    return [each for each in HalfMessage.objects.all() if rights.may(Action.SEND, each.topic)]


OUTCOME = {
    "type": "object",
    "additionalProperties": False,
    "required": ["commit"],
    "properties": {"commit": {"type": "boolean", "description": "True commits, false rolls back."}},
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
    is_commit = json_object(request, ("commit",)).get("commit") is True
    end_transaction(request, half, is_commit=is_commit)
    return Done(detail=outcome_in_words(is_commit=is_commit))


@operation(
    "DELETE",
    "/transactions/{pk}",
    area="messages",
    need=Action.SEND,
    pages=("sending:forget",),
    response=Done,
)
def transaction_forget(request: HttpRequest, pk: Number) -> Done:
    """Remove a transaction from the list; the broker then checks or discards it as usual."""
    half = get_object_or_404(HalfMessage, pk=pk)
    forget_transaction(request, half)
    return Done(detail=_("The transaction was removed from the list."))


@operation(
    "POST",
    "/deliveries/{broker_name}/{queue_id}/{offset}/{path:topic}",
    area="dead-letters",
    need=Action.REPLAY,
    varying="messages:read for messages that aren't dead letters",
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
    """Deliver a message to one consumer of a group, without moving offsets."""
    require(request, Action.REPLAY, group)
    found = stored_at(topic, BrokerQueue(broker_name, queue_id), offset)
    return deliver_message(request, found, group, client_id)
