"""Requests that read messages and leave no trace in a group: for people who look."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.message.names import TOOLS_CONSUMER_GROUP
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.requests.call import call, reading
from console.gateway.requests.messages import NOTHING_PULLED, PULL_SUBSCRIPTION
from console.gateway.requests.records import decode_all

if TYPE_CHECKING:
    from console.gateway.requests.call import Ask
    from console.gateway.stored import StoredMessage


class Read(NamedTuple):
    """What a queue has from an offset on, and where to go on; the same offset: nothing more."""

    messages: tuple[StoredMessage, ...]
    next_offset: int


async def read(
    ask: Ask, address: str, broker_name: str, topic: str, queue_id: int, offset: int, count: int
) -> Read:
    """Return messages of a queue from an offset on; no offset is committed, nothing waits."""
    code = RequestCode.PULL_MESSAGE
    fields = {
        # A group of RocketMQ's own that every broker has.
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
        next_offset = int(answer.ext_fields.get("nextBeginOffset", offset))
        if answer.code != ResponseCode.SUCCESS:
            return Read((), max(offset, next_offset))
        return Read(tuple(decode_all(answer.body, broker_name)), max(offset, next_offset))
