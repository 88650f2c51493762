"""Sample requests: a single one for Trebuchet brokers, several for RocketMQ brokers.

A RocketMQ broker gets one request for its runtime info, one for the progress of all groups, and one
for the consumers of each of GROUPS_PER_SAMPLE groups in rotation. It doesn't report topics without
consumers, bytes per topic, flushes, CPU time or memory, so these stay unknown. Subscriptions of
consumers stay unknown too, because they would take a request per client.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from broker_core.message.versions import version_text
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.errors import RequestFailedError
from console.gateway.kinds import is_system_group
from console.gateway.requests.call import body_of, call, queue_of, reading, timestamp
from console.gateway.requests.cluster import first_number, whole
from console.gateway.requests.groups import group_connections
from console.gateway.sample import (
    UNKNOWN,
    BrokerSample,
    ClientsSample,
    GroupSample,
    ProgressSample,
    TopicSample,
    VersionsSample,
    decoded,
)

if TYPE_CHECKING:
    from console.gateway.answers import BrokerNode
    from console.gateway.requests.call import Ask

GROUPS_PER_SAMPLE, TURN_MS = 20, 10_000
"""The consumers of 100 groups are refreshed every minute; each group takes one request."""
SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


async def broker_sample(ask: Ask, node: BrokerNode, now_ms: int) -> BrokerSample:
    code = RequestCode.GET_BROKER_SAMPLE
    try:
        answer = await call(ask, node.address, code)
    except RequestFailedError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return await sample_by_rocketmqs_requests(ask, node, now_ms)
    with reading(node.address, code):
        return decoded(answer.body)


async def sample_by_rocketmqs_requests(ask: Ask, node: BrokerNode, now_ms: int) -> BrokerSample:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    answer = await call(ask, node.address, code)
    with reading(node.address, code):
        table = {str(key): str(value) for key, value in body_of(answer)["table"].items()}
        counters, gauges = figures(table, now_ms)
        boot = whole(table.get("bootTimestamp")) or 0
    topics: dict[str, dict[int, int]] = {}
    progress = []
    groups: list[GroupSample] = []
    clients: list[ClientsSample] = []
    consumers: list[VersionsSample] = []
    # Slaves don't report groups, because their offsets are the master's.
    if node.is_master:
        code = RequestCode.GET_BROKER_CONSUME_STATS
        answer = await call(ask, node.address, code, {"isOrder": False})
        with reading(node.address, code):
            for by_group in body_of(answer).get("consumeStatsList") or ():
                for group, parts in by_group.items():
                    found: dict[str, list[int]] = {}
                    for part in parts or ():
                        for key, row in (part.get("offsetTable") or {}).items():
                            queue = queue_of(key)
                            consumed, end = int(row["consumerOffset"]), int(row["brokerOffset"])
                            last = timestamp(row.get("lastTimestamp", 0))
                            since = UNKNOWN if last is None or consumed >= end else last
                            numbers = found.setdefault(queue.topic, [])
                            numbers += (queue.queue_id, consumed, end, since)
                            topics.setdefault(queue.topic, {})[queue.queue_id] = end
                    progress += [
                        ProgressSample(str(group), topic, rows) for topic, rows in found.items()
                    ]
        names = sorted({each.group for each in progress if not is_system_group(each.group)})
        groups, clients, consumers = await members_in_turn(ask, node.address, names, now_ms)
    return BrokerSample(
        broker_name=node.broker_name,
        broker_id=node.broker_id,
        boot_timestamp=boot,
        sampled_at=now_ms,
        counters=counters,
        gauges=gauges,
        # The minimum offsets aren't reported.
        topics=[
            TopicSample(topic, None, [n for queue, end in rows.items() for n in (queue, -1, end)])
            for topic, rows in sorted(topics.items())
        ],
        groups=groups,
        progress=progress,
        clients=clients,
        consumers=consumers,
        is_whole=False,
    )


async def members_in_turn(
    ask: Ask, address: str, names: list[str], now_ms: int
) -> tuple[list[GroupSample], list[ClientsSample], list[VersionsSample]]:
    """Return consumer counts by group (None if it isn't the group's turn), and client versions."""
    turns = max(1, -(-len(names) // GROUPS_PER_SAMPLE))
    begin = now_ms // TURN_MS % turns * GROUPS_PER_SAMPLE
    asked = names[begin : begin + GROUPS_PER_SAMPLE]

    async def versions_of(name: str) -> Counter[str] | None:
        try:
            found = await group_connections(ask, address, name)
        except RequestFailedError:
            return None  # the account lacks permission
        members = () if found is None else found.members
        return Counter(f"{each.language} {version_text(each.version)}" for each in members)

    found = dict(zip(asked, await asyncio.gather(*map(versions_of, asked)), strict=True))
    known = {name: versions for name, versions in found.items() if versions is not None}
    groups = [
        GroupSample(name, sum(known[name].values()) if name in known else None) for name in names
    ]
    clients = [
        ClientsSample(name, dict(versions), {}, [])
        for name, versions in known.items()
        if len(versions) > 1
    ]
    consumers = [VersionsSample(name, dict(each)) for name, each in known.items() if each]
    return groups, clients, consumers


def figures(table: dict[str, str], now_ms: int) -> tuple[dict[str, int], dict[str, int | None]]:
    """Convert runtime info to counters and gauges, named as in a Trebuchet sample."""
    counters = {
        "put": whole(table.get("putMessageTimesTotal")),
        "putBytes": whole(table.get("putMessageSizeTotal")),
        "putFailed": whole(table.get("putMessageFailedTimes")),
        "got": whole(table.get("msgGetTotalTodayNow")),
    }
    earliest = whole(table.get("earliestMessageTimeStamp"))
    low, high = whole(table.get("commitLogMinOffset")), whole(table.get("commitLogMaxOffset"))
    gauges: dict[str, int | None] = {
        "logBytes": high - max(0, low) if high is not None and low is not None else None,
        "oldestAgeMs": max(0, now_ms - earliest) if earliest and earliest > 0 else None,
        "flushBehind": size_of(table.get("remainHowManyDataToFlush")),
    }
    ratio = first_number(table.get("commitLogDiskRatio"))
    if ratio is not None and 0 <= ratio <= 1:
        # Only the ratio is exact, so report a disk of one million bytes.
        gauges |= {"diskUsed": round(ratio * 1_000_000), "diskTotal": 1_000_000}
    return {name: value for name, value in counters.items() if value is not None}, gauges


def size_of(text: str | None) -> int | None:
    """Return the bytes in a RocketMQ size such as "1.5 KiB"."""
    number, unit = first_number(text), (text or "").split()[1:2]
    if number is None or unit not in ([], *([each] for each in SIZE_UNITS)):
        return None
    exponent = SIZE_UNITS.index(unit[0]) if unit else 0
    return round(number * float(1 << (10 * exponent)))
