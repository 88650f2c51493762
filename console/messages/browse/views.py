"""The page of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.shortcuts import redirect, render
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.actions import Action
from console.accounts.permissions import action_for, page
from console.accounts.rights import rights_on
from console.gateway.errors import GatewayError
from console.lib.bodies import Body, body_of
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.messages.browse.columns import message_url
from console.messages.browse.readers import Readers, readers_of
from console.messages.browse.services import stored_at, unmasked_message
from console.ui.copies import CopyText, api_texts, mqadmin, mqadmin_text

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.lib.stored import StoredMessage

RANGE, SHORTEST_MS = "15m", 1
MESSAGES_A_PAGE = 100
NAME_CHARACTERS_MAX = 255
BODY_FORMS = {
    "json": "JSON",
    "tree": gettext_lazy("Tree"),
    "text": gettext_lazy("Text"),
    "bytes": gettext_lazy("Bytes"),
}


@page
def message(
    request: HttpRequest, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Show a message, with its body for people who can read it."""
    found = stored_at(topic, BrokerQueue(broker_name, queue_id), offset)
    return redirect(message_url(found)) if found.is_half else shown(request, found)


@action_for(Action.UNMASK, "topic")
def unmask(
    request: HttpRequest, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Show a message's masked values once; the audit log records who saw which."""
    found = unmasked_message(request, topic, BrokerQueue(broker_name, queue_id), offset)
    return shown(request, found, is_unmasked=True)


def shown(request: HttpRequest, found: StoredMessage, *, is_unmasked: bool = False) -> HttpResponse:
    """Render the page of a message."""
    topic = found.topic
    readers, readers_problem = asked_readers(found)
    context = {
        "message": found,
        "is_unmasked": is_unmasked,
        "body": (
            shown_body(found, request.GET.get("as", ""))
            if rights_on(request).may(Action.READ, topic)
            else None
        ),
        "body_forms": BODY_FORMS,
        "readers": readers,
        "readers_problem": readers_problem,
        "copies": copies_of(found),
        "near": urlencode(
            {"topic": topic}
            | {"from": str(found.store_ms - 30_000), "to": str(found.store_ms + 30_000)}
        ),
        "read_at_ms": now_ms(),
    }
    return render(request, "browse/message.html", context)


def shown_body(found: StoredMessage, form: str) -> Body | None:
    return None if found.body is None else body_of(found.body, is_cut=found.is_cut, form=form)


def asked_readers(found: StoredMessage) -> tuple[Readers | None, GatewayError | None]:
    """Return who consumed a message, or why that's unknown; the page shows the message anyway."""
    try:
        return readers_of(found), None
    except GatewayError as error:
        return None, error


def copies_of(found: StoredMessage) -> list[CopyText]:
    """Return commands that find the message elsewhere."""
    asked = [
        mqadmin("queryMsgById", {"i": found.offset_msg_id}),
        mqadmin(
            "queryMsgByOffset",
            {
                "t": found.topic,
                "b": found.broker_name,
                "i": found.queue_id,
                "o": found.queue_offset,
            },
        ),
    ]
    place = (found.broker_name, found.queue_id, found.queue_offset, found.topic)
    copies = [mqadmin_text(asked), *api_texts("message", *place)]
    copies.append(CopyText(_("Offset message ID"), found.offset_msg_id))
    if found.uniq_key:
        copies.append(CopyText(_("Unique key"), found.uniq_key))
    return copies
