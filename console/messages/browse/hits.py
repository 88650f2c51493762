"""Finds topics, groups, brokers and clients for the search box."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.recognition import is_client, words_of
from console.messages.browse.entries import (
    Entry,
    best,
    broker_entry,
    group_entry,
    known_names,
    matches,
    topic_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_A_KIND_MAX = 5
GROUPS_MAX = 50
"""Groups whose consumers are searched; each costs a request to each broker."""


class Hits(NamedTuple):
    """The matching entries; `unsearched` groups may have matching consumers."""

    entries: tuple[Entry, ...]
    unsearched: int
    problem: str


def hits_of(text: str) -> Hits:
    """Return topics, groups and brokers that contain the text, and clients if it looks like one."""
    words = text.lower().split()
    names = known_names()
    entries = [
        *(topic_entry(name) for name in best(names.topics, words)[:OF_A_KIND_MAX]),
        *(group_entry(name) for name in best(names.groups, words)[:OF_A_KIND_MAX]),
    ]
    brokers = (broker_entry(name, number) for name, number in names.brokers)
    entries += [each for each in brokers if matches(each, words)][:OF_A_KIND_MAX]
    only = "".join(words_of(text))
    if not is_client(only):
        return Hits(tuple(entries), 0, "")
    searched = names.groups[:GROUPS_MAX]
    try:
        entries += [*brokers_at(only), *producers_of(only), *consumers_of(only, searched)]
    except GatewayError as error:
        return Hits(tuple(entries), len(names.groups), error.what)
    return Hits(tuple(dict.fromkeys(entries)), len(names.groups) - len(searched), "")


def brokers_at(address: str) -> Iterator[Entry]:
    for node in gateway().cluster.registered().nodes:
        if address in node.address:
            yield broker_entry(node.broker_name, node.broker_id)


def producers_of(text: str) -> Iterator[Entry]:
    found = [
        each
        for each in gateway().groups.producers()
        if text.lower() in f"{each.client_id}\n{each.client_addr}".lower()
    ]
    for each in found[:OF_A_KIND_MAX]:
        url = f"{reverse('clients:producers')}?{urlencode({'q': each.client_id})}"
        hint = _("Producer in group %(group)s, %(address)s")
        yield Entry(
            each.client_id, hint % {"group": each.group, "address": each.client_addr}, "send", url
        )


def consumers_of(text: str, groups: list[str]) -> Iterator[Entry]:
    found = [
        (name, member)
        for name, connections in gateway().groups.connections_of(groups).items()
        for member in connections.members
        if text.lower() in f"{member.client_id}\n{member.client_addr}".lower()
    ]
    for name, member in found[:OF_A_KIND_MAX]:
        url = reverse("groups:detail", args=[name])
        hint = _("Consumer in group %(group)s, %(address)s")
        yield Entry(
            member.client_id, hint % {"group": name, "address": member.client_addr}, "users", url
        )
