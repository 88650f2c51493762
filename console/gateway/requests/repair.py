"""Requests that read messages whole and send them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message import names, properties
from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE
from broker_core.message.names import TOOLS_CONSUMER_GROUP
from broker_core.message.sys_flag import (
    BORNHOST_V6_FLAG,
    COMPRESSED_FLAG,
    COMPRESSION_MASK,
    STOREHOST_V6_FLAG,
)
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.copies import Copies, MessageCopy
from console.gateway.moment import now_ms
from console.gateway.requests.call import call, reading
from console.gateway.requests.messages import (
    DEFAULT_TOPIC_QUEUE_NUMS,
    NOTHING_PULLED,
    PULL_SUBSCRIPTION,
)
from console.gateway.requests.records import BEFORE_BODY, HEAD, TIME, decode_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from console.gateway.answers import MessageQueue
    from console.gateway.requests.call import Ask
    from console.gateway.stored import StoredMessage

PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""RocketMQ's tools send as this."""


async def copies(
    ask: Ask, address: str, broker_name: str, topic: str, queue_id: int, offset: int, count: int
) -> Copies:
    """Return messages of a queue from an offset on; no offset is committed, nothing waits."""
    code = RequestCode.PULL_MESSAGE
    fields = {
        "consumerGroup": TOOLS_CONSUMER_GROUP,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": PULL_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    answer = await call(ask, address, code, fields, also=NOTHING_PULLED)
    with reading(address, code):
        next_offset = max(offset, int(answer.ext_fields.get("nextBeginOffset", offset)))
        if answer.code != ResponseCode.SUCCESS:
            return Copies((), next_offset)
        return Copies(tuple(decoded(answer.body, broker_name)), next_offset)


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
    """Store a message once more, with other properties; return its queue offset."""
    code = RequestCode.SEND_MESSAGE_V2
    # SEND_MESSAGE_V2 has one letter a field, in this order.
    fields = {
        "a": PRODUCER_GROUP,
        "b": queue.topic,
        "c": names.AUTO_CREATE_TOPIC_KEY_TOPIC,
        "d": DEFAULT_TOPIC_QUEUE_NUMS,
        "e": queue.queue_id,
        # How the body is packed; whether it was half a transaction is over.
        "f": copy.sys_flag & (COMPRESSED_FLAG | COMPRESSION_MASK),
        "g": now_ms(),
        "h": copy.flag,
        "i": properties.encode(table),
        "j": 0,
        "k": False,
        "m": False,
    }
    answer = await call(ask, address, code, fields, copy.body)
    with reading(address, code):
        return int(answer.ext_fields["queueOffset"])
