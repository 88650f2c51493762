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
from console.gateway.answers import TopicKind
from console.gateway.errors import BrokerDownError, GatewayError
from console.lib.bodies import decoded
from console.lib.missing import MissingError
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
from console.messages.sending.services import (
    deliver_message,
    end_transaction,
    forget_transaction,
    outcome_in_words,
    send_all,
    user_of,
)
from console.observe.history.range import whole
from console.people.audit.record import change
from console.people.masking.access import unmasked

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.outgoing import Sending
    from console.lib.stored import StoredMessage

HALVES_SHOWN = 50
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


@action_for(Action.SEND)
def forget(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a transaction from the list; the broker treats it like any abandoned one."""
    half = get_object_or_404(HalfMessage, pk=pk)
    forget_transaction(request, half)
    return redirect(f"{reverse('sending:send')}?{urlencode({'topic': half.topic})}")


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
