"""BrokerSample: what one broker says of itself at one time, all of it.

The names are those of the broker's answer, so that it can be kept as it came. A queue's numbers
stand in a row of whole numbers, one queue after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = -1


class TopicSample(msgspec.Struct, array_like=True, frozen=True):
    """A topic: bytes put since the broker's start, and its queues."""

    name: str
    put_bytes: int | None
    queues: list[int]
    """queue_id, min_offset, max_offset, ..."""

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield (queue_id, min_offset, max_offset)."""
        numbers = iter(self.queues)
        return zip(numbers, numbers, numbers, strict=True)


class GroupSample(msgspec.Struct, array_like=True, frozen=True):
    """A group; members is None where the broker does not say."""

    name: str
    members: int | None


class ProgressSample(msgspec.Struct, array_like=True, frozen=True):
    """How far a group has come in a topic."""

    group: str
    topic: str
    queues: list[int]
    """queue_id, consumer_offset, max_offset, unread_since_ms or UNKNOWN, ..."""

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (queue_id, consumer_offset, max_offset, unread_since_ms)."""
        numbers = iter(self.queues)
        return zip(numbers, numbers, numbers, numbers, strict=True)


class BrokerSample(msgspec.Struct, frozen=True, rename="camel"):
    """A broker. Counters, latencies and topics' bytes begin at `boot_timestamp`."""

    broker_name: str
    broker_id: int
    boot_timestamp: int
    sampled_at: int
    """By the broker's clock, in ms."""
    counters: dict[str, int]
    gauges: dict[str, int | None]
    topics: list[TopicSample]
    groups: list[GroupSample]
    progress: list[ProgressSample]
    latency_bounds_ms: list[float] = []
    latencies: dict[str, list[int]] = {}
    is_whole: bool = True
    """Whether every topic is here, so that one that was not there before is a new one."""


def encoded(sample: BrokerSample) -> bytes:
    return msgspec.json.encode(sample)


def decoded(data: bytes) -> BrokerSample:
    """Return a sample.

    Raises:
        ValueError: the bytes are none.
    """
    sample = msgspec.json.decode(data, type=BrokerSample)
    if any(len(topic.queues) % 3 for topic in sample.topics) or any(
        len(progress.queues) % 4 for progress in sample.progress
    ):
        raise ValueError("a row of queues is cut short")
    return sample
