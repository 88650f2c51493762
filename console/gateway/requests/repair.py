"""Requests that read complete messages and resend them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE
from broker_core.message.sys_flag import (
    BORNHOST_V6_FLAG,
    COMPRESSED_FLAG,
    COMPRESSION_MASK,
    STOREHOST_V6_FLAG,
)
from broker_core.protocol.codes import RequestCode
from console.gateway.copies import Copies, MessageCopy
from console.gateway.requests.browse import look
from console.gateway.requests.call import reading
from console.gateway.requests.messages import put
from console.gateway.requests.records import BEFORE_BODY, HEAD, TIME, decode_all
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from console.gateway.answers import MessageQueue
    from console.gateway.requests.call import Ask
    from console.lib.stored import StoredMessage

PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""The group that RocketMQ's tools send as."""


async def copies(
    ask: Ask, address: str, broker_name: str, topic: str, queue_id: int, offset: int, count: int
) -> Copies:
    """Return messages of a queue from an offset on, without committing or waiting."""
    body, next_offset = await look(ask, address, topic, queue_id, offset, count)
    with reading(address, RequestCode.PULL_MESSAGE):
        return Copies(tuple(decoded(body, broker_name)), next_offset)


def decoded(body: bytes, broker_name: str) -> Iterator[MessageCopy]:
    view, at = memoryview(body), 0
    for stored in decode_all(body, broker_name):
        size = int.from_bytes(view[at : at + 4])
        yield copy_of(view[at : at + size], stored)
        at += size


def copy_of(view: memoryview, stored: StoredMessage) -> MessageCopy:
    head = HEAD.unpack_from(view)
    flag, sys_flag = head[4], head[7]
    at = HEAD.size + TIME.size + BEFORE_BODY.size
    at += HOST_V6_SIZE if sys_flag & BORNHOST_V6_FLAG else HOST_V4_SIZE
    at += HOST_V6_SIZE if sys_flag & STOREHOST_V6_FLAG else HOST_V4_SIZE
    return MessageCopy(stored, flag, sys_flag, bytes(view[at : at + stored.body_bytes]))


async def resend(
    ask: Ask, address: str, queue: MessageQueue, copy: MessageCopy, table: Mapping[str, str]
) -> int:
    """Store a message again with other properties; return its queue offset."""
    # Keep the compression flags; the transaction flags no longer apply.
    sys_flag = copy.sys_flag & (COMPRESSED_FLAG | COMPRESSION_MASK)
    stored = await put(
        ask, address, queue, copy.body, table, PRODUCER_GROUP, now_ms(), sys_flag, copy.flag
    )
    return stored.queue_offset
