"""Assignment: the queues that the options of the `rocketmq` source select."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from analytics.errors import ReportError
from analytics.remote.cluster import NoTopicError
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from analytics.remote.cluster import Cluster, Queue
    from analytics.sources.rocketmq_options import ClusterOptions

NAMES_SHOWN_MAX = 10


async def assigned(cluster: Cluster, wanted: ClusterOptions) -> list[Queue]:
    """Return the queues that the options select at this moment.

    Raises:
        ReportError: an option names a topic, broker or queue that doesn't exist, or no broker
            responds.
    """
    if wanted.queues is not None:
        topics = sorted({queue.topic for queue in wanted.queues})
        known = [queue for topic in topics for queue in (await cluster.route(topic)).reads]
        require_known("assign", wanted.queues, known)
    queues = await remaining(cluster, wanted, is_first=True)
    for option, named in (
        ("startingOffsets", wanted.starting),
        ("endingOffsets", wanted.ending),
        ("startingOffsetsByTimestamp", wanted.starting_times),
        ("endingOffsetsByTimestamp", wanted.ending_times),
    ):
        if isinstance(named, dict):
            require_known(option, named, queues)
    return queues


async def remaining(
    cluster: Cluster, wanted: ClusterOptions, *, is_first: bool = False
) -> list[Queue]:
    """Return the selected queues that still exist.

    Raises:
        ReportError: no broker responds, or a named topic doesn't exist at the start.
    """
    if wanted.queues is not None:
        reads = {
            queue
            for topic in {queue.topic for queue in wanted.queues}
            for queue in await _reads(cluster, topic, is_first=is_first)
        }
        return [queue for queue in wanted.queues if queue in reads]
    topics = wanted.topics
    if wanted.pattern is not None:
        matches = re.compile(wanted.pattern).fullmatch
        topics = frozenset(
            topic
            for topic in await cluster.topics()
            if matches(topic)
            and (wanted.rows.include_system_topics or not names.is_system_topic(topic))
        )
        # A topic deleted later isn't an error; its queues are left out.
        is_first = False
    return [
        queue
        for topic in sorted(topics or ())
        for queue in await _reads(cluster, topic, is_first=is_first)
    ]


def require_known(option: str, named: Iterable[Queue], known: Collection[Queue]) -> None:
    """Check that queues exist.

    Raises:
        ReportError: a queue doesn't exist; the sentence names its topic, broker or number.
    """
    exist = frozenset(known)
    for queue in sorted(named):
        if queue in exist:
            continue
        brokers: dict[str, list[int]] = {}
        for one in known:
            if one.topic == queue.topic:
                brokers.setdefault(one.broker_name, []).append(one.queue_id)
        if not brokers:
            topics = sorted({one.topic for one in known})
            raise ReportError(
                f"{option} names the topic {queue.topic}, which isn't read; the topics are "
                f"{_listed(topics)}."
            )
        if queue.broker_name not in brokers:
            raise ReportError(
                f"{option} names the broker {queue.broker_name}, which has no queue of "
                f"{queue.topic}; brokers with queues of it are {_listed(sorted(brokers))}."
            )
        ids = sorted(brokers[queue.broker_name])
        raise ReportError(
            f"{option} names {queue}, which doesn't exist; the topic's queues there are "
            f"{_listed(list(map(str, ids)))}."
        )


async def _reads(cluster: Cluster, topic: str, *, is_first: bool) -> tuple[Queue, ...]:
    try:
        return (await cluster.route(topic)).reads
    except NoTopicError:
        if is_first:
            raise
        return ()


def _listed(words: list[str]) -> str:
    if not words:
        return "none"
    more = len(words) - NAMES_SHOWN_MAX
    shown = ", ".join(words[:NAMES_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
