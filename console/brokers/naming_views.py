"""The page of name servers: who is registered with each, a topic's route, the key-value table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_form, page
from console.audit.record import change
from console.brokers.kv_views import NAME_CHARACTERS_MAX
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.moment import now_ms
from console.gateway.naming import ORDER_TOPIC_CONFIG, NameServerView
from console.ui.danger import Danger, unanswered
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import HttpRequest, HttpResponse

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
    question = unanswered(request, danger_of_writing(broker_name, is_writable=is_writable))
    if question is not None:
        return question
    try:
        count = made_writable(request, broker_name, is_writable=is_writable)
    except GatewayError as error:
        messages.error(request, f"{error.what} {error.advice}".strip())
    else:
        said = (
            _("Producers are sent to %(broker)s again: %(count)d topics.")
            if is_writable
            else _("Producers leave %(broker)s: %(count)d topics.")
        )
        messages.success(request, said % {"broker": broker_name, "count": count})
    return redirect("brokers:name-servers")


def danger_of_writing(broker_name: str, *, is_writable: bool) -> Danger:
    values = {"broker": broker_name}
    if is_writable:
        title = _("Give %(broker)s its write permission back?") % values
        text = _("Name servers name it to producers again, in the routes of all its topics.")
        action = _("Add write permission")
    else:
        title = _("Take %(broker)s out of the routes of producers?") % values
        text = _(
            "Name servers no longer name it to producers; they send elsewhere within half a "
            "minute, where another broker has the topic. Consumers read on."
        )
        action = _("Wipe write permission")
    return Danger(
        title=title,
        text=text,
        undo=_("It is the name servers' memory: a broker's restart or changed topic undoes it."),
        action=action,
        keep=_("Cancel"),
        address=reverse("brokers:write-perm", args=[broker_name]),
        back=reverse("brokers:name-servers"),
        icon="git-branch",
        hidden={"do": "add" if is_writable else "wipe"},
    )


def made_writable(request: HttpRequest, broker_name: str, *, is_writable: bool) -> int:
    action = "name-server.add-write" if is_writable else "name-server.wipe-write"
    with change(request, action, broker_name) as entry:
        count = gateway().naming.set_writable(broker_name, is_writable=is_writable)
        entry.after = {"topics": count}
    return count
