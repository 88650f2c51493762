"""Message records in pull answers, in the client format.

    size i4 | magic i4 | body crc i4 | queue id i4 | flag i4 | queue offset i8 | log offset i8
    | sys_flag i4 | born i8 | born host | stored i8 | store host | reconsume times i4
    | prepared transaction offset i8 | body size i4, body | topic size i1 (i2), topic
    | properties size i2, properties

A host is 4 or 16 bytes of address and 4 of port. Source: common/message/MessageDecoder.java.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from broker_core.message import ids, properties
from broker_core.message.sys_flag import (
    BORNHOST_V6_FLAG,
    COMPRESSED_FLAG,
    STOREHOST_V6_FLAG,
)
from console.gateway.requests.unpacking import unpacked
from console.lib.stored import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC_V1, MAGIC_V2 = -626843481, -626843477
HEAD = struct.Struct(">iiiiiqqiq")
TIME = struct.Struct(">q")
BEFORE_BODY = struct.Struct(">iqi")
TOPIC_SIZES = {MAGIC_V1: struct.Struct(">B"), MAGIC_V2: struct.Struct(">H")}
PROPERTIES_SIZE = struct.Struct(">H")
BODY_SHOWN_MAX = 64 * 1024
"""Bytes of a body to keep; this is as much as pages show."""
BODY_WHOLE_MAX = 64 << 20
"""Limit for whole bodies: more than brokers store, but safe for memory."""


def decode_all(
    body: bytes, broker_name: str, body_max: int = BODY_SHOWN_MAX
) -> Iterator[StoredMessage]:
    """Yield the messages of an answer, with bodies cut to the limit.

    Raises:
        ValueError: the bytes aren't a valid record.
    """
    view, at = memoryview(body), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        if not HEAD.size < size <= len(view) - at:
            raise ValueError(f"a record of {size} bytes at {at} of {len(view)}")
        try:
            yield decode(view[at : at + size], broker_name, body_max)
        except (struct.error, KeyError) as error:
            raise ValueError(f"no record at {at}: {error}") from error
        at += size


def decode(view: memoryview, broker_name: str, body_max: int) -> StoredMessage:
    head = HEAD.unpack_from(view)
    _size, magic, _crc, queue_id, _flag, queue_offset, log_offset, sys_flag, born_ms = head
    at = HEAD.size
    born_size = ids.HOST_V6_SIZE if sys_flag & BORNHOST_V6_FLAG else ids.HOST_V4_SIZE
    born_host = view[at : at + born_size]
    at += born_size
    (store_ms,) = TIME.unpack_from(view, at)
    at += TIME.size
    store_size = ids.HOST_V6_SIZE if sys_flag & STOREHOST_V6_FLAG else ids.HOST_V4_SIZE
    store_host = bytes(view[at : at + store_size])
    at += store_size
    reconsume_times, prepared_offset, body_bytes = BEFORE_BODY.unpack_from(view, at)
    at += BEFORE_BODY.size
    raw = view[at : at + body_bytes]
    at += body_bytes
    topic_size = TOPIC_SIZES[magic]
    (length,) = topic_size.unpack_from(view, at)
    at += topic_size.size
    topic = str(view[at : at + length], "utf-8")
    at += length
    (length,) = PROPERTIES_SIZE.unpack_from(view, at)
    at += PROPERTIES_SIZE.size
    text = str(view[at : at + length], "utf-8", errors="replace")
    body, is_cut = unpacked(raw, sys_flag, body_max)
    return StoredMessage(
        topic=topic,
        broker_name=broker_name,
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=log_offset,
        offset_msg_id=ids.offset_msg_id(store_host, log_offset),
        store_ms=store_ms,
        born_ms=born_ms,
        born_host=ids.host_text(born_host),
        reconsume_times=reconsume_times,
        properties=properties.decode(text),
        other_properties=properties.skipped(text),
        body=body,
        body_bytes=body_bytes,
        is_compressed=bool(sys_flag & COMPRESSED_FLAG),
        is_cut=is_cut,
        store_host=ids.host_text(store_host),
        store_size=len(view),
        sys_flag=sys_flag,
        prepared_offset=prepared_offset,
    )
