"""The page of name servers: registered brokers, a topic's route, the key-value table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, page
from console.broker.brokers.forms import NAME_CHARACTERS_MAX
from console.broker.brokers.name_server_reports import name_server_reports
from console.broker.brokers.write_permission import (
    REVOKED,
    danger_of,
    done_message,
    set_writable,
    undoable,
)
from console.gateway.errors import GatewayError
from console.gateway.naming import ORDER_TOPIC_CONFIG
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.people.audit.undo import offer_undo
from console.ui.danger import ask, confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.people.audit.models import Entry


@page
def name_servers(request: HttpRequest) -> HttpResponse:
    """Show the report of each name server."""
    topic = request.GET.get("topic", "").strip()[:NAME_CHARACTERS_MAX]
    asked = request.GET.get("namespace", "").strip()[:NAME_CHARACTERS_MAX]
    namespace = asked or ORDER_TOPIC_CONFIG
    context = {
        "reports": name_server_reports(topic, namespace),
        "topic": topic,
        "namespace": namespace,
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/name_servers.html", context)


@administrators_form
def writable(request: HttpRequest, broker_name: str) -> HttpResponse:
    """Grant or revoke a broker's write permission on every name server after confirmation."""
    known = {each.broker_name for each in name_server_reports("", ORDER_TOPIC_CONFIG).brokers}
    if broker_name not in known:
        raise MissingError(_("No broker named %(name)s is registered.") % {"name": broker_name})
    is_writable = (request.POST.get("do") or request.GET.get("do", "")) == "add"
    question = confirmation(request, danger_of(broker_name, is_writable=is_writable))
    return question or carry_out(request, broker_name, is_writable=is_writable)


@administrators_form
def write_undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Preview undoing a change of write permission; a POST undoes it."""
    done = undoable(entry)
    is_writable = done.action == REVOKED
    danger = danger_of(done.subject, is_writable=is_writable, undoes=done)
    if danger.refusal:
        return ask(request, danger)
    question = confirmation(request, danger)
    return question or carry_out(request, done.subject, is_writable=is_writable, undoes=done)


def carry_out(
    request: HttpRequest, broker_name: str, *, is_writable: bool, undoes: Entry | None = None
) -> HttpResponse:
    try:
        entry = set_writable(request, broker_name, is_writable=is_writable, undoes=undoes)
    except GatewayError as error:
        messages.error(request, f"{error.what} {error.advice}".strip())
    else:
        offer_undo(request, done_message(entry), entry)
    return redirect("brokers:name-servers")
