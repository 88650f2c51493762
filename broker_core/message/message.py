"""A stored message, decoded."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.message.names import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY


@dataclass(slots=True)
class MessageExt:
    """A record's contents. Timestamps are milliseconds since the epoch, hosts "ip:port".

    The body is as stored, compressed if sys_flag says so.
    """

    topic: str
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    body_crc: int
    properties: dict[str, str]
    store_size: int

    @property
    def tags(self) -> str | None:
        """The TAGS property."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        """The KEYS property: keys separated by blanks."""
        return self.properties.get(PROPERTY_KEYS)

    @property
    def uniq_key(self) -> str | None:
        """The ID set by the client."""
        return self.properties.get(PROPERTY_UNIQ_KEY)
