"""Offsets of queues as JSON, and the queues in an option.

{"orders": {"broker-a": {"0": 23, "1": -2}}}        an offset; -2 the earliest, -1 the latest
{"orders": {"broker-a": [0, 1]}}                    queues without offsets
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
    """Return offsets in the format of a stream's progress."""
    found: Nested = {}
    for queue in sorted(offsets):
        by_broker = found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        by_broker[str(queue.queue_id)] = offsets[queue]
    return found


def flat(offsets: Mapping[str, Any]) -> dict[Queue, int]:
    """Invert `nested`.

    Raises:
        ValueError: the value has another shape.
    """
    return {queue: whole(offset) for queue, offset in _leaves(offsets)}


def parse_offsets(text: str) -> dict[Queue, int]:
    """Return the offsets in an option, which may be the progress of a stream.

    Raises:
        ValueError: the JSON isn't valid.
    """
    document = table(json.loads(text))
    found = flat(table(document.get("offsets")) if "version" in document else document)
    if any(offset < EARLIEST for offset in found.values()):
        raise ValueError("an offset must be at least -2")
    return found


def parse_times(text: str) -> dict[Queue, int]:
    """Return the times in an option, in ms since epoch.

    Raises:
        ValueError: the JSON isn't valid.
    """
    found = flat(table(json.loads(text)))
    if any(timestamp < 0 for timestamp in found.values()):
        raise ValueError("a time must be at least 0")
    return found


def parse_queues(text: str) -> tuple[Queue, ...]:
    """Return the queues in an option.

    Raises:
        ValueError: the JSON isn't valid.
    """
    found: set[Queue] = set()
    for topic, brokers in table(json.loads(text)).items():
        for broker, ids in table(brokers).items():
            if not isinstance(ids, list):
                raise ValueError(f"the queues of {topic} on {broker} must be a list")
            found |= {Queue(topic, broker, whole(queue_id, least=0)) for queue_id in ids}
    if not found:
        raise ValueError("it must name a queue")
    return tuple(sorted(found))


def _leaves(offsets: Mapping[str, Any]) -> Iterator[tuple[Queue, Any]]:
    for topic, brokers in table(offsets).items():
        for broker, queues in table(brokers).items():
            for queue_id, offset in table(queues).items():
                if not (queue_id.isascii() and queue_id.isdigit()):
                    raise ValueError(f"a queue ID must be a number, not {queue_id!r}")
                yield Queue(topic, broker, int(queue_id)), offset


def table(value: Any) -> Mapping[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: the value isn't an object.
    """
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {value!r}")
    return value


def whole(value: Any, *, least: int = EARLIEST) -> int:
    """Return an integer that is at least `least`.

    Raises:
        ValueError: the value isn't such an integer.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"expected a whole number of at least {least}, found {value!r}")
    return value
