"""Entries that lead to topics, groups and brokers by name, for the palette and the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.core.cache import cache
from django.urls import reverse
from django.utils.translation import gettext as _

from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ENTRIES_MAX = 30
NAMES_KEPT_S = 5
"""People type faster than brokers need to be queried."""


class Entry(NamedTuple):
    """A line of a list; `icon` is a name in the sprite."""

    label: str
    hint: str
    icon: str
    url: str


class Names(NamedTuple):
    """Names known to the brokers and the name server."""

    topics: list[str]
    groups: list[str]
    brokers: list[tuple[str, int]]


def known_names() -> Names:
    """Return the names, at most a few seconds old; empty while no broker responds."""
    found: Names | None = cache.get("palette.names")
    if found is None:
        try:
            found = Names(
                sorted(
                    name
                    for name, topic in gateway().topics.all().items()
                    if topic.kind is not TopicKind.SYSTEM
                ),
                sorted(name for name, each in gateway().groups.all().items() if not each.is_system),
                sorted(
                    (node.broker_name, node.broker_id)
                    for node in gateway().cluster.registered().nodes
                ),
            )
        except GatewayError:
            found = Names([], [], [])
        cache.set("palette.names", found, NAMES_KEPT_S)
    return found


def topic_entry(name: str) -> Entry:
    return Entry(name, _("Topic"), "layers", reverse("topics:detail", args=[name]))


def group_entry(name: str) -> Entry:
    return Entry(name, _("Group"), "users", reverse("groups:detail", args=[name]))


def broker_entry(name: str, number: int) -> Entry:
    label = f"{name} {number}"
    return Entry(label, _("Broker"), "server", reverse("brokers:detail", args=[name, number]))


def best(names: Iterable[str], words: Sequence[str]) -> list[str]:
    """Return the names that contain every word, those starting with the first word first."""
    found = [name for name in names if all(word in name.lower() for word in words)]
    found.sort(key=lambda name: (not name.lower().startswith(words[0]), len(name), name))
    return found[:ENTRIES_MAX]


def matches(entry: Entry, words: Sequence[str]) -> bool:
    text = f"{entry.label} {entry.hint}".lower()
    return all(word in text for word in words)
