"""Offsets of queues as JSON, and which queues an option names.

{"orders": {"broker-a": {"0": 23, "1": -2}}}        an offset; -2 the earliest, -1 the latest
{"orders": {"broker-a": [0, 1]}}                    the queues themselves
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from analytics.remote.cluster import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Nested = dict[str, dict[str, dict[str, int]]]

EARLIEST, LATEST = -2, -1


def nested(offsets: Mapping[Queue, int]) -> Nested:
    """Return offsets as a stream's progress holds them."""
    found: Nested = {}
    for queue in sorted(offsets):
        by_broker = found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        by_broker[str(queue.queue_id)] = offsets[queue]
    return found


def flat(offsets: Mapping[str, Any]) -> dict[Queue, int]:
    """Return what `nested` took.

    Raises:
        ValueError: it has another shape.
    """
    return {queue: whole(offset) for queue, offset in _leaves(offsets)}


def parse_offsets(text: str) -> dict[Queue, int]:
    """Return the offsets of an option, which may be the progress of a stream.

    Raises:
        ValueError: it is not such JSON.
    """
    document = table(json.loads(text))
    found = flat(table(document.get("offsets")) if "version" in document else document)
    if any(offset < EARLIEST for offset in found.values()):
        raise ValueError("an offset is below -2")
    return found


def parse_times(text: str) -> dict[Queue, int]:
    """Return the times of an option, in ms since epoch.

    Raises:
        ValueError: it is not such JSON.
    """
    found = flat(table(json.loads(text)))
    if any(timestamp < 0 for timestamp in found.values()):
        raise ValueError("a time is below 0")
    return found


def parse_queues(text: str) -> tuple[Queue, ...]:
    """Return the queues of an option.

    Raises:
        ValueError: it is not such JSON.
    """
    found: set[Queue] = set()
    for topic, brokers in table(json.loads(text)).items():
        for broker, ids in table(brokers).items():
            if not isinstance(ids, list):
                raise ValueError(f"the queues of {topic} on {broker} are no list")
            found |= {Queue(topic, broker, whole(queue_id, least=0)) for queue_id in ids}
    if not found:
        raise ValueError("no queue is named")
    return tuple(sorted(found))


def _leaves(offsets: Mapping[str, Any]) -> Iterator[tuple[Queue, Any]]:
    for topic, brokers in table(offsets).items():
        for broker, queues in table(brokers).items():
            for queue_id, offset in table(queues).items():
                if not (queue_id.isascii() and queue_id.isdigit()):
                    raise ValueError(f"{queue_id!r} is no queue id")
                yield Queue(topic, broker, int(queue_id)), offset


def table(value: Any) -> Mapping[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: the value is something else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no object")
    return value


def whole(value: Any, *, least: int = EARLIEST) -> int:
    """Return a whole number from `least` on.

    Raises:
        ValueError: the value is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{value!r} is no whole number from {least} on")
    return value
