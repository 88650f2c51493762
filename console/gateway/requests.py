"""Admin requests: one function each, which asks one address and returns plain values.

A function takes `ask`, which sends a command to an address within the gateway's time limit, and
raises the errors of `console.gateway.errors`. The wire's keys stay here.

Source: tools/admin/DefaultMQAdminExtImpl.java, client/impl/MQClientAPIImpl.java (4.9.8).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from console.gateway.answers import (
    BrokerNode,
    GroupConfig,
    Member,
    QueueStatus,
    RuntimeInfo,
    Subscription,
    TopicConfig,
    Traffic,
)
from console.gateway.errors import (
    CONSUMER_NOT_ONLINE,
    SYSTEM_ERROR,
    RequestFailedError,
    UnreadableAnswerError,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUCCESS = 0
TOPIC_AT_GROUP = "@"
# The topic whose permissions a topic created by a tool takes over, as RocketMQ's tools send it.
DEFAULT_TOPIC = "TBW102"
LATEST_TIMESTAMP = -1
TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"

Queue = tuple[str, int]  # topic, queue_id


class Ask(Protocol):
    """Sends a command to an address and returns its answer."""

    async def __call__(self, address: str, command: RemotingCommand) -> RemotingCommand: ...


@dataclass(frozen=True, slots=True)
class Consumed:
    """One broker's view of a group in one queue."""

    broker_offset: int
    consumer_offset: int
    last_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """One broker's part of a group's progress."""

    consume_tps: float
    queues: dict[Queue, Consumed]


@dataclass(frozen=True, slots=True)
class Connections:
    """One broker's part of a group's members; broker_names of a member stay empty."""

    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str
    message_model: str
    consume_from_where: str


async def call(
    ask: Ask,
    address: str,
    code: RequestCode,
    ext_fields: Mapping[str, object] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """Send a request and return its answer when that says success.

    Raises:
        RequestFailedError: the answer carries another code.
    """
    answer = await ask(address, RemotingCommand.request(code, texts(ext_fields or {}), body))
    if answer.code != SUCCESS:
        raise refused(address, answer.code, answer.remark)
    return answer


def texts(fields: Mapping[str, object]) -> dict[str, str]:
    """Return header fields as the wire wants them: text, booleans as Java writes them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in fields.items()
    }


@contextmanager
def reading(address: str, code: RequestCode) -> Iterator[None]:
    """Turn what goes wrong while an answer is taken apart into one sentence."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__} {error}"
        raise UnreadableAnswerError(address, code.name, reason) from error


def body_of(answer: RemotingCommand) -> Any:
    return java_json.decode(answer.body)


def queue_of(key: str) -> tuple[str, str, int]:
    """Return topic, broker_name, queue_id of a MessageQueue that is the key of a map."""
    queue = json.loads(key)
    return str(queue["topic"]), str(queue["brokerName"]), int(queue["queueId"])


def timestamp(value: object) -> int | None:
    """Return a time in ms; the wire says 0 or less for none."""
    number = int(str(value))
    return number if number > 0 else None


# --- Name server ------------------------------------------------------------------------------


async def cluster_info(ask: Ask, address: str) -> tuple[BrokerNode, ...]:
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    answer = await call(ask, address, code)
    with reading(address, code):
        table = body_of(answer)["brokerAddrTable"]
        nodes = [
            BrokerNode(str(data.get("cluster", "")), str(name), int(broker_id), str(broker_address))
            for name, data in table.items()
            for broker_id, broker_address in data["brokerAddrs"].items()
        ]
        return tuple(sorted(nodes, key=lambda node: (node.broker_name, node.broker_id)))


async def delete_topic_in_namesrv(ask: Ask, address: str, topic: str) -> None:
    await call(ask, address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})


# --- Broker -----------------------------------------------------------------------------------


