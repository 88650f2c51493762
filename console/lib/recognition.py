"""Recognises what a person typed into the search box: a location, client, address or key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

SPACES = re.compile(r"[\s·]+")
GROUPED = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3})")
"""Spaces that pages put between the thousands of a number."""
QUEUE = re.compile(r"[^\s:]+:\d{1,9}")
LOCATION = re.compile(r"([^\s:]+:\d{1,9}):(\d{1,15})")
OFFSET = re.compile(r"\d{1,15}")
ADDRESS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?|\[[0-9A-Fa-f:]+\](?::\d{1,5})?")
CLIENT = re.compile(r"\S+@\S+")
MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32,56}")
"""An offset message ID or unique key, for IPv4 or IPv6, from 4.9 or 5.x clients."""


class Location(NamedTuple):
    """A topic, queue and offset; without a topic, it is "" because none was typed."""

    topic: str
    queue: str
    offset: str


def words_of(text: str) -> list[str]:
    return [word for word in SPACES.split(GROUPED.sub("", text)) if word]


def named_in(words: Iterable[str], topics: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the topics that words name, ignoring case, and the other words."""
    by_name = {name.lower(): name for name in topics}
    exact = set(by_name.values())
    words = list(words)
    named = [
        word if word in exact else by_name[word.lower()]
        for word in words
        if word in exact or word.lower() in by_name
    ]
    return named, [word for word in words if word.lower() not in by_name]


def location_in(text: str, topics: Iterable[str]) -> Location | None:
    """Return the location in a text such as `Orders broker-a:0 17`, or None."""
    named, others = named_in(words_of(text), topics)
    if len(named) > 1:
        return None
    topic = "".join(named)
    if len(others) == 1 and (found := LOCATION.fullmatch(others[0])):
        return Location(topic, found[1], found[2])
    if len(others) == 2 and QUEUE.fullmatch(others[0]) and OFFSET.fullmatch(others[1]):
        return Location(topic, others[0], others[1])
    return None


def is_client(text: str) -> bool:
    """Whether a text could be part of a client ID or address."""
    return bool(ADDRESS.fullmatch(text) or CLIENT.fullmatch(text))
