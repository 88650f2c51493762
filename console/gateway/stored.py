"""Messages as brokers keep them, and what a search for them found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.message import names
from console.gateway.answers import BrokerQueue

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    @property
    def queue(self) -> BrokerQueue:
        return BrokerQueue(self.broker_name, self.queue_id)

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


@dataclass(frozen=True, slots=True)
class Found:
    """The first messages of a time, by store time; `has_more` where the time holds others."""

    messages: tuple[StoredMessage, ...]
    has_more: bool
