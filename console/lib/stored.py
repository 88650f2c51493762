"""Stored messages and search results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, order=True)
class BrokerQueue:
    """A queue of a known topic: its broker and queue number.

    Not a tuple, so it never equals a `TopicQueue` and the type checker can distinguish them.
    """

    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.broker_name}:{self.queue_id}"

    @classmethod
    def parse(cls, text: str) -> BrokerQueue:
        """Parse the output of `str`.

        Raises:
            ValueError: the text isn't a queue.
        """
        broker_name, _colon, queue_id = text.rpartition(":")
        return cls(broker_name, int(queue_id))


COMMITTED = "committed"
"""The outcome of a half message that was committed to its topic."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A stored message. `body` is its start, decompressed, or None if it can't be decompressed.

    `body_bytes` is the stored size. `other_properties` are stored, but clients skip them: earlier
    values of a repeated name, and empty values.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    offset_msg_id: str
    store_ms: int
    born_ms: int
    born_host: str
    reconsume_times: int
    properties: Mapping[str, str]
    body: bytes | None
    body_bytes: int
    is_compressed: bool = False
    is_cut: bool = False
    store_host: str = ""
    store_size: int = 0  # size of the whole record in the CommitLog
    sys_flag: int = 0
    masked_by: tuple[str, ...] = ()  # the rules that hide parts of it
    prepared_offset: int = 0  # CommitLog offset of the half message it was made from
    outcome: str = ""  # outcome of a half message's transaction, if reported
    other_properties: tuple[tuple[str, str], ...] = ()

    @property
    def queue(self) -> BrokerQueue:
        return BrokerQueue(self.broker_name, self.queue_id)

    @property
    def is_half(self) -> bool:
        """Whether the message isn't delivered because its transaction isn't committed."""
        return self.topic in names.HIDDEN_TOPICS

    @property
    def subject(self) -> str:
        """The topic whose rights and rules apply: for a half message, its destination topic."""
        real_topic = self.properties.get(names.PROPERTY_REAL_TOPIC, "") if self.is_half else ""
        return real_topic or self.topic

    @property
    def place(self) -> Place:
        return Place(self.store_ms, self.queue, self.queue_offset)

    @property
    def store_millis(self) -> str:
        """Milliseconds of the store time, as three digits."""
        return f"{self.store_ms % 1000:03d}"

    @property
    def tags(self) -> str:
        return self.properties.get(names.PROPERTY_TAGS, "")

    @property
    def keys(self) -> str:
        return self.properties.get(names.PROPERTY_KEYS, "")

    @property
    def uniq_key(self) -> str:
        return self.properties.get(names.PROPERTY_UNIQ_KEY, "")

    @property
    def origin_id(self) -> str:
        """ID of the message that this message is a retry or dead letter of."""
        return self.properties.get(names.PROPERTY_ORIGIN_MESSAGE_ID, "")

    def has_key(self, key: str) -> bool:
        """Whether the text is one of the message's keys or its unique key."""
        return key == self.uniq_key or key in self.keys.split()


class MessageRange(NamedTuple):
    """A selection of a topic's messages: a store time range, and one queue or all of them."""

    topic: str
    low_ms: int
    high_ms: int
    queue: BrokerQueue | None = None


class Place(NamedTuple):
    """A message's position in a topic: ordered by time, then queue and offset."""

    store_ms: int
    queue: BrokerQueue
    queue_offset: int


@dataclass(frozen=True, slots=True)
class NewestMessages:
    """The newest messages in a time range; `left` of its `total` messages are older.

    Both counts can include a message or two per queue just outside the range.
    """

    messages: tuple[StoredMessage, ...]
    left: int
    total: int


@dataclass(frozen=True, slots=True)
class KeyFound:
    """Messages with a key, newest first; `has_more` if there may be older ones.

    `without_index` names brokers whose index is empty, so that they weren't searched.
    """

    messages: tuple[StoredMessage, ...]
    has_more: bool
    without_index: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyFoundIn(KeyFound):
    """Messages with a key in several topics, after searching the first `searched` of them.

    `problems` are sentences about brokers and topics that couldn't be searched.
    """

    searched: int = 0
    problems: tuple[str, ...] = ()
