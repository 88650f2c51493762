"""Searches all topics for a key or unique key, in bounded steps that a person continues.

Brokers index messages by topic and key, so each topic costs a request to each master. A step ends
after a number of topics or some seconds, and only a few steps run at the same time.
"""

from __future__ import annotations

from bisect import bisect_right
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _

from broker_core.message import names
from console.accounts.actions import Action
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import GatewayError
from console.gateway.kinds import topic_kind
from console.lib.stored import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.accounts.rights import Rights
    from console.gateway.answers import Topic
    from console.lib.stored import StoredMessage
    from console.observe.history.range import TimeRange

TOPICS_MAX = 100
"""Topics in one step."""
STEP_S = 2.0
STEPS_AT_ONCE, WAIT_S = 2, 5.0
"""Steps of all people together, and how long another one waits."""
room = BoundedSemaphore(STEPS_AT_ONCE)
LATER_KINDS = {TopicKind.RETRY: 1, TopicKind.DLQ: 2}


class TopicSearchStep(NamedTuple):
    """A step's messages, newest first; `searched` of `total` topics were searched so far.

    `following` is the topic after which the next step begins, or "" at the end. `problems` say what
    couldn't be searched.
    """

    messages: tuple[StoredMessage, ...]
    searched: int
    total: int
    following: str
    has_more: bool
    without_index: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the search is complete."""
        return not (self.following or self.has_more or self.without_index or self.problems)


def order_of(name: str, topics: Mapping[str, Topic]) -> tuple[int, str]:
    """Return the sort key of a topic: retries and dead letters come last."""
    # A search also continues after a topic that has been deleted in the meantime.
    kind = topics[name].kind if name in topics else topic_kind(name)
    return LATER_KINDS.get(kind, 0), name


def searchable(topics: Mapping[str, Topic], rights: Rights) -> list[str]:
    """Return the topics that a person may search, in the order of a search."""
    found = (
        name
        for name, each in topics.items()
        if each.kind is not TopicKind.SYSTEM and rights.may(Action.SEE, name)
    )
    return sorted(found, key=lambda name: order_of(name, topics))


def search_topics(
    key: str, span: TimeRange, topics: Mapping[str, Topic], rights: Rights, after: str = ""
) -> TopicSearchStep:
    """Search the topics after `after` for messages with a key.

    Raises:
        GatewayError: no broker responds, or too many searches are running.
    """
    every = searchable(topics, rights)
    begin = 0
    if after:
        places = [order_of(name, topics) for name in every]
        begin = bisect_right(places, order_of(after, topics))
    chosen = every[begin : begin + TOPICS_MAX]
    if not room.acquire(timeout=WAIT_S):
        raise GatewayError(
            _("Other people are searching all topics right now."),
            _("Try again in a few seconds, or choose a topic."),
        )
    try:
        found = gateway().browse.by_key_in(chosen, key, span.low_ms, span.high_ms, STEP_S)
        halves = () if begin else halves_with(key, span, every)
    finally:
        room.release()
    done = begin + found.searched
    messages = sorted((*found.messages, *halves), key=lambda each: each.place, reverse=True)
    return TopicSearchStep(
        tuple(messages),
        done,
        len(every),
        every[done - 1] if 0 < done < len(every) else "",
        found.has_more,
        found.without_index,
        found.problems,
    )


def halves_with(key: str, span: TimeRange, topics: Iterable[str]) -> tuple[StoredMessage, ...]:
    """Return the newest uncommitted half message of each transaction with a key."""
    try:
        found = gateway().browse.by_key(
            names.RMQ_SYS_TRANS_HALF_TOPIC, key, span.low_ms, span.high_ms
        )
    except GatewayError:
        # A broker's access control may restrict half messages to administrators.
        return ()
    subjects = set(topics)
    # Checks leave several copies of a half message; the newest comes first.
    last = {
        (each.broker_name, each.uniq_key or each.queue_offset): each
        for each in reversed(found.messages)
        if each.subject in subjects and each.outcome != COMMITTED
    }
    return tuple(last.values())
