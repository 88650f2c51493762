"""Requests about registered brokers and their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.protocol.codes import RequestCode
from console.gateway.answers import BrokerNode, Promoted, RuntimeInfo, Traffic
from console.gateway.errors import SYSTEM_ERROR, RequestFailedError
from console.gateway.internals import decoded
from console.gateway.requests.call import body_of, call, reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.internals import Internals
    from console.gateway.requests.call import Ask

PROMOTION_SECONDS = 30.0
"""A slave contacts the name servers and the other brokers of its set first."""
TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
READ_ONLY = "read-only"
REASON_LENGTH_MAX = 200
TOPICS_MAX = 100


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


async def promote(ask: Ask, node: BrokerNode, *, force: bool) -> Promoted:
    code = RequestCode.PROMOTE_BROKER
    fields = {"brokerRole": "", "force": force}
    answer = await call(ask, node.address, code, fields, timeout_s=PROMOTION_SECONDS)
    with reading(node.address, code):
        info = answer.ext_fields
        return Promoted(int(info["epoch"]), int(info["startOffset"]), str(info["brokerRole"]))


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
        put_before_today=whole(table.get("msgPutTotalTodayMorning")),
        get_today=difference(table, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        commit_log_disk_ratio=first_number(table.get("commitLogDiskRatio")),
        commit_log_min_offset=whole(table.get("commitLogMinOffset")),
        commit_log_max_offset=whole(table.get("commitLogMaxOffset")),
        earliest_message_ms=positive(whole(table.get("earliestMessageTimeStamp"))),
        flush_behind_bytes=whole(table.get("remainHowManyDataToFlush")),
        store_refuses=refusal(table.get("storeState")),
        damaged_ranges=whole(table.get("damagedRanges")),
        unreachable_messages=whole(table.get("unreachableMessages")),
        unreachable_topics=topic_names(table.get("unreachableTopics")),
    )


def refusal(text: str | None) -> str | None:
    """Return why a store rejects messages, from the state the broker reports."""
    if text is None or not text.startswith(READ_ONLY):
        return None
    return text.removeprefix(READ_ONLY).strip(" :").removeprefix("after ")[:REASON_LENGTH_MAX]


def topic_names(text: str | None) -> tuple[str, ...]:
    """Return the topic names in a Trebuchet broker's JSON object."""
    try:
        table = msgspec.json.decode(text or "{}", type=dict[str, object])
    except ValueError:
        return ()
    return tuple(table)[:TOPICS_MAX]


def first_number(text: str | None) -> float | None:
    """Return the first number in text; rates are averages over 10 s, 1 min and 10 min."""
    try:
        return float((text or "").split()[0])
    except (ValueError, IndexError):
        return None


def whole(text: str | None) -> int | None:
    """Return the integer at the start of text; sizes are followed by their unit."""
    number = first_number(text)
    if number is None:
        return None
    # 64-bit numbers don't fit a float.
    first = (text or "").split()[0]
    return int(first) if first.lstrip("-").isdigit() else int(number)


def positive(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None


def difference(table: Mapping[str, str], now: str, before: str) -> int | None:
    later, earlier = whole(table.get(now)), whole(table.get(before))
    return None if later is None or earlier is None else max(0, later - earlier)


async def traffic(ask: Ask, address: str, stats_name: str, stats_key: str) -> Traffic | None:
    """Return a statistic's increments; None if the broker hasn't counted any since it started."""
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


async def internals(ask: Ask, node: BrokerNode) -> Internals:
    """Return the internals of a Trebuchet broker; RocketMQ doesn't support the request."""
    code = RequestCode.GET_BROKER_INTERNALS
    answer = await call(ask, node.address, code)
    with reading(node.address, code):
        return decoded(bytes(answer.body))
