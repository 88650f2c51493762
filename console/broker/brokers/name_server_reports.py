"""The combined reports of all name servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.naming import NameServerView, RouteQueues

if TYPE_CHECKING:
    from collections.abc import Iterable


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
