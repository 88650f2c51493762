"""The page of name servers: who is registered with each, a topic's route, the key-value table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, page
from console.audit.undo import tell
from console.brokers.kv_views import NAME_CHARACTERS_MAX
from console.brokers.write_permission import TAKEN, danger_of, made_writable, said, undoable
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.moment import now_ms
from console.gateway.naming import ORDER_TOPIC_CONFIG, NameServerView
from console.ui.danger import ask, unanswered
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import HttpRequest, HttpResponse

    from console.audit.models import Entry
    from console.gateway.naming import RouteQueues


@dataclass(frozen=True, slots=True)
class Registered:
    """A broker, and at which name servers it is not registered."""

    broker_name: str
    broker_id: int
    address: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry: its values, with who has each; more than one where name servers differ."""

    key: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What all name servers say together."""

    servers: tuple[str, ...]
    silent: dict[str, GatewayError]
    brokers: list[Registered]
    routes: list[tuple[str, tuple[RouteQueues, ...] | None]]
    entries: list[Kept]


def told(topic: str, namespace: str) -> Told:
    """Ask all name servers.

    Raises:
        GatewayError: none of them answers.
    """
    answers = gateway().naming.views(topic, namespace)
    views = {a: each for a, each in answers.items() if isinstance(each, NameServerView)}
    silent = {a: each for a, each in answers.items() if isinstance(each, GatewayError)}
    if not views and silent:
        raise next(iter(silent.values()))
    nodes = {node: None for view in views.values() for node in view.nodes}
    keys = {key: None for view in views.values() for key in view.entries}
    return Told(
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
            Kept(key, by_value((a, view.entries.get(key)) for a, view in views.items()))
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
    """Show what each name server says."""
    topic = request.GET.get("topic", "").strip()[:NAME_CHARACTERS_MAX]
    asked = request.GET.get("namespace", "").strip()[:NAME_CHARACTERS_MAX]
    namespace = asked or ORDER_TOPIC_CONFIG
    context = {
        "told": told(topic, namespace),
        "topic": topic,
        "namespace": namespace,
        "read_at_ms": now_ms(),
    }
    return render(request, "brokers/name_servers.html", context)


@administrators_form
def writable(request: HttpRequest, broker_name: str) -> HttpResponse:
    """Give or take a broker's write permission at every name server, once that is confirmed."""
    known = {each.broker_name for each in told("", ORDER_TOPIC_CONFIG).brokers}
    if broker_name not in known:
        raise MissingError(_("No broker named %(name)s is registered.") % {"name": broker_name})
    is_writable = (request.POST.get("do") or request.GET.get("do", "")) == "add"
    question = unanswered(request, danger_of(broker_name, is_writable=is_writable))
    return question or carry_out(request, broker_name, is_writable=is_writable)


@administrators_form
def write_undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Show what undoing a change of write permission would do; a POST does it where it is left."""
    done = undoable(entry)
    is_writable = done.action == TAKEN
    danger = danger_of(done.subject, is_writable=is_writable, undoes=done)
    if danger.refusal:
        return ask(request, danger)
    question = unanswered(request, danger)
    return question or carry_out(request, done.subject, is_writable=is_writable, undoes=done)


def carry_out(
    request: HttpRequest, broker_name: str, *, is_writable: bool, undoes: Entry | None = None
) -> HttpResponse:
    try:
        entry = made_writable(request, broker_name, is_writable=is_writable, undoes=undoes)
    except GatewayError as error:
        messages.error(request, f"{error.what} {error.advice}".strip())
    else:
        tell(request, said(entry), entry)
    return redirect("brokers:name-servers")
