"""Requests that read messages without affecting any group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.message import ids, names
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.errors import SYSTEM_ERROR, RequestFailedError
from console.gateway.requests.call import body_of, call, reading
from console.gateway.requests.messages import NOTHING_PULLED, PULL_SUBSCRIPTION
from console.gateway.requests.records import BODY_SHOWN_MAX, decode_all
from console.lib.stored import StoredMessage

if TYPE_CHECKING:
    from console.gateway.requests.call import Ask


KEY_COUNT_MAX = 64
"""Default maximum number of messages in a broker's answer."""
INDEX_TIME_MS = 1_000
"""The index keeps whole seconds, so a message's entry can be up to this much earlier."""
NO_MESSAGE = "can not find message"
NO_KEY = frozenset({ResponseCode.QUERY_NOT_FOUND})


class Read(NamedTuple):
    """Messages of a queue from an offset on, and the next offset (unchanged: no more messages)."""

    messages: tuple[StoredMessage, ...]
    next_offset: int


async def read(
    ask: Ask,
    address: str,
    broker_name: str,
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    body_max: int = BODY_SHOWN_MAX,
) -> Read:
    """Return messages of a queue from an offset on, without committing or waiting."""
    body, next_offset = await look(ask, address, topic, queue_id, offset, count)
    with reading(address, RequestCode.PULL_MESSAGE):
        return Read(tuple(decode_all(body, broker_name, body_max)), next_offset)


async def look(
    ask: Ask, address: str, topic: str, queue_id: int, offset: int, count: int
) -> tuple[bytes, int]:
    """Return records of a queue from an offset on (b"" if there are none), and the next offset."""
    code = RequestCode.PULL_MESSAGE
    fields = {
        # A built-in RocketMQ group that every broker has.
        "consumerGroup": names.TOOLS_CONSUMER_GROUP,
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
    return (answer.body if answer.code == ResponseCode.SUCCESS else b""), next_offset


class Indexed(NamedTuple):
    """A broker's index entries for a key; `is_full` if there may be older ones.

    `has_index` is true if the index is known to contain any message.
    """

    messages: tuple[StoredMessage, ...]
    is_full: bool
    has_index: bool


async def view(
    ask: Ask, address: str, broker_name: str, commit_log_offset: int
) -> StoredMessage | None:
    """Return the message at a log offset, or None if it doesn't exist or has expired."""
    code = RequestCode.VIEW_MESSAGE_BY_ID
    try:
        answer = await call(ask, address, code, {"offset": commit_log_offset})
    except RequestFailedError as error:
        # The broker returns the same code for all other errors.
        if error.code == SYSTEM_ERROR and error.remark.startswith(NO_MESSAGE):
            return None
        raise
    with reading(address, code):
        return next(decode_all(answer.body, broker_name), None)


async def halves(
    ask: Ask, address: str, broker_name: str, fields: dict[str, str | int]
) -> tuple[StoredMessage, ...] | None:
    """Return half messages by `key` or `queueOffset`, without bodies, including decided ones.

    None: a RocketMQ broker, which returns them like other messages.
    """
    code = RequestCode.GET_HALF_MESSAGES
    try:
        answer = await call(ask, address, code, fields)
    except RequestFailedError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        raise
    with reading(address, code):
        # Earlier versions ignore these fields and return undecided transactions.
        rows = [each for each in body_of(answer)["halves"] if "outcome" in each]
        return tuple(half_of(each, broker_name) for each in rows)


def half_of(row: dict[str, Any], broker_name: str) -> StoredMessage:
    at, store_host = int(row["commitLogOffset"]), str(row["storeHost"])
    carried = {
        names.PROPERTY_UNIQ_KEY: str(row["msgId"]),
        names.PROPERTY_KEYS: str(row["keys"]),
        names.PROPERTY_TAGS: str(row["tags"]),
        names.PROPERTY_PRODUCER_GROUP: str(row["group"]),
        names.PROPERTY_REAL_TOPIC: str(row["topic"]),
        names.PROPERTY_REAL_QUEUE_ID: str(int(row["queueId"])),
        names.PROPERTY_TRANSACTION_CHECK_TIMES: str(int(row["checkTimes"] or 0) or ""),
    }
    return StoredMessage(
        topic=names.RMQ_SYS_TRANS_HALF_TOPIC,
        broker_name=broker_name,
        queue_id=0,
        queue_offset=int(row["queueOffset"]),
        commit_log_offset=at,
        offset_msg_id=ids.offset_msg_id(ids.parse_host(store_host), at),
        store_ms=int(row["storeTimestamp"]),
        born_ms=int(row["bornTimestamp"]),
        born_host=str(row["bornHost"]),
        reconsume_times=0,
        properties={name: value for name, value in carried.items() if value},
        body=None,
        body_bytes=int(row["bodySize"]),
        store_host=store_host,
        store_size=int(row["storeSize"]),
        outcome=str(row["outcome"]),
    )


async def query(
    ask: Ask, address: str, broker_name: str, topic: str, key: str, low_ms: int, high_ms: int
) -> Indexed:
    """Return the newest messages with a key in a time range, limited to one answer."""
    code = RequestCode.QUERY_MESSAGE
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": KEY_COUNT_MAX,
        "beginTimestamp": max(0, low_ms - INDEX_TIME_MS),
        "endTimestamp": high_ms,
    }
    answer = await call(ask, address, code, fields, also=NO_KEY)
    with reading(address, code):
        has_index = int(answer.ext_fields.get("indexLastUpdatePhyoffset", 1)) > 0
        if answer.code != ResponseCode.SUCCESS:
            return Indexed((), is_full=False, has_index=has_index)
        named = tuple(decode_all(answer.body, broker_name))
    # The index stores hashes, so different keys and topics can collide.
    found = tuple(
        each
        for each in named
        if each.topic == topic and each.has_key(key) and low_ms <= each.store_ms < high_ms
    )
    return Indexed(found, is_full=len(named) >= KEY_COUNT_MAX, has_index=has_index)
