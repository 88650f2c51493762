"""Messages as brokers keep them, and what a search for them found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker_core.message import names
from console.gateway.answers import BrokerQueue

if TYPE_CHECKING:
    from collections.abc import Mapping


COMMITTED = "committed"
"""The fate of a half message that became a message of its topic."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message at its place. `body` is its beginning, decompressed, None where it cannot be.

    `body_bytes` is its size as stored.
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
    store_size: int = 0  # of the whole record in the CommitLog
    sys_flag: int = 0
    masked_by: tuple[str, ...] = ()  # the rules that hide something of it
    prepared_offset: int = 0  # of the half message in the CommitLog that this one was
    fate: str = ""  # of a half message: what became of its transaction, where that is told

    @property
    def queue(self) -> BrokerQueue:
        return BrokerQueue(self.broker_name, self.queue_id)

    @property
    def is_half(self) -> bool:
        """Whether nobody gets it, since its transaction is not committed."""
        return self.topic in names.HIDDEN_TOPICS

    @property
    def subject(self) -> str:
        """The topic whose rights and rules it is under: of a half message the one it is for."""
        real_topic = self.properties.get(names.PROPERTY_REAL_TOPIC, "") if self.is_half else ""
        return real_topic or self.topic

    @property
    def place(self) -> Place:
        return Place(self.store_ms, self.queue, self.queue_offset)

    @property
    def store_millis(self) -> str:
        """The part of the store time that is less than a second, in three digits."""
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
        """The id of the message that this one is a retry or a dead letter of."""
        return self.properties.get(names.PROPERTY_ORIGIN_MESSAGE_ID, "")

    def has_key(self, key: str) -> bool:
        """Whether this is one of its keys, or its unique key."""
        return key == self.uniq_key or key in self.keys.split()


class Wanted(NamedTuple):
    """The messages of a topic that were stored from a time to another, in all queues or in one."""

    topic: str
    low_ms: int
    high_ms: int
    queue: BrokerQueue | None = None


class Place(NamedTuple):
    """Where a message stands among those of a topic: by time, then by queue and offset."""

    store_ms: int
    queue: BrokerQueue
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Found:
    """The newest messages of a time; of `total` in it, `left` are older than those.

    Both may count a message or two a queue that lie just outside of the time.
    """

    messages: tuple[StoredMessage, ...]
    left: int
    total: int


@dataclass(frozen=True, slots=True)
class KeyFound:
    """Messages with a key, newest first; `has_more` where older ones may be left.

    `without_index` names brokers whose index is empty: nothing was looked for there.
    """

    messages: tuple[StoredMessage, ...]
    has_more: bool
    without_index: tuple[str, ...] = ()
