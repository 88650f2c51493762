"""Subscriptions of a group's consumers, and their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import GroupConnections, Subscription
    from console.gateway.running import RunningInfo

MEMBERS_QUERIED_MAX = 50


@dataclass(frozen=True, slots=True)
class SubscriptionVariant:
    """One subscription to a topic (None: not subscribed), and the consumers with it."""

    subscription: Subscription | None
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSubscriptions:
    """How a group's consumers subscribe to a topic, the most common way first."""

    topic: str
    wishes: tuple[SubscriptionVariant, ...]

    @property
    def is_mixed(self) -> bool:
        return len(self.wishes) > 1

    @property
    def usual(self) -> SubscriptionVariant:
        return self.wishes[0]

    @property
    def others(self) -> tuple[SubscriptionVariant, ...]:
        return self.wishes[1:]


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """A group's subscriptions by topic; `silent` are consumers that didn't respond, with the
    reason.
    """

    topics: tuple[TopicSubscriptions, ...]
    answered: int
    silent: tuple[tuple[str, str], ...]
    unasked: int

    @property
    def is_mixed(self) -> bool:
        return any(topic.is_mixed for topic in self.topics)


def subscriptions_of(
    connections: GroupConnections, infos: Mapping[str, RunningInfo | GatewayError]
) -> Subscriptions:
    """Compare the subscriptions that consumers report."""
    silent = []
    by_topic: dict[str, dict[Subscription | None, list[str]]] = {}
    answered = [each for each in infos.values() if not isinstance(each, GatewayError)]
    for client_id, info in infos.items():
        if isinstance(info, GatewayError):
            silent.append((client_id, info.what))
    for info in answered:
        for each in info.subscriptions:
            by_topic.setdefault(each.topic, {}).setdefault(each, []).append(info.client_id)
    for topic, wishes in by_topic.items():
        has = {client_id for members in wishes.values() for client_id in members}
        lacking = [info.client_id for info in answered if info.client_id not in has]
        if lacking:
            by_topic[topic][None] = lacking
    topics = [
        TopicSubscriptions(
            topic,
            tuple(
                SubscriptionVariant(subscription, tuple(sorted(members)))
                for subscription, members in sorted(
                    wishes.items(), key=lambda pair: (-len(pair[1]), pair[0] is None, str(pair[0]))
                )
            ),
        )
        for topic, wishes in sorted(by_topic.items())
    ]
    topics.sort(key=lambda each: not each.is_mixed)
    unasked = len(connections.members) - len(infos)
    return Subscriptions(tuple(topics), len(answered), tuple(sorted(silent)), unasked)
