"""Pages of connected clients: the list of producers, and disconnecting a client."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.actions import Action
from console.accounts.permissions import form_for, page
from console.accounts.rights import rights_on
from console.broker.clients.disconnecting import GROUPS, close_connections, danger_of, place_of
from console.broker.clients.producers import words_of
from console.gateway.access import gateway
from console.gateway.connections import INNER_PRODUCER_GROUP
from console.gateway.errors import RequestFailedError
from console.lib.lists import Chip, page_of, search_text
from console.lib.moment import now_ms
from console.lib.tables import Column, Table
from console.ui.danger import ask, confirmation, reason_of

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.connections import Producer

OWN, INNER = "own", "inner"
COLUMNS = (
    Column("client", gettext_lazy("Client"), is_sorted=True),
    Column("group", gettext_lazy("Producer group"), is_sorted=True, is_fact=True),
    Column("address", gettext_lazy("Address"), is_sorted=True),
    Column("language", gettext_lazy("Language"), is_sorted=True),
    Column("version", gettext_lazy("Version"), is_sorted=True, is_fact=True),
    Column("brokers", gettext_lazy("Brokers")),
    Column("heartbeat", gettext_lazy("Last heartbeat"), is_sorted=True),
    Column("act", gettext_lazy("Disconnect"), css="actions"),
)


def is_inner(producer: Producer) -> bool:
    return producer.group == INNER_PRODUCER_GROUP


@page
def producers(request: HttpRequest) -> HttpResponse:
    """Show clients that registered as producers."""
    query = search_text(request)
    kind = INNER if request.GET.get("kind") == INNER else OWN
    every = gateway().groups.producers()
    matching = [each for each in every if query.lower() in words_of(each)]
    may_disconnect = rights_on(request).may_somewhere(Action.DISCONNECT)
    table = Table(request, COLUMNS if may_disconnect else COLUMNS[:-1], sort="group")
    ordered = table.sorted(
        [each for each in matching if is_inner(each) == (kind == INNER)],
        {
            "client": lambda each: each.client_id.lower(),
            "group": lambda each: (each.group.lower(), each.client_id.lower()),
            "address": lambda each: each.client_addr,
            "language": lambda each: each.language,
            "version": lambda each: each.version,
            "heartbeat": lambda each: each.last_heartbeat_ms,
        },
    )
    shown = page_of(request, ordered)
    context = {
        "query": query,
        "kind": kind,
        "is_narrowed": bool(every),
        "chips": [
            Chip(OWN, _("Producers"), sum(not is_inner(each) for each in matching)),
            Chip(INNER, _("Client-internal"), sum(is_inner(each) for each in matching)),
        ],
        "table": table,
        "page": shown,
        "rows": shown.object_list,
        "read_at_ms": now_ms(),
    }
    return render(request, "clients/producers.html", context)


@form_for(Action.DISCONNECT, "group")
def disconnect(request: HttpRequest, group: str) -> HttpResponse:
    """Disconnect a client after confirmation."""
    client_id = request.GET.get("client", "")
    danger = danger_of(group, client_id)
    if danger.refusal:
        return ask(request, danger)
    question = confirmation(request, danger)
    if question is not None:
        return question
    shown = [line for line in request.POST.get(GROUPS, "").splitlines() if line]
    try:
        _entry, closed = close_connections(request, group, client_id, shown, reason_of(request))
    except RequestFailedError as error:
        # The client joined other groups after the page was shown, so ask again with all of them.
        return ask(request, replace(danger, problem=error.what))
    sentence = _("%(client)s was disconnected. It reconnects automatically.")
    messages.success(request, sentence % {"client": client_id})
    return redirect(place_of(group, closed))
