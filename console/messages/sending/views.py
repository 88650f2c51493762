"""Views of sending: the form, ending a transaction, delivering a message to one client."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import messages
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from console.accounts.actions import Action
from console.accounts.permissions import action_for, form_for, require
from console.accounts.rights import rights_on
from console.gateway.access import gateway
from console.gateway.answers import MessageQueue, TopicKind
from console.gateway.errors import BrokerDownError, GatewayError
from console.gateway.outgoing import Sent
from console.lib.bodies import decoded
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.messages.browse.columns import NAMES_OFFERED_MAX, message_url
from console.messages.sending.forms import (
    BASE64,
    BODY_CHARACTERS_MAX,
    RESERVED,
    TEXT,
    SendForm,
    pairs_of,
)
from console.messages.sending.models import HalfMessage, LastSent
from console.observe.history.range import whole
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.people.masking.access import unmasked

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

    from console.gateway.outgoing import Delivered, Sending
    from console.lib.stored import StoredMessage

PLACES_KEPT = 100
REMEMBERED_MAX = 100
REMEMBERED_CHARACTERS_MAX = 65_536
HALVES_SHOWN = 50
AUDITED_IDS = 20
RECENT_SHOWN = 10


@form_for(Action.SEND)
def send(request: HttpRequest) -> HttpResponse:
    """Show the form, filled in from the topic's last message or from another message."""
    topics = gateway().topics.all()
    asked = request.GET.get("topic", "").strip()
    last = LastSent.objects.filter(user=user_of(request), topic=asked).first()
    if request.method == "POST":
        form = SendForm(request.POST, topics=topics)
        if form.is_valid():
            return send_form(request, form)
    else:
        form = SendForm(initial=initial_of(request, asked, last), topics=topics)
    names = [name for name, each in topics.items() if each.kind is TopicKind.NORMAL]
    context: dict[str, Any] = {
        "form": form,
        "names": names[:NAMES_OFFERED_MAX],
        "topic": asked if asked in topics else "",
        "last": last,
        "halves": [
            each
            for each in HalfMessage.objects.all()
            if rights_on(request).may(Action.SEND, each.topic)
        ][:HALVES_SHOWN],
        "recent": LastSent.objects.filter(user=user_of(request))[:RECENT_SHOWN],
    }
    return render(request, "sending/form.html", context)


def user_of(request: HttpRequest) -> User:
    user = request.user
    assert user.is_authenticated  # the decorators require it
    return user


def initial_of(request: HttpRequest, topic: str, last: LastSent | None) -> dict[str, Any]:
    """Return the form's initial values."""
    if "copy" in request.GET:
        require(request, Action.READ, topic)
        return fields_to_resend(request, topic, request.GET["copy"])
    if last is not None:
        return {**last.fields, "topic": topic, "is_half": False}
    return {"topic": topic, "encoding": TEXT, "delay_level": 0, "count": 1}


def fields_to_resend(request: HttpRequest, topic: str, place: str) -> dict[str, Any]:
    """Return the fields of a whole message for resending."""
    queue, _colon, offset = place.rpartition(":")
    number = whole(offset)
    try:
        found = None if number is None else whole_at(request, topic, queue, number)
    except ValueError:
        found = None
    if found is None:
        raise MissingError(_("The message to resend doesn't exist or has expired."))
    if found.body is None or found.is_cut:
        raise MissingError(_("The message body can't be read completely, so it can't be resent."))
    return {"topic": topic, "delay_level": 0, "count": 1} | carried_by(found, found.body)


def whole_at(request: HttpRequest, topic: str, queue: str, offset: int) -> StoredMessage | None:
    """Return a whole message; unmasking it requires the permission and is audited."""
    place = BrokerQueue.parse(queue)
    found = gateway().browse.at(topic, place, offset, is_whole=True)
    if found is None or not found.masked_by:
        return found
    require(request, Action.UNMASK, topic)
    after = {"queue": queue, "offset": str(offset), "rules": list(found.masked_by)}
    with change(request, "message.unmask", topic, after=after), unmasked():
        return gateway().browse.at(topic, place, offset, is_whole=True)


