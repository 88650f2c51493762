"""The demo's requests, one function each: routes, sends, pulls, offsets, membership."""

from __future__ import annotations

import itertools
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_core.errors import FrameError, RemotingError, RequestRefusedError
from broker_core.message import names, properties
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker_core.remoting.client import RemotingClient

TIMEOUT_S = 5.0
QUEUE_NUMS = 4
PERM_READ, PERM_WRITE = 4, 2
MASTER = "0"

PULL_SUSPEND, PULL_SUBSCRIPTION = 2, 4
SUSPEND_MS = 15_000
PULL_TIMEOUT_S = 25.0
PULL_MESSAGES_MAX = 32

_UNIQ_PREFIX = f"{os.getpid() & 0xFFFF:04X}{secrets.token_hex(8).upper()}"
_uniq_counter = itertools.count(1)


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """One queue of one broker's topic, with the address to talk to."""

    topic: str
    broker_name: str
    queue_id: int
    address: str


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Where a topic can be written, where read."""

    write_queues: tuple[Queue, ...]
    read_queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    topic: str
    body: bytes
    tags: str
    keys: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought: how far the queue was read."""

    message_count: int
    next_begin_offset: int
    may_hold_more: bool


class DemoCalls:
    """Requests over one RemotingClient, to the first name server that answers."""

    def __init__(self, client: RemotingClient, name_servers: Iterable[str]) -> None:
        self._client = client
        self._name_servers = list(name_servers)

    async def ask(
        self, address: str, request: RemotingCommand, timeout_s: float = TIMEOUT_S
    ) -> RemotingCommand:
        return await self._client.request(address, request, timeout_s)

    async def ask_name_server(
        self, code: RequestCode, ext_fields: dict[str, str]
    ) -> RemotingCommand:
        """Ask the name servers in turn.

        Raises:
            RemotingError: none of them answers.
        """
        failure: RemotingError | None = None
        for address in self._name_servers:
            try:
                return await self.ask(address, RemotingCommand.request(code, ext_fields))
            except RemotingError as error:
                failure = error
        raise failure or RemotingError("no name server is configured")

    async def route(self, topic: str) -> TopicRoute | None:
        """Return a topic's route, None when no broker has it."""
        answer = await self.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": "true"},
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return parse_route(topic, body_of(succeeded(answer)))

    async def masters(self) -> list[str]:
        """Return the addresses of all masters."""
        answer = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        table = body_of(succeeded(answer)).get("brokerAddrTable") or {}
        addresses = (broker["brokerAddrs"].get(MASTER) for broker in table.values())
        return [address for address in addresses if address]

    async def create_topic(self, address: str, topic: str) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": names.AUTO_CREATE_TOPIC_KEY_TOPIC,
            "readQueueNums": str(QUEUE_NUMS),
            "writeQueueNums": str(QUEUE_NUMS),
            "perm": str(PERM_READ | PERM_WRITE),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        succeeded(
            await self.ask(
                address, RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            )
        )

    async def send(self, queue: Queue, message: Outgoing, group: str, born_ms: int) -> None:
        text = properties.encode(
            {
                names.PROPERTY_UNIQ_KEY: f"{_UNIQ_PREFIX}{next(_uniq_counter):08X}"[-32:],
                names.PROPERTY_KEYS: message.keys,
                names.PROPERTY_WAIT_STORE_MSG_OK: "true",
                names.PROPERTY_TAGS: message.tags,
            }
        )
        # The short names of SEND_MESSAGE_V2, in its order.
        fields = {
            "a": group,
            "b": queue.topic,
            "c": names.AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": str(QUEUE_NUMS),
            "e": str(queue.queue_id),
            "f": "0",
            "g": str(born_ms),
            "h": "0",
            "i": text,
            "j": "0",
            "k": "false",
            "m": "false",
        }
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, fields, message.body)
        succeeded(await self.ask(queue.address, request))

    async def pull(self, queue: Queue, group: str, queue_offset: int, sub_version: int) -> Pulled:
        """Read a queue from an offset, held by the broker while there is nothing."""
        fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(queue_offset),
            "maxMsgNums": str(PULL_MESSAGES_MAX),
            "sysFlag": str(PULL_SUSPEND | PULL_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(SUSPEND_MS),
            "subscription": "*",
            "subVersion": str(sub_version),
            "expressionType": "TAG",
        }
        answer = await self.ask(
            queue.address, RemotingCommand.request(RequestCode.PULL_MESSAGE, fields), PULL_TIMEOUT_S
        )
        is_found = answer.code == ResponseCode.SUCCESS
        if not is_found and answer.code not in {
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        }:
            succeeded(answer)
        begin = int(answer.ext_fields.get("nextBeginOffset", queue_offset))
        return Pulled(
            message_count=max(0, begin - queue_offset) if is_found else 0,
            next_begin_offset=begin,
            may_hold_more=is_found,
        )

    async def consumer_offset(self, queue: Queue, group: str) -> int:
        """Return where a group goes on in a queue: its offset, else the queue's beginning."""
        fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
        }
        answer = await self.ask(
            queue.address, RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            answer = await self.ask(
                queue.address, RemotingCommand.request(RequestCode.GET_MIN_OFFSET, fields)
            )
        return int(succeeded(answer).ext_fields["offset"])

    async def commit(self, queue: Queue, group: str, queue_offset: int) -> None:
        fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "commitOffset": str(queue_offset),
        }
        await self._client.oneway(
            queue.address, RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        )

    async def heartbeat(self, address: str, body: Mapping[str, Any]) -> None:
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=java_json.encode(body))
        succeeded(await self.ask(address, request))

    async def members(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group, in the order that every member sees."""
        request = RemotingCommand.request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}
        )
        answer = await self.ask(address, request)
        if answer.code != ResponseCode.SUCCESS:
            return []
        return sorted(str(each) for each in body_of(answer).get("consumerIdList") or [])

    async def unregister(
        self, address: str, client_id: str, producer_group: str, consumer_group: str
    ) -> None:
        fields = {
            "clientID": client_id,
            "producerGroup": producer_group,
            "consumerGroup": consumer_group,
        }
        await self.ask(
            address, RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, fields), timeout_s=2.0
        )


def heartbeat_body(
    client_id: str,
    producer_group: str,
    consumer_group: str,
    topics: Iterable[str],
    sub_version: int,
) -> dict[str, Any]:
    """Return the heartbeat of a client that sends, and reads all of some topics."""
    subscribed = [*topics, names.retry_topic(consumer_group)]
    return {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": consumer_group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [
                    {
                        "classFilterMode": False,
                        "codeSet": [],
                        "expressionType": "TAG",
                        "subString": "*",
                        "subVersion": sub_version,
                        "tagsSet": [],
                        "topic": topic,
                    }
                    for topic in subscribed
                ],
                "unitMode": False,
            }
        ],
        "producerDataSet": [{"groupName": producer_group}],
    }


def parse_route(topic: str, body: Mapping[str, Any]) -> TopicRoute:
    address = {
        broker["brokerName"]: (broker.get("brokerAddrs") or {}).get(MASTER)
        for broker in body.get("brokerDatas") or []
    }
    reads: list[Queue] = []
    writes: list[Queue] = []
    for data in body.get("queueDatas") or []:
        broker_name, perm = data["brokerName"], int(data["perm"])
        where = address.get(broker_name)
        if where is None:
            continue
        if perm & PERM_READ:
            reads += [
                Queue(topic, broker_name, queue_id, where)
                for queue_id in range(int(data["readQueueNums"]))
            ]
        if perm & PERM_WRITE:
            writes += [
                Queue(topic, broker_name, queue_id, where)
                for queue_id in range(int(data["writeQueueNums"]))
            ]
    return TopicRoute(write_queues=tuple(sorted(writes)), read_queues=tuple(sorted(reads)))


def allocate(queues: Iterable[Queue], members: list[str], client_id: str) -> list[Queue]:
    """Return this member's queues: equal, adjacent shares, as AllocateMessageQueueAveragely."""
    if client_id not in members:
        return []
    every = sorted(queues)
    share, rest = divmod(len(every), len(members))
    index = members.index(client_id)
    start = index * share + min(index, rest)
    return every[start : start + share + (1 if index < rest else 0)]


def succeeded(answer: RemotingCommand) -> RemotingCommand:
    """Return the answer.

    Raises:
        RequestRefusedError: its code is not SUCCESS.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefusedError(answer.code, answer.remark or f"response code {answer.code}")
    return answer


def body_of(answer: RemotingCommand) -> dict[str, Any]:
    try:
        body = java_json.decode(answer.body)
    except ValueError as error:
        raise FrameError(f"the answer's body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise FrameError("the answer's body is not a JSON object")
    return body
