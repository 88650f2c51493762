"""Consumer group requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from console.gateway.answers import GroupConfig, Member, Subscription, TopicQueue
from console.gateway.errors import CONSUMER_NOT_ONLINE, RequestFailedError
from console.gateway.requests.call import body_of, call, queue_of, reading, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.requests.call import Ask


@dataclass(frozen=True, slots=True)
class Consumed:
    """One broker's view of a group in one queue."""

    broker_offset: int
    consumer_offset: int
    last_timestamp_ms: int | None
    in_flight: int = 0
    oldest_lease_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """One broker's share of a group's progress."""

    consume_tps: float
    queues: dict[TopicQueue, Consumed]


@dataclass(frozen=True, slots=True)
class Connections:
    """One broker's share of a group's consumers; their broker_names stay empty."""

    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str
    message_model: str
    consume_from_where: str


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
        "cleanOffset": remove_offset,  # the same field in 5.x
    }
    await call(ask, address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)


async def group_connections(ask: Ask, address: str, group: str) -> Connections | None:
    """Return a group's consumers on one broker, or None."""
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


async def consume_stats(ask: Ask, address: str, group: str) -> ConsumeStats:
    code = RequestCode.GET_CONSUME_STATS
    answer = await call(ask, address, code, {"consumerGroup": group})
    with reading(address, code):
        data = body_of(answer)
        queues = {}
        for key, offsets in (data.get("offsetTable") or {}).items():
            queue = queue_of(key)
            queues[TopicQueue(queue.topic, queue.queue_id)] = Consumed(
                broker_offset=int(offsets["brokerOffset"]),
                consumer_offset=int(offsets["consumerOffset"]),
                last_timestamp_ms=timestamp(offsets.get("lastTimestamp", 0)),
                in_flight=int(offsets.get("inFlight", 0)),
                oldest_lease_ms=timestamp(offsets.get("oldestLease", 0)),
            )
        return ConsumeStats(consume_tps=float(data.get("consumeTps", 0)), queues=queues)
