"""Consumer offset requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.answers import TopicQueue
from console.gateway.errors import SYSTEM_ERROR, GatewayError, RequestFailedError
from console.gateway.requests.call import body_of, call, queue_of, reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.requests.call import Ask

TOPIC_AT_GROUP = "@"


async def consumer_offsets(ask: Ask, address: str) -> dict[str, dict[TopicQueue, int]]:
    """Return all committed consumer offsets of a broker, by group."""
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    try:
        answer = await call(ask, address, code)
    except RequestFailedError as error:
        # 4.9 reports an empty table as an error without a remark.
        if error.code == SYSTEM_ERROR and not error.remark:
            return {}
        raise
    with reading(address, code):
        table: dict[str, dict[TopicQueue, int]] = {}
        for key, offsets in (body_of(answer).get("offsetTable") or {}).items():
            topic, at, group = str(key).partition(TOPIC_AT_GROUP)
            if at:
                queues = table.setdefault(group, {})
                queues.update(
                    {TopicQueue(topic, int(q)): int(offset) for q, offset in offsets.items()}
                )
        return table


async def search_offset(
    ask: Ask, address: str, topic: str, queue_id: int, timestamp_ms: int
) -> int:
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    fields = {"topic": topic, "queueId": queue_id, "timestamp": timestamp_ms}
    answer = await call(ask, address, code, fields)
    with reading(address, code):
        return int(answer.ext_fields["offset"])


async def earliest_store_time(ask: Ask, address: str, topic: str, queue_id: int) -> int | None:
    """Return the store time of a queue's first message, or None if it is empty."""
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    answer = await call(ask, address, code, {"topic": topic, "queueId": queue_id})
    with reading(address, code):
        at_ms = int(answer.ext_fields["timestamp"])
        return at_ms if at_ms > 0 else None


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
    """Have a broker reset a group's consumers to a time; return the offsets by queue ID."""
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    fields = {"group": group, "topic": topic, "timestamp": timestamp_ms, "isForce": True}
    answer = await call(ask, address, code, fields)
    with reading(address, code):
        table = body_of(answer).get("offsetTable") or {}
        return {queue_of(key).queue_id: int(offset) for key, offset in table.items()}


async def reset_offsets(
    ask: Ask, address: str, group: str, topic: str, offsets: Mapping[int, int]
) -> None:
    """Have a Trebuchet broker move a group's consumers in all of these queues at once."""
    body = {"topic": topic, "group": group, "offsets": [list(each) for each in offsets.items()]}
    try:
        await call(ask, address, RequestCode.RESET_OFFSETS, body=java_json.encode(body))
    except RequestFailedError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise GatewayError(
            _(
                "The broker at %(address)s can reset connected consumers only by time, in all "
                "queues at once."
            )
            % {"address": address},
            _(
                "This is an Apache RocketMQ broker. Reset to earliest, latest or a time, or "
                "stop the group's consumers first."
            ),
        ) from error
