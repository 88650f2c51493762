"""Convert stored messages to the form that RocketMQ 5's clients receive.

Source: proxy/grpc/v2/common/GrpcConverter.java buildMessage (5.3.3).
"""

from __future__ import annotations

import zlib
from hashlib import md5
from typing import TYPE_CHECKING

from broker_core.grpc_messages.enums import DigestType, Encoding, MessageType
from broker_core.grpc_messages.shared import (
    DeadLetterQueue,
    Digest,
    Message,
    Resource,
    SystemProperties,
)
from broker_core.grpc_messages.times import timestamp_of
from broker_core.grpc_services.property_names import (
    DELIVER_MS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    RESERVED,
    SHARDING_KEY,
    TIMER_NAMES,
    TRACE_CONTEXT,
)
from broker_core.message import names
from broker_core.message.ids import offset_msg_id, parse_host
from broker_core.message.sys_flag import COMPRESSED_FLAG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.message.message import MessageExt

INFLATING = ("JAVA", "PYTHON", "GO", "GOLANG", "CPP")
"""Clients that recognize zlib and gzip by their first bytes. Others expect gzip."""
INFLATED_BYTES_MAX = 16 * 1024 * 1024
ANY_FORMAT = 32 + zlib.MAX_WBITS


def message_of(
    stored: MessageExt, receipt_handle: str | None = None, *, attempt: int | None = None
) -> Message:
    """Return a stored message with all fields that clients receive.

    `attempt` is the number of this delivery; None means one more than the record's count.
    """
    properties = stored.properties
    get = properties.get
    system = SystemProperties(
        tag=stored.tags,
        keys=[key for key in (stored.keys or "").split(names.KEY_SEPARATOR) if key],
        message_id=stored.uniq_key
        or offset_msg_id(parse_host(stored.store_host), stored.commit_log_offset),
        body_digest=Digest(DigestType.MD5, digest_of(stored.body)),
        body_encoding=Encoding.GZIP if stored.sys_flag & COMPRESSED_FLAG else Encoding.IDENTITY,
        message_type=type_of(properties),
        born_timestamp=timestamp_of(stored.born_timestamp),
        born_host=stored.born_host,
        store_timestamp=timestamp_of(stored.store_timestamp),
        store_host=stored.store_host,
        receipt_handle=receipt_handle,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        delivery_attempt=stored.reconsume_times + 1 if attempt is None else attempt,
        message_group=get(SHARDING_KEY),
        trace_context=get(TRACE_CONTEXT),
    )
    deliver_ms = get(DELIVER_MS, "")
    if deliver_ms.isascii() and deliver_ms.isdecimal() and len(deliver_ms) < 16:
        system.delivery_timestamp = timestamp_of(int(deliver_ms))
    origin = get(DLQ_ORIGIN_TOPIC)
    if origin is not None:
        system.dead_letter_queue = DeadLetterQueue(origin, get(DLQ_ORIGIN_MESSAGE_ID, ""))
    user = {name: value for name, value in properties.items() if name not in RESERVED}
    return Message(Resource("", stored.topic), user, system, stored.body)


def type_of(properties: Mapping[str, str]) -> MessageType:
    """Return the message type that these properties indicate."""
    if properties.get(names.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION
    if names.PROPERTY_DELAY_TIME_LEVEL in properties or not TIMER_NAMES.isdisjoint(properties):
        return MessageType.DELAY
    return MessageType.FIFO if SHARDING_KEY in properties else MessageType.NORMAL


def needs_inflating(message: Message, language: str) -> bool:
    """Return whether a body must be decompressed for a client, which can't do it itself."""
    system = message.system_properties
    return (
        system is not None
        and system.body_encoding == Encoding.GZIP
        and language.upper() not in INFLATING
    )


def inflate(message: Message) -> None:
    """Decompress a body; a damaged or too long one is returned as stored."""
    system = message.system_properties
    assert system is not None
    inflater = zlib.decompressobj(ANY_FORMAT)
    try:
        body = inflater.decompress(message.body, INFLATED_BYTES_MAX)
    except zlib.error:
        return
    if inflater.eof:
        message.body = body
        system.body_encoding = Encoding.IDENTITY
        system.body_digest = Digest(DigestType.MD5, digest_of(body))


def digest_of(body: bytes) -> str:
    """Return the checksum that clients compare."""
    return md5(body, usedforsecurity=False).hexdigest().upper()