async def runtime_info(ask: Ask, node: BrokerNode, read_at_ms: int) -> RuntimeInfo:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    answer = await call(ask, node.address, code)
    with reading(node.address, code):
        table = {str(key): str(value) for key, value in body_of(answer)["table"].items()}
    return RuntimeInfo(
        node=node,
        read_at_ms=read_at_ms,
        version=table.get("brokerVersionDesc"),
        boot_timestamp_ms=whole(table.get("bootTimestamp")),
        put_tps=first_number(table.get("putTps")),
        # 5.x renamed the key.
        get_tps=first_number(table.get("getTransferredTps", table.get("getTransferedTps"))),
        put_today=difference(table, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        get_today=difference(table, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        commit_log_disk_ratio=first_number(table.get("commitLogDiskRatio")),
        commit_log_min_offset=whole(table.get("commitLogMinOffset")),
        commit_log_max_offset=whole(table.get("commitLogMaxOffset")),
        earliest_message_ms=positive(whole(table.get("earliestMessageTimeStamp"))),
        dispatch_behind_bytes=whole(table.get("dispatchBehindBytes")),
        flush_behind_bytes=whole(table.get("remainHowManyDataToFlush")),
        values=table,
    )


def first_number(text: str | None) -> float | None:
    """Return the first of the numbers in text: rates come as averages over 10 s, 1 min, 10 min."""
    try:
        return float((text or "").split()[0])
    except (ValueError, IndexError):
        return None


def whole(text: str | None) -> int | None:
    """Return the number that text starts with; sizes come with their unit behind."""
    number = first_number(text)
    if number is None:
        return None
    # 64-bit numbers do not fit a float.
    first = (text or "").split()[0]
    return int(first) if first.lstrip("-").isdigit() else int(number)


def positive(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None


def difference(table: Mapping[str, str], now: str, before: str) -> int | None:
    later, earlier = whole(table.get(now)), whole(table.get(before))
    return None if later is None or earlier is None else max(0, later - earlier)


async def broker_config(ask: Ask, address: str) -> dict[str, str]:
    code = RequestCode.GET_BROKER_CONFIG
    answer = await call(ask, address, code)
    with reading(address, code):
        lines = answer.body.decode().splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _equals, value in pairs}


async def traffic(ask: Ask, address: str, stats_name: str, stats_key: str) -> Traffic | None:
    """Return a figure's increments; None when nothing was counted since the broker started."""
    code = RequestCode.VIEW_BROKER_STATS_DATA
    try:
        answer = await call(ask, address, code, {"statsName": stats_name, "statsKey": stats_key})
    except RequestFailedError as error:
        if error.code == SYSTEM_ERROR and "not exist" in error.remark:
            return None
        raise
    with reading(address, code):
        data = body_of(answer)
        minute, hour, day = (
            int(data[span]["sum"]) for span in ("statsMinute", "statsHour", "statsDay")
        )
        return Traffic(
            minute_tps=float(data["statsMinute"]["tps"]),
            hour_sum=hour if hour >= minute else None,
            day_sum=day if day >= max(hour, minute) else None,
        )


# --- Topics -----------------------------------------------------------------------------------


async def topic_configs(ask: Ask, address: str) -> dict[str, TopicConfig]:
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    answer = await call(ask, address, code)
    with reading(address, code):
        table = body_of(answer)["topicConfigTable"]
        return {str(name): topic_config(str(name), config) for name, config in table.items()}


def topic_config(name: str, config: Mapping[str, Any]) -> TopicConfig:
    return TopicConfig(
        topic=name,
        read_queue_nums=int(config["readQueueNums"]),
        write_queue_nums=int(config["writeQueueNums"]),
        perm=int(config["perm"]),
        order=bool(config.get("order", False)),
        topic_sys_flag=int(config.get("topicSysFlag", 0)),
        topic_filter_type=str(config.get("topicFilterType", "SINGLE_TAG")),
    )


async def update_topic(ask: Ask, address: str, config: TopicConfig) -> None:
    fields = {
        "topic": config.topic,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": config.perm,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "order": config.order,
    }
    await call(ask, address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


async def delete_topic_in_broker(ask: Ask, address: str, topic: str) -> None:
    await call(ask, address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


async def topic_stats(ask: Ask, address: str, topic: str) -> tuple[QueueStatus, ...]:
    code = RequestCode.GET_TOPIC_STATS_INFO
    answer = await call(ask, address, code, {"topic": topic})
    with reading(address, code):
        rows = []
        for key, offsets in body_of(answer)["offsetTable"].items():
            _topic, broker_name, queue_id = queue_of(key)
            rows.append(
                QueueStatus(
                    broker_name=broker_name,
                    queue_id=queue_id,
                    min_offset=int(offsets["minOffset"]),
                    max_offset=int(offsets["maxOffset"]),
                    last_update_ms=timestamp(offsets.get("lastUpdateTimestamp", 0)),
                )
            )
        return tuple(sorted(rows, key=lambda row: (row.broker_name, row.queue_id)))


async def topic_groups(ask: Ask, address: str, topic: str) -> tuple[str, ...]:
    """Return the groups that consume a topic, online or not."""
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    answer = await call(ask, address, code, {"topic": topic})
    with reading(address, code):
        return tuple(sorted(str(name) for name in body_of(answer).get("groupList") or ()))


# --- Groups -----------------------------------------------------------------------------------


async def group_configs(ask: Ask, address: str) -> dict[str, GroupConfig]:
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    answer = await call(ask, address, code)
    with reading(address, code):
        table = body_of(answer)["subscriptionGroupTable"]
        return {str(name): group_config(str(name), config) for name, config in table.items()}


def group_config(name: str, config: Mapping[str, Any]) -> GroupConfig:
    default = GroupConfig(name)
    return GroupConfig(
        group=name,
        consume_enable=bool(config.get("consumeEnable", default.consume_enable)),
        consume_from_min_enable=bool(
            config.get("consumeFromMinEnable", default.consume_from_min_enable)
        ),
        consume_broadcast_enable=bool(
            config.get("consumeBroadcastEnable", default.consume_broadcast_enable)
        ),
        retry_queue_nums=int(config.get("retryQueueNums", default.retry_queue_nums)),
        retry_max_times=int(config.get("retryMaxTimes", default.retry_max_times)),
        broker_id=int(config.get("brokerId", default.broker_id)),
        which_broker_when_consume_slowly=int(
            config.get("whichBrokerWhenConsumeSlowly", default.which_broker_when_consume_slowly)
        ),
        notify_consumer_ids_changed_enable=bool(
            config.get("notifyConsumerIdsChangedEnable", default.notify_consumer_ids_changed_enable)
        ),
    )


async def update_group(ask: Ask, address: str, config: GroupConfig) -> None:
    body = {
        "brokerId": config.broker_id,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "groupName": config.group,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "retryMaxTimes": config.retry_max_times,
        "retryQueueNums": config.retry_queue_nums,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
    }
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await call(ask, address, code, body=java_json.encode(body))


async def delete_group(ask: Ask, address: str, group: str, *, remove_offset: bool) -> None:
    fields = {
        "groupName": group,
        "removeOffset": remove_offset,
        "cleanOffset": remove_offset,  # 5.x's name of the same field
    }
    await call(ask, address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)


async def group_connections(ask: Ask, address: str, group: str) -> Connections | None:
    """Return a group's members on one broker; None when it has none there."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    try:
        answer = await call(ask, address, code, {"consumerGroup": group})
    except RequestFailedError as error:
        if error.code == CONSUMER_NOT_ONLINE:
            return None
        raise
    with reading(address, code):
        data = body_of(answer)
        return Connections(
            members=tuple(
                Member(
                    client_id=str(each.get("clientId", "")),
                    client_addr=str(each.get("clientAddr", "")),
                    language=str(each.get("language", "")),
                    version=int(each.get("version", 0)),
                    broker_names=(),
                )
                for each in data.get("connectionSet") or ()
            ),
            subscriptions=tuple(
                Subscription(
                    topic=str(topic),
                    expression_type=str(each.get("expressionType") or "TAG"),
                    sub_string=str(each.get("subString") or "*"),
                )
                for topic, each in sorted((data.get("subscriptionTable") or {}).items())
            ),
            consume_type=str(data.get("consumeType", "")),
            message_model=str(data.get("messageModel", "")),
            consume_from_where=str(data.get("consumeFromWhere", "")),
        )


async def consume_stats(ask: Ask, address: str, group: str, topic: str = "") -> ConsumeStats:
    code = RequestCode.GET_CONSUME_STATS
    fields = {"consumerGroup": group} | ({"topic": topic} if topic else {})
    answer = await call(ask, address, code, fields)
    with reading(address, code):
        data = body_of(answer)
        queues = {}
        for key, offsets in (data.get("offsetTable") or {}).items():
            topic_name, _broker_name, queue_id = queue_of(key)
            queues[topic_name, queue_id] = Consumed(
                broker_offset=int(offsets["brokerOffset"]),
                consumer_offset=int(offsets["consumerOffset"]),
                last_timestamp_ms=timestamp(offsets.get("lastTimestamp", 0)),
            )
        return ConsumeStats(consume_tps=float(data.get("consumeTps", 0)), queues=queues)


# --- Offsets ----------------------------------------------------------------------------------


async def consumer_offsets(ask: Ask, address: str) -> dict[str, dict[Queue, int]]:
    """Return all committed consumer offsets of a broker, by group."""
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    try:
        answer = await call(ask, address, code)
    except RequestFailedError as error:
        # 4.9 answers an empty table with an error without words.
        if error.code == SYSTEM_ERROR and not error.remark:
            return {}
        raise
    with reading(address, code):
        table: dict[str, dict[Queue, int]] = {}
        for key, offsets in (body_of(answer).get("offsetTable") or {}).items():
            topic, at, group = str(key).partition(TOPIC_AT_GROUP)
            if at:
                queues = table.setdefault(group, {})
                queues.update({(topic, int(q)): int(offset) for q, offset in offsets.items()})
        return table


async def search_offset(
    ask: Ask, address: str, topic: str, queue_id: int, timestamp_ms: int
) -> int:
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    fields = {"topic": topic, "queueId": queue_id, "timestamp": timestamp_ms}
    answer = await call(ask, address, code, fields)
    with reading(address, code):
        return int(answer.ext_fields["offset"])


async def update_consumer_offset(
    ask: Ask, address: str, group: str, topic: str, queue_id: int, offset: int
) -> None:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "commitOffset": offset,
    }
    await call(ask, address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def invoke_reset_offset(
    ask: Ask, address: str, group: str, topic: str, timestamp_ms: int
) -> dict[int, int]:
    """Have a broker tell a group's members to go to a time; returns the offsets by queue."""
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    fields = {"group": group, "topic": topic, "timestamp": timestamp_ms, "isForce": True}
    answer = await call(ask, address, code, fields)
    with reading(address, code):
        table = body_of(answer).get("offsetTable") or {}
        return {queue_of(key)[2]: int(offset) for key, offset in table.items()}