def carried_by(found: StoredMessage, body: bytes) -> dict[str, str]:
    text = decoded(body, lacking_max=0)
    is_text = text is not None and "\r" not in text
    shown = str(text) if is_text else base64.b64encode(body).decode()
    if len(shown) > BODY_CHARACTERS_MAX:
        raise MissingError(_("The body is too large for this form (limit 1 MiB)."))
    own = {name: value for name, value in found.properties.items() if name not in RESERVED}
    properties = "\n".join(f"{name}={value}" for name, value in own.items())
    if pairs_of(properties) != list(own.items()):
        raise MissingError(
            _(
                "This message can't be resent from here because it has a property that "
                "contains a line break, starts or ends with a space, or has = in its name."
            )
        )
    return {
        "body": shown,
        "encoding": TEXT if is_text else BASE64,
        "tag": found.tags,
        "keys": found.keys,
        "properties": properties,
    }


def send_form(request: HttpRequest, form: SendForm) -> HttpResponse:
    """Send the form's messages, and redirect to the form with their locations."""
    data = form.cleaned_data
    outcome = send_all(request, form)
    say(request, outcome, data["count"], is_half=data["is_half"])
    return redirect(f"{reverse('sending:send')}?{urlencode({'topic': data['topic']})}")


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


def say(request: HttpRequest, outcome: Sending, wanted: int, *, is_half: bool) -> None:
    count = len(outcome.sent)
    if outcome.problem is not None:
        messages.error(
            request,
            _("%(count)d of %(wanted)d messages sent. %(what)s")
            % {"count": count, "wanted": wanted, "what": outcome.problem.what}
            + (
                " " + _("It's unknown whether the next message was stored.")
                if isinstance(outcome.problem, BrokerDownError)
                else ""
            ),
        )
    elif is_half:
        messages.success(
            request, _("Transaction started. Its message won't be delivered until you commit it.")
        )
    else:
        messages.success(
            request,
            ngettext("%(count)d message sent.", "%(count)d messages sent.", count)
            % {"count": count},
        )


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


@action_for(Action.SEND)
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """Commit or roll back a transaction that was begun here."""
    half = get_object_or_404(HalfMessage, pk=pk)
    require(request, Action.SEND, half.topic)
    is_commit = request.POST.get("outcome") == "commit"
    try:
        end_transaction(request, half, is_commit=is_commit)
    except GatewayError as error:
        messages.error(request, error.what)
        return redirect(f"{reverse('sending:send')}?{urlencode({'topic': half.topic})}")
    messages.success(request, outcome_in_words(is_commit=is_commit))
    return redirect(f"{reverse('sending:send')}?{urlencode({'topic': half.topic})}")


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


@action_for(Action.SEND)
def forget(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a transaction from the list; the broker treats it like any abandoned one."""
    half = get_object_or_404(HalfMessage, pk=pk)
    forget_transaction(request, half)
    return redirect(f"{reverse('sending:send')}?{urlencode({'topic': half.topic})}")


def forget_transaction(request: HttpRequest, half: HalfMessage) -> None:
    """Remove a transaction from the list, with an audit entry."""
    require(request, Action.SEND, half.topic)
    with change(request, "message.forget", half.topic, after={"id": half.offset_msg_id}):
        half.delete()


@action_for(Action.REPLAY)
def deliver(
    request: HttpRequest, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Deliver a message to one consumer of a group, and show the result."""
    group, _at, client_id = request.POST.get("member", "").partition(" ")
    require(request, Action.REPLAY, group)
    found = gateway().browse.at(topic, BrokerQueue(broker_name, queue_id), offset)
    if found is None:
        raise MissingError(_("The message doesn't exist or has expired."))
    try:
        result = deliver_message(request, found, group, client_id)
    except GatewayError as error:
        messages.error(request, error.what)
        return redirect(message_url(found))
    values = {
        "client": client_id,
        "result": result.result,
        "spent": "" if result.spent_ms is None else f", {result.spent_ms} ms",
        "remark": result.remark,
    }
    if result.is_consumed:
        messages.success(
            request, _("%(client)s consumed the message (%(result)s%(spent)s).") % values
        )
    else:
        messages.error(
            request,
            _("%(client)s didn't consume the message: %(result)s%(spent)s. %(remark)s") % values,
        )
    return redirect(message_url(found))


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
