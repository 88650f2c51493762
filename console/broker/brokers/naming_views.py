"""The page of name servers: registered brokers, a topic's route, the key-value table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, page
from console.broker.brokers.kv_views import NAME_CHARACTERS_MAX
from console.broker.brokers.write_permission import (
    REVOKED,
    danger_of,
    done_message,
    set_writable,
    undoable,
)
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.naming import ORDER_TOPIC_CONFIG, NameServerView
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.people.audit.undo import offer_undo
from console.ui.danger import ask, confirmation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import HttpRequest, HttpResponse

    from console.gateway.naming import RouteQueues
    from console.people.audit.models import Entry


@dataclass(frozen=True, slots=True)
class Registered:
    """A broker, and the name servers where it isn't registered."""

    broker_name: str
    broker_id: int
    address: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry with the name servers that have each of its values."""

    key: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class NameServerReports:
    """The combined reports of all name servers."""

    servers: tuple[str, ...]
    silent: dict[str, GatewayError]
    brokers: list[Registered]
    routes: list[tuple[str, tuple[RouteQueues, ...] | None]]
    entries: list[StoredEntry]


def name_server_reports(topic: str, namespace: str) -> NameServerReports:
    """Ask all name servers.

    Raises:
        GatewayError: no name server responded.
    """
    answers = gateway().naming.views(topic, namespace)
    views = {a: each for a, each in answers.items() if isinstance(each, NameServerView)}
    silent = {a: each for a, each in answers.items() if isinstance(each, GatewayError)}
    if not views and silent:
        raise next(iter(silent.values()))
    nodes = {node: None for view in views.values() for node in view.nodes}
    keys = {key: None for view in views.values() for key in view.entries}
    return NameServerReports(
        servers=tuple(answers),
        silent=silent,
        brokers=[
            Registered(
                node.broker_name,
                node.broker_id,
                node.address,
                tuple(a for a, view in views.items() if node not in view.nodes),
            )
            for node in sorted(nodes, key=lambda each: (each.broker_name, each.broker_id))
        ],
        routes=[(a, view.route) for a, view in views.items()] if topic else [],
        entries=[
            StoredEntry(key, by_value((a, view.entries.get(key)) for a, view in views.items()))
            for key in sorted(keys)
        ],
    )


def by_value(pairs: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for address, value in pairs:
        text = "-" if value is None else value
        found[text] = (*found.get(text, ()), address)
    return tuple(found.items())


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
