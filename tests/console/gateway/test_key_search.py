"""Searching many topics for a key, with bounded memory."""

from __future__ import annotations

import asyncio
import weakref
from types import SimpleNamespace
from typing import Any

from console.gateway.remote.browse import FOUND_MAX, RemoteBrowse
from console.gateway.requests import browse
from console.gateway.requests.browse import Indexed

A_TOPIC = 64


class Message:
    """A message that can be counted while something refers to it."""

    def __init__(self, place: int) -> None:
        self.place = place


def test_a_search_holds_only_the_newest_messages_in_memory(monkeypatch) -> None:
    held: weakref.WeakSet[Message] = weakref.WeakSet()
    counts = []
    topics = [str(number) for number in range(40)]

    async def query(*given: Any) -> Indexed:
        counts.append(len(held))
        begin = int(given[3]) * A_TOPIC
        made: Any = tuple(Message(begin + number) for number in range(A_TOPIC))
        held.update(made)
        return Indexed(made, is_full=False, has_index=True)

    async def masters() -> tuple[Any, ...]:
        return (SimpleNamespace(address="127.0.0.1:10911", broker_name="broker-a"),)

    monkeypatch.setattr(browse, "query", query)
    brokers: Any = SimpleNamespace(masters=masters, ask=None, run=asyncio.run)

    found = RemoteBrowse(brokers).by_key_in(topics, "k", 0, 1, 60.0)

    newest = len(topics) * A_TOPIC
    places: list[Any] = [each.place for each in found.messages]
    assert places == list(range(newest - 1, newest - FOUND_MAX - 1, -1))
    assert found.has_more
    assert found.searched == len(topics)
    assert max(counts) <= 2 * FOUND_MAX + A_TOPIC
