"""Topics: which there are, their queues, who reads them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Schema

from console.api.operations import operation
from console.api.schemas import LIMIT, Cursor, Limit, Listed, Text, by_name
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.moment import now_ms
from console.history.topic_lags import topic_lags
from console.topics.rates import queue_rates
from console.topics.retained import oldest_of
from console.topics.views import found


class TopicConfigOut(Schema):
    """A topic on one broker."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order: bool
    topic_sys_flag: int
    topic_filter_type: str


class TopicOut(Schema):
    """A topic with its configuration on each broker that has it."""

    name: str
    kind: TopicKind
    write_queue_nums: int
    read_queue_nums: int
    configs: dict[str, TopicConfigOut]


class TopicRowOut(TopicOut):
    """A topic with how far its groups are behind, by the history's last minutes."""

    groups: int | None
    lag: int | None
    furthest_behind: str | None


class TopicQueueOut(Schema):
    """The ends of a queue, and how fast it fills; None is not known."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    message_count: int
    last_update_ms: int | None
    oldest_ms: int | None
    rate: float | None


class TrafficOut(Schema):
    """What a topic received."""

    minute_tps: float
    hour_sum: int | None
    day_sum: int | None


class TopicDetailOut(TopicOut):
    """A topic with its queues and the groups that read it."""

    queues: list[TopicQueueOut]
    groups: list[str]
    traffic: TrafficOut
    read_at_ms: int


@operation("GET", "/topics", area="topics", pages=("topics:list",), response=Listed[TopicRowOut])
def topics(
    request: HttpRequest,
    q: Text = "",
    kind: TopicKind | None = None,
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List topics in the order of their names."""
    matching = [
        each
        for each in gateway().topics.all().values()
        if q.lower() in each.name.lower() and kind in (None, each.kind)
    ]
    page, following = by_name(matching, lambda each: each.name, cursor, limit)
    lags = topic_lags([each.name for each in page], now_ms())
    rows = []
    for each in page:
        lag = lags.get(each.name)
        rows.append(
            {
                **TopicOut.from_orm(each).dict(),
                "groups": None if lag is None else lag.groups,
                "lag": None if lag is None else lag.lag,
                "furthest_behind": None if lag is None else lag.worst,
            }
        )
    return {"items": rows, "next": following}


@operation(
    "GET",
    "/topics/{path:topic}",
    area="topics",
    pages=("topics:detail", "topics:queues"),
    response=TopicDetailOut,
)
def topic(request: HttpRequest, topic: Text) -> dict[str, Any]:
    """Show a topic: its configuration on each broker, its queues, its groups."""
    subject = found(topic)
    status = gateway().topics.status(topic)
    read_at_ms = now_ms()
    rates = queue_rates(topic, status, read_at_ms)
    oldest = oldest_of(topic, status)
    return {
        **TopicOut.from_orm(subject).dict(),
        "queues": [
            {
                "broker_name": row.broker_name,
                "queue_id": row.queue_id,
                "min_offset": row.min_offset,
                "max_offset": row.max_offset,
                "message_count": row.message_count,
                "last_update_ms": row.last_update_ms,
                "oldest_ms": oldest.get(row.queue),
                "rate": rates.get(row.queue),
            }
            for row in status
        ],
        "groups": gateway().topics.consumers(topic),
        "traffic": gateway().topics.traffic([topic])[topic],
        "read_at_ms": read_at_ms,
    }
