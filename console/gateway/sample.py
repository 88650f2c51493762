"""BrokerSample: the complete state of one broker at one time.

Field names match the broker's answer, so that it can be kept as received. The numbers of all queues
are in one flat list of integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = -1
TIME_MS_MAX = 1 << 46
"""Latest accepted time, in the year 4199."""


class TopicSample(msgspec.Struct, array_like=True, frozen=True):
    """A topic: bytes stored since the broker started, and its queues."""

    name: str
    put_bytes: int | None
    queues: list[int]
    """queue_id, min_offset, max_offset, ..."""
    write_queues: int = 0
    """Number of writable queues; 0 if the broker doesn't report it."""

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield (queue_id, min_offset, max_offset)."""
        numbers = iter(self.queues)
        return zip(numbers, numbers, numbers, strict=True)


class GroupSample(msgspec.Struct, array_like=True, frozen=True):
    """A group; members is None if the broker doesn't report it."""

    name: str
    members: int | None


class ProgressSample(msgspec.Struct, array_like=True, frozen=True):
    """A group's progress in a topic."""

    group: str
    topic: str
    queues: list[int]
    """queue_id, consumer_offset, max_offset, unread_since_ms or UNKNOWN, ..."""

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (queue_id, consumer_offset, max_offset, unread_since_ms)."""
        numbers = iter(self.queues)
        return zip(numbers, numbers, numbers, numbers, strict=True)


class ClientsSample(msgspec.Struct, array_like=True, frozen=True):
    """A group with mixed consumers: their number by version and by subscription set."""

    group: str
    versions: dict[str, int]
    wants: dict[str, int]
    odd: list[str]
    """Some client IDs with unusual subscriptions."""


class VersionsSample(msgspec.Struct, array_like=True, frozen=True):
    """A consumer or producer group: number of clients by language and version."""

    group: str
    versions: dict[str, int]


class ColdReadsSample(msgspec.Struct, array_like=True, frozen=True):
    """Messages that a group read from disk since the broker started."""

    group: str
    topic: str
    messages: int


class LargeSample(msgspec.Struct, array_like=True, frozen=True):
    """A topic's largest message within a minute, if it is large."""

    topic: str
    body_bytes: int
    queue_id: int
    queue_offset: int


class KeySample(msgspec.Struct, array_like=True, frozen=True):
    """A topic's most common key, and how many in a thousand messages have it."""

    topic: str
    per_mille: int
    key: str


class ClockSample(msgspec.Struct, array_like=True, frozen=True):
    """How far a host's client clocks are ahead of the broker's; negative: behind."""

    host: str
    ahead_ms: int
    topic: str


class RedeliveredSample(msgspec.Struct, array_like=True, frozen=True):
    """The message most often redelivered to a group, and the location of its latest copy."""

    group: str
    times: int
    topic: str
    queue_id: int
    queue_offset: int
    origin_message_id: str


class HeadSample(msgspec.Struct, array_like=True, frozen=True):
    """The message that has blocked a group for minutes, in the queue that has waited longest."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    body_bytes: int
    host: str
    times: int


class BrokerSample(msgspec.Struct, frozen=True, rename="camel"):
    """A broker. Counters, latencies and topic bytes start at `boot_timestamp`."""

    broker_name: str
    broker_id: int
    boot_timestamp: int
    sampled_at: int
    """Broker clock, in ms."""
    counters: dict[str, int]
    gauges: dict[str, int | None]
    topics: list[TopicSample]
    groups: list[GroupSample]
    progress: list[ProgressSample]
    latency_bounds_ms: list[float] = []
    latencies: dict[str, list[int]] = {}
    clients: list[ClientsSample] | None = None
    """None, here and below: the broker doesn't report it."""
    consumers: list[VersionsSample] | None = None
    producers: list[VersionsSample] | None = None
    cold_reads: list[ColdReadsSample] | None = None
    large: list[LargeSample] | None = None
    keys: list[KeySample] | None = None
    clocks: list[ClockSample] | None = None
    redelivered: list[RedeliveredSample] | None = None
    heads: list[HeadSample] | None = None
    is_whole: bool = True
    """Whether every topic is included, so that a topic missing earlier must be new."""


def encoded(sample: BrokerSample) -> bytes:
    return msgspec.json.encode(sample)


def decoded(data: bytes) -> BrokerSample:
    """Decode a sample.

    Raises:
        ValueError: the bytes aren't a valid sample.
    """
    sample = msgspec.json.decode(data, type=BrokerSample)
    if any(len(topic.queues) % 3 for topic in sample.topics) or any(
        len(progress.queues) % 4 for progress in sample.progress
    ):
        raise ValueError("a row of queues is cut short")
    if not all(0 <= each <= TIME_MS_MAX for each in (sample.boot_timestamp, sample.sampled_at)):
        raise ValueError("a time is out of range")
    return sample
