"""A group's progress for its page, including queues it has never read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from console.broker.groups.states import group_states
from console.gateway.access import gateway
from console.gateway.answers import QueueProgress, TopicKind
from console.gateway.errors import NotFoundError
from console.gateway.kinds import topic_kind
from console.lib.moment import now_ms
from console.observe.history.additions import issues_about
from console.observe.history.metrics import CONSUMED, GROUP, LAG, LAG_AGE, MEMBERS
from console.observe.history.reading import Spark, lag_sparks, last_of, subject_sparks
from console.observe.history.series import Aspect, Line
from console.observe.overview.states import (
    NO_CONSUMER_RULE,
    has_no_consumers,
    no_consumers_finding,
)

if TYPE_CHECKING:
    from console.gateway.answers import ConsumeProgress, GroupConnections, QueueStatus
    from console.lib.stored import BrokerQueue

TILES = {
    "lag": Line("", LAG, Aspect.PEAK),
    "age": Line("", LAG_AGE, Aspect.PEAK),
    "consumed": Line("", CONSUMED),
    "members": Line("", MEMBERS),
}

Ends = dict[tuple[str, "BrokerQueue"], "QueueStatus"]


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """A group's progress in one topic: each queue, the last hour of its lag, and the retained
    messages
    where the group never committed.
    """

    topic: str
    is_retry: bool
    queues: tuple[tuple[QueueProgress, Spark | None, int | None], ...]

    @property
    def lag(self) -> int:
        return sum(row.lag for row, *_rest in self.queues if row.lag is not None)

    @property
    def is_beyond_end(self) -> bool:
        return any(row.is_beyond_end for row, *_rest in self.queues)

    @property
    def in_flight(self) -> int:
        """Messages that POP consumers have received but not acknowledged."""
        return sum(row.in_flight for row, *_rest in self.queues)


def progress_context(name: str) -> dict[str, Any]:
    connections = gateway().groups.connections(name)
    progress, ends = with_unread(gateway().groups.progress(name), connections)
    by_topic: dict[str, list[QueueProgress]] = {}
    for row in progress.queues:
        by_topic.setdefault(row.topic, []).append(row)
    retained = {
        place: end.message_count
        for place, end in ends.items()
        if topic_kind(place[0]) is not TopicKind.RETRY
    }
    topics = []
    for topic, rows in by_topic.items():
        spark_of = lag_sparks(name, topic, now_ms())
        queues = tuple(
            (
                row,
                spark_of(row.broker_name, row.queue_id),
                retained.get((topic, row.queue)) if row.consumer_offset is None else None,
            )
            for row in rows
        )
        topics.append(TopicProgress(topic, topic_kind(topic) is TopicKind.RETRY, queues))
    found = subject_sparks(GROUP, name, TILES, now_ms())
    age_ms = last_of(found.get("age"))
    is_abandoned = has_no_consumers(progress, connections)
    verdicts = issues_about(GROUP, name)
    is_reported = any(each.verdict.rule == NO_CONSUMER_RULE for each in verdicts)
    return {
        "verdicts": verdicts,
        "findings": [no_consumers_finding([name])] if is_abandoned and not is_reported else [],
        "sparks": found,
        "lag_seconds": None if age_ms is None else age_ms / 1000,
        "progress": progress,
        "reading": group_states(now_ms()).of(
            name,
            has_committed=progress.has_committed,
            lag=found.get("lag"),
            is_abandoned=is_abandoned,
        ),
        "never_read": sum(
            unread for each in topics for _row, _spark, unread in each.queues if unread is not None
        ),
        "connections": connections,
        "topics": sorted(topics, key=lambda each: (each.is_retry, each.topic)),
    }


def with_unread(
    progress: ConsumeProgress, connections: GroupConnections
) -> tuple[ConsumeProgress, Ends]:
    """Add the queues of subscribed topics that brokers don't report.

    Brokers only report topics in which the group has offsets. Also return the ends of queues
    without one.
    """
    uncommitted = {row.topic for row in progress.queues if row.consumer_offset is None}
    subscribed = {each.topic for each in connections.subscriptions} - set(progress.topics)
    added: list[QueueProgress] = []
    ends: Ends = {}
    for topic in sorted(uncommitted | subscribed):
        try:
            status = gateway().topics.status(topic)
        except NotFoundError:
            continue
        ends |= {(topic, each.queue): each for each in status}
        if topic in subscribed and topic_kind(topic) is not TopicKind.RETRY:
            added += [
                QueueProgress(topic, each.broker_name, each.queue_id, each.max_offset, None, None)
                for each in status
            ]
    return replace(progress, queues=(*progress.queues, *added)), ends
