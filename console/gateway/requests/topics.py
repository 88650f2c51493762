"""Topic requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.protocol.codes import RequestCode
from console.gateway.answers import QueueStatus, TopicConfig
from console.gateway.requests.call import body_of, call, queue_of, reading, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.requests.call import Ask

# The topic that new topics inherit their permissions from, as in RocketMQ's tools.
DEFAULT_TOPIC = "TBW102"


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


async def delete_topic_in_namesrv(ask: Ask, address: str, topic: str) -> None:
    await call(ask, address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})


async def topic_stats(ask: Ask, address: str, topic: str) -> tuple[QueueStatus, ...]:
    code = RequestCode.GET_TOPIC_STATS_INFO
    answer = await call(ask, address, code, {"topic": topic})
    with reading(address, code):
        rows = []
        for key, offsets in body_of(answer)["offsetTable"].items():
            queue = queue_of(key)
            rows.append(
                QueueStatus(
                    broker_name=queue.broker_name,
                    queue_id=queue.queue_id,
                    min_offset=int(offsets["minOffset"]),
                    max_offset=int(offsets["maxOffset"]),
                    last_update_ms=timestamp(offsets.get("lastUpdateTimestamp", 0)),
                )
            )
        return tuple(sorted(rows, key=lambda row: (row.broker_name, row.queue_id)))


async def queue_ends(
    ask: Ask, address: str, topic: str, broker_name: str, queue_id: int
) -> QueueStatus:
    """Return the ends of one queue; the time of its last write is unknown."""
    fields, ends = {"topic": topic, "queueId": queue_id}, []
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        answer = await call(ask, address, code, fields)
        with reading(address, code):
            ends.append(int(answer.ext_fields["offset"]))
    return QueueStatus(broker_name, queue_id, ends[0], ends[1], last_update_ms=None)


async def topic_groups(ask: Ask, address: str, topic: str) -> tuple[str, ...]:
    """Return the groups that consume a topic, online or not."""
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    answer = await call(ask, address, code, {"topic": topic})
    with reading(address, code):
        return tuple(sorted(str(name) for name in body_of(answer).get("groupList") or ()))
