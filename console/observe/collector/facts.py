"""Facts in a sample that aren't numbers over time, such as names and locations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.gateway.answers import MASTER_ID
from console.observe.history import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.sample import BrokerSample
    from console.observe.history.metrics import Subject

CLIENTS_MAX = 3
TIMES = "\u00d7"


def facts_of(sample: BrokerSample, subject: Subject) -> dict[str, str]:
    """Return the facts about a subject by name, or nothing for a subject of another broker."""
    if subject.broker != sample.broker_name:
        return {}
    if subject.kind == metrics.BROKER:
        return clocks_of(sample) if subject.name == str(sample.broker_id) else {}
    if sample.broker_id != MASTER_ID:
        return {}
    match subject.kind:
        case metrics.TOPIC:
            return topic_facts(sample, subject.name)
        case metrics.GROUP:
            return clients_of(sample, subject.name) | redelivered_of(sample, subject.name)
        case metrics.PROGRESS:
            group, _at, topic = subject.name.partition("@")
            return head_of(sample, group, topic)
        case _other:
            return {}


def clocks_of(sample: BrokerSample) -> dict[str, str]:
    worst = max(sample.clocks or (), key=lambda each: abs(each.ahead_ms), default=None)
    if worst is None:
        return {}
    way = "ahead" if worst.ahead_ms > 0 else "behind"
    count = str(len(sample.clocks or ()))
    return {"host": worst.host, "way": way, "topic": worst.topic, "hosts": count}


def topic_facts(sample: BrokerSample, topic: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in sample.topics:
        if row.name == topic:
            found["queues"] = str(max(len(row.queues) // 3, row.write_queues))
    for large in sample.large or ():
        if large.topic == topic:
            found |= {
                "message_topic": topic,
                "message_queue": str(large.queue_id),
                "message_offset": str(large.queue_offset),
            }
    for key in sample.keys or ():
        if key.topic == topic:
            found["key"] = key.key
    return found


def clients_of(sample: BrokerSample, group: str) -> dict[str, str]:
    for each in sample.clients or ():
        if each.group == group:
            return {
                "kinds": counted(each.versions),
                "wants": counted(each.wants),
                "odd_clients": ", ".join(each.odd[:CLIENTS_MAX]),
            }
    return {}


def counted(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {TIMES} {name}" for name, count in rows.items())


def redelivered_of(sample: BrokerSample, group: str) -> dict[str, str]:
    for each in sample.redelivered or ():
        if each.group == group and each.times > 0 and each.origin_message_id:
            return {
                "message": each.origin_message_id,
                "times": str(each.times),
                "message_topic": each.topic,
                "message_queue": str(each.queue_id),
                "message_offset": str(each.queue_offset),
            }
    return {}


def head_of(sample: BrokerSample, group: str, topic: str) -> dict[str, str]:
    """Return the message that a group has not consumed for the longest time."""
    for each in sample.heads or ():
        if (each.group, each.topic) == (group, topic):
            return {
                "head_queue": str(each.queue_id),
                "offset": str(each.queue_offset),
                "message": each.message_id,
                "host": each.host,
                "bytes": str(each.body_bytes),
                "times": str(each.times),
            }
    return {}
