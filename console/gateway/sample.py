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
TIME_MS_MAX = 1 << 46
"""Latest accepted time, in the year 4199."""


class TopicSample(msgspec.Struct, array_like=True, frozen=True):
    """A topic: bytes put since the broker's start, and its queues."""

    name: str
    put_bytes: int | None
    queues: list[int]
    """queue_id, min_offset, max_offset, ..."""
    write_queues: int = 0
    """How many queues take messages; 0 where the broker does not say."""

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


class ClientsSample(msgspec.Struct, array_like=True, frozen=True):
    """A group whose members differ: members of each version, and of each set of subscriptions."""

    group: str
    versions: dict[str, int]
    wants: dict[str, int]
    odd: list[str]
    """Some client ids whose subscriptions are not the usual ones."""


class VersionsSample(msgspec.Struct, array_like=True, frozen=True):
    """A group of consumers or producers: members of each language and version."""

    group: str
    versions: dict[str, int]


class ColdReadsSample(msgspec.Struct, array_like=True, frozen=True):
    """Messages that a group got from the disk since the broker's start."""

    group: str
    topic: str
    messages: int


class LargeSample(msgspec.Struct, array_like=True, frozen=True):
    """The largest message of a topic within a minute, where it is a large one."""

    topic: str
    body_bytes: int
    queue_id: int
    queue_offset: int


class KeySample(msgspec.Struct, array_like=True, frozen=True):
    """The commonest key of a topic, and how many of a thousand messages have it."""

    topic: str
    per_mille: int
    key: str


class ClockSample(msgspec.Struct, array_like=True, frozen=True):
    """By how much the clients of a host are ahead of the broker's clock; below 0: behind."""

    host: str
    ahead_ms: int
    topic: str


class RedeliveredSample(msgspec.Struct, array_like=True, frozen=True):
    """The message that came back most often to a group, and the place of its newest copy."""

    group: str
    times: int
    topic: str
    queue_id: int
    queue_offset: int
    origin_message_id: str


class HeadSample(msgspec.Struct, array_like=True, frozen=True):
    """The message that a group has waited with for minutes, of its longest waiting queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    body_bytes: int
    host: str
    times: int


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
    clients: list[ClientsSample] | None = None
    """None, here and below: the broker does not say."""
    consumers: list[VersionsSample] | None = None
    producers: list[VersionsSample] | None = None
    cold_reads: list[ColdReadsSample] | None = None
    large: list[LargeSample] | None = None
    keys: list[KeySample] | None = None
    clocks: list[ClockSample] | None = None
    redelivered: list[RedeliveredSample] | None = None
    heads: list[HeadSample] | None = None
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
    if not all(0 <= each <= TIME_MS_MAX for each in (sample.boot_timestamp, sample.sampled_at)):
        raise ValueError("a time is out of range")
    return sample
