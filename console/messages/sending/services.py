"""Send messages, end transactions and deliver to one client, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import require
from console.gateway.access import gateway
from console.gateway.answers import MessageQueue
from console.gateway.outgoing import Delivered, Sending, Sent
from console.lib.moment import now_ms
from console.messages.sending.models import HalfMessage, LastSent
from console.people.audit.models import Entry
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest

    from console.lib.stored import StoredMessage
    from console.messages.sending.forms import SendForm

PLACES_KEPT = 100
REMEMBERED_MAX = 100
REMEMBERED_CHARACTERS_MAX = 65_536
AUDITED_IDS = 20


def user_of(request: HttpRequest) -> User:
    user = request.user
    assert user.is_authenticated  # the decorators require it
    return user


def send_all(request: HttpRequest, form: SendForm) -> Sending:
    """Send the form's messages, and audit the result."""
    data = form.cleaned_data
    topic, outgoing = data["topic"], form.messages()
    require(request, Action.SEND, topic)
    after: dict[str, Any] = {
        "count": len(outgoing),
        "bytes": sum(len(each.body) for each in outgoing),
        "keys": data["keys"],
        "tag": data["tag"],
        "delay_level": data["delay_level"],
        "transaction": data["is_half"],
    }
    with change(request, "message.send", topic, after=after) as entry:
        outcome = gateway().sending.send(outgoing)
        entry.after = after | {
            "sent": len(outcome.sent),
            "ids": [each.offset_msg_id for each in outcome.sent[:AUDITED_IDS]],
        }
        if outcome.problem is not None:
            entry.outcome = Entry.Outcome.FAILED
            entry.remark = outcome.problem.what
    remember(request, form, outcome)
    if data["is_half"]:
        keep_halves(request, data["keys"], outcome.sent)
    return outcome


def remember(request: HttpRequest, form: SendForm, outcome: Sending) -> None:
    """Save the form's fields for the next time, without a body that is too large."""
    data = {name: value for name, value in form.cleaned_data.items() if name != "topic"}
    if len(str(data["body"])) > REMEMBERED_CHARACTERS_MAX:
        data["body"] = ""
    places = [
        [each.queue.broker_name, each.queue.queue_id, str(each.queue_offset)]
        for each in outcome.sent[:PLACES_KEPT]
        if not data["is_half"]
    ]
    user = user_of(request)
    LastSent.objects.update_or_create(
        user=user,
        topic=form.cleaned_data["topic"],
        defaults={
            "fields": data,
            "places": places,
            "count": len(outcome.sent),
            "sent_ms": now_ms(),
        },
    )
    mine = LastSent.objects.filter(user=user)
    mine.filter(pk__in=list(mine.values_list("pk", flat=True)[REMEMBERED_MAX:])).delete()


def keep_halves(request: HttpRequest, keys: str, halves: tuple[Sent, ...]) -> None:
    HalfMessage.objects.bulk_create(
        HalfMessage(
            topic=each.queue.topic,
            broker_name=each.queue.broker_name,
            queue_id=each.queue.queue_id,
            queue_offset=each.queue_offset,
            offset_msg_id=each.offset_msg_id,
            uniq_key=each.uniq_key,
            transaction_id=each.transaction_id,
            keys=keys[:255],
            by=request.user.get_username(),
            made_ms=now_ms(),
        )
        for each in halves
    )


def end_transaction(request: HttpRequest, half: HalfMessage, *, is_commit: bool) -> None:
    """Commit or roll back a transaction, with an audit entry, and remove it from the list.

    Raises:
        GatewayError: the broker refused.
    """
    after = {"outcome": "commit" if is_commit else "roll back", "id": half.offset_msg_id}
    queue = MessageQueue(half.topic, half.broker_name, half.queue_id)
    known = Sent(queue, half.queue_offset, half.offset_msg_id, half.uniq_key, half.transaction_id)
    with change(request, "message.end", half.topic, after=after):
        gateway().sending.end(known, is_commit=is_commit)
    half.delete()


def outcome_in_words(*, is_commit: bool) -> str:
    if is_commit:
        return _("Transaction committed. Consumers will receive its message.")
    return _("Transaction rolled back. Its message won't be delivered.")


def forget_transaction(request: HttpRequest, half: HalfMessage) -> None:
    """Remove a transaction from the list, with an audit entry."""
    require(request, Action.SEND, half.topic)
    with change(request, "message.forget", half.topic, after={"id": half.offset_msg_id}):
        half.delete()


def deliver_message(
    request: HttpRequest, found: StoredMessage, group: str, client_id: str
) -> Delivered:
    """Deliver a message to one consumer of a group, with an audit entry.

    Raises:
        GatewayError: the consumer isn't connected or doesn't respond.
    """
    after: dict[str, Any] = {
        "group": group,
        "client": client_id,
        "queue": str(found.queue),
        "offset": str(found.queue_offset),
    }
    with change(request, "message.deliver", found.topic, after=after) as entry:
        result = gateway().sending.deliver(found.broker_name, found.offset_msg_id, group, client_id)
        entry.after = after | {"result": result.result, "remark": result.remark}
        if not result.is_consumed:
            entry.outcome = Entry.Outcome.FAILED
            entry.remark = f"{result.result} {result.remark}".strip()
    return result
