"""BatchParts: reads and checks a batch before it is put, in steps if the batch is long."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from broker_core.formats import batch
from broker_core.formats.record import CRC_MASK, PROPERTIES_SIZE, with_crc_room
from broker_core.message import properties as message_properties
from broker_core.message.names import (
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from broker_core.message.properties import PROPERTIES_BYTES_MAX, decode_client_properties
from broker_core.store.results import PutMessageStatus, RefusedPutError

if TYPE_CHECKING:
    from collections.abc import Generator

BATCH_MESSAGES_MAX = 16_384
"""Differs: RocketMQ accepts any number that fits into maxMessageSize, and 5.3.3 miscounts more
than 32,767. RocketMQ's example of a split batch has about 13,000 messages."""
BATCH_KEYS_MAX = 16_384
"""Maximum number of keys in a batch, not counting unique keys; each key is an index entry."""
MESSAGES_PER_STEP = 64

_pack_text_size = PROPERTIES_SIZE.pack

Item = tuple[int, int, int, bytes, int, str | None, str | None, str | None]


class BatchParts(NamedTuple):
    """A batch, checked and ready to be written."""

    records: bytes
    """The records without their heads, concatenated."""
    items: list[Item]
    """(flag, body size, body crc, properties, record size, tags, keys, UNIQ_KEY) of each message.
    """
    entries: int
    """The maximum number of index entries that the messages need."""


def read_batch(
    body: bytes, batch_properties: str, head_size: int, topic_field: bytes, *, is_guarded: bool
) -> Generator[None, None, BatchParts]:
    """Return the parts of a batch; yield after each MESSAGES_PER_STEP messages.

    Raises:
        CorruptRecordError, UnicodeDecodeError: the body isn't a batch.
        PropertiesError, RefusedPutError: a message's properties can't be stored, or the batch is
            too large.
    """
    message_properties.require_no_nul(batch_properties)
    tail = batch_properties.encode()
    behind = b"\x02" + tail if tail else tail
    # A common property overrides a message's own, because it is later in the text.
    common = message_properties.decode(batch_properties).get
    common_tags, common_keys = common(PROPERTY_TAGS), common(PROPERTY_KEYS)
    common_uniq_key = common(PROPERTY_UNIQ_KEY)
    head = bytes(head_size)
    overhead = head_size + len(topic_field) + 2
    pieces: list[bytes] = []
    items: list[Item] = []
    entries = keys_count = 0
    for flag, part, own in batch.decode(body):
        if b"\0" in own:
            message_properties.require_no_nul(own.decode())
        get = decode_client_properties(own.decode()).get
        # The same as batch.joined_properties, without a call per message.
        text = own + (behind if own and own[-1] != 2 else tail)
        if is_guarded:
            text = with_crc_room(text.decode())
        text_size = len(text)
        if text_size > PROPERTIES_BYTES_MAX:
            raise RefusedPutError(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        keys = common_keys or get(PROPERTY_KEYS)
        uniq_key = common_uniq_key or get(PROPERTY_UNIQ_KEY)
        if keys:
            entries += 1 + len(keys)
            keys_count += 1 + keys.count(KEY_SEPARATOR)
        elif uniq_key:
            entries += 1
        body_size = len(part)
        pieces += (head, part, topic_field, _pack_text_size(text_size), text)
        items.append(
            (
                flag,
                body_size,
                crc32(part) & CRC_MASK if body_size else 0,
                text,
                overhead + body_size + text_size,
                common_tags or get(PROPERTY_TAGS),
                keys,
                uniq_key,
            )
        )
        if not len(items) % MESSAGES_PER_STEP:
            if len(items) > BATCH_MESSAGES_MAX or keys_count > BATCH_KEYS_MAX:
                break
            yield
    if len(items) > BATCH_MESSAGES_MAX or keys_count > BATCH_KEYS_MAX:
        raise RefusedPutError(PutMessageStatus.BATCH_TOO_LARGE)
    return BatchParts(b"".join(pieces), items, entries)
