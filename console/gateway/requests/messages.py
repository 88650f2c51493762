"""Client requests: routes, sends, pulls, offsets, membership."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.message import names, properties
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from console.gateway.answers import PERM_READ, PERM_WRITE, MessageQueue, Pulled, TopicRoute
from console.gateway.requests.call import body_of, call, reading, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.answers import Client, OutgoingMessage
    from console.gateway.requests.call import Ask

MASTER = "0"
DEFAULT_TOPIC_QUEUE_NUMS = 4
PULL_SUSPEND, PULL_SUBSCRIPTION = 2, 4
SUSPEND_MS = 15_000
PULL_TIMEOUT_S = 25.0
PULL_MESSAGES_MAX = 32
LEAVE_TIMEOUT_S = 2.0
NOTHING_PULLED = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class Stored(NamedTuple):
    """The location of a stored message."""

    offset_msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str


async def route(ask: Ask, address: str, topic: str) -> tuple[TopicRoute, dict[str, str]] | None:
    """Return a topic's route with the addresses of its masters, or None for an unknown topic."""
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    fields = {"topic": topic, "acceptStandardJsonOnly": True}
    answer = await call(ask, address, code, fields, also=frozenset({ResponseCode.TOPIC_NOT_EXIST}))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    with reading(address, code):
        return route_of(topic, body_of(answer))


def route_of(topic: str, body: Mapping[str, Any]) -> tuple[TopicRoute, dict[str, str]]:
    masters = {
        str(broker["brokerName"]): str(broker["brokerAddrs"][MASTER])
        for broker in body.get("brokerDatas") or []
        if MASTER in (broker.get("brokerAddrs") or {})
    }
    reads: list[MessageQueue] = []
    writes: list[MessageQueue] = []
    for data in body.get("queueDatas") or []:
        broker_name, perm = str(data["brokerName"]), int(data["perm"])
        if broker_name not in masters:
            continue
        if perm & PERM_READ:
            reads += queues(topic, broker_name, int(data["readQueueNums"]))
        if perm & PERM_WRITE:
            writes += queues(topic, broker_name, int(data["writeQueueNums"]))
    return TopicRoute(tuple(sorted(writes)), tuple(sorted(reads))), masters


def queues(topic: str, broker_name: str, queue_nums: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(queue_nums)]


async def send(
    ask: Ask, address: str, queue: MessageQueue, message: OutgoingMessage, group: str, uniq_key: str
) -> int:
    """Store a message under the client's message ID; return its queue offset."""
    carried = {
        names.PROPERTY_UNIQ_KEY: uniq_key,
        names.PROPERTY_KEYS: message.keys,
        names.PROPERTY_WAIT_STORE_MSG_OK: "true",
        names.PROPERTY_TAGS: message.tags,
    }
    stored = await put(ask, address, queue, message.body, carried, group, message.born_ms)
    return stored.queue_offset


async def put(
    ask: Ask,
    address: str,
    queue: MessageQueue,
    body: bytes,
    carried: Mapping[str, str],
    group: str,
    born_ms: int,
    sys_flag: int = 0,
    flag: int = 0,
) -> Stored:
    """Store a message with these properties; return its location."""
    code = RequestCode.SEND_MESSAGE_V2
    # SEND_MESSAGE_V2 has single-letter fields, in this order.
    fields = {
        "a": group,
        "b": queue.topic,
        "c": names.AUTO_CREATE_TOPIC_KEY_TOPIC,
        "d": DEFAULT_TOPIC_QUEUE_NUMS,
        "e": queue.queue_id,
        "f": sys_flag,
        "g": born_ms,
        "h": flag,
        "i": properties.encode(carried),
        "j": 0,
        "k": False,
        "m": False,
    }
    answer = await call(ask, address, code, fields, body)
    with reading(address, code):
        return Stored(
            answer.ext_fields.get("msgId") or "",
            int(answer.ext_fields.get("queueId", queue.queue_id)),
            int(answer.ext_fields["queueOffset"]),
            answer.ext_fields.get("transactionId") or "",
        )


async def pull(
    ask: Ask, address: str, queue: MessageQueue, group: str, queue_offset: int, sub_version: int
) -> Pulled:
    """Read a queue from an offset; at its end, the broker holds the request until a message
    arrives.
    """
    code = RequestCode.PULL_MESSAGE
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": PULL_MESSAGES_MAX,
        "sysFlag": PULL_SUSPEND | PULL_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": SUSPEND_MS,
        "subscription": "*",
        "subVersion": sub_version,
        "expressionType": "TAG",
    }
    answer = await call(ask, address, code, fields, timeout_s=PULL_TIMEOUT_S, also=NOTHING_PULLED)
    with reading(address, code):
        begin = int(answer.ext_fields.get("nextBeginOffset", queue_offset))
    is_found = answer.code == ResponseCode.SUCCESS
    return Pulled(max(0, begin - queue_offset) if is_found else 0, begin)


async def consumer_offset(ask: Ask, address: str, queue: MessageQueue, group: str) -> int:
    """Return a group's offset in a queue, or the queue's minimum offset without one."""
    code = RequestCode.QUERY_CONSUMER_OFFSET
    fields = {"consumerGroup": group, "topic": queue.topic, "queueId": queue.queue_id}
    answer = await call(ask, address, code, fields, also=frozenset({ResponseCode.QUERY_NOT_FOUND}))
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        code = RequestCode.GET_MIN_OFFSET
        answer = await call(ask, address, code, fields)
    with reading(address, code):
        return int(answer.ext_fields["offset"])


def commit_offset(queue: MessageQueue, group: str, queue_offset: int) -> RemotingCommand:
    """Return the oneway request that stores a consumer offset."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "commitOffset": queue_offset,
    }
    return RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, texts(fields))


async def heart_beat(ask: Ask, address: str, client: Client) -> None:
    body = java_json.encode(heart_beat_body(client))
    await call(ask, address, RequestCode.HEART_BEAT, body=body)


def heart_beat_body(client: Client) -> dict[str, Any]:
    subscribed = [*client.topics, names.retry_topic(client.consumer_group)]
    return {
        "clientID": client.client_id,
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": client.consumer_group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [
                    {
                        "classFilterMode": False,
                        "codeSet": [],
                        "expressionType": "TAG",
                        "subString": "*",
                        "subVersion": client.sub_version,
                        "tagsSet": [],
                        "topic": topic,
                    }
                    for topic in subscribed
                ],
                "unitMode": False,
            }
        ],
        "producerDataSet": [{"groupName": client.producer_group}],
    }


async def unregister(ask: Ask, address: str, client: Client) -> None:
    fields = {
        "clientID": client.client_id,
        "producerGroup": client.producer_group,
        "consumerGroup": client.consumer_group,
    }
    code = RequestCode.UNREGISTER_CLIENT
    await call(ask, address, code, fields, timeout_s=LEAVE_TIMEOUT_S)


async def members(ask: Ask, address: str, group: str) -> tuple[str, ...]:
    """Return a group's client IDs, in the order that every consumer sees."""
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    # A broker that has never seen a consumer of the group returns an error.
    answer = await call(
        ask, address, code, {"consumerGroup": group}, also=frozenset({ResponseCode.SYSTEM_ERROR})
    )
    if answer.code != ResponseCode.SUCCESS:
        return ()
    with reading(address, code):
        return tuple(sorted(str(each) for each in body_of(answer).get("consumerIdList") or []))
