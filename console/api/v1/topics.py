"""Topics: configuration, queues, and the groups that read them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.accounts.actions import Action
from console.api.operations import operation
from console.api.schemas import (
    LIMIT,
    Cursor,
    Done,
    DryRun,
    Limit,
    Listed,
    PlanOut,
    Text,
    by_name,
    plan_of,
)
from console.api.v1 import configuring
from console.api.v1.configuring import Accept, Seen
from console.broker.topics.forms import TopicForm
from console.broker.topics.rates import queue_rates
from console.broker.topics.retention import oldest_of
from console.broker.topics.services import (
    TOPICS,
    danger_of,
    delete_topic,
    get_topic,
    purge_danger,
    purge_topic,
    require_purgeable,
)
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.lib.moment import now_ms
from console.observe.history.topic_lags import topic_lags


class TopicConfigOut(Schema):
    """A topic's configuration on one broker."""

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
    """A topic with the lag of its groups, from the last minutes of the history."""

    groups: int | None
    lag: int | None
    furthest_behind: str | None


class TopicQueueOut(Schema):
    """A queue's offsets and its write rate; null means unknown."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    message_count: int
    last_update_ms: int | None
    oldest_ms: int | None
    rate: float | None


class TrafficOut(Schema):
    """The messages and bytes that a topic received."""

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
    """List topics by name."""
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
    "POST",
    "/topics",
    area="topics",
    need=Action.TOPIC,
    pages=("topics:create",),
    form=TopicForm,
    response=Done | PlanOut,
)
def topic_create(
    request: HttpRequest, dry_run: DryRun = False, accept: Accept = False
) -> Done | PlanOut:
    """Create a topic on all brokers, or on those in the body."""
    return configuring.make(request, TOPICS, dry_run=dry_run, accept=accept)


@operation(
    "POST",
    "/topics/{path:topic}/purge",
    area="topics",
    need=Action.TOPIC,
    named="topic",
    pages=("topics:purge",),
    response=Done | PlanOut,
)
def topic_purge(request: HttpRequest, topic: Text, dry_run: DryRun = False) -> Done | PlanOut:
    """Purge a topic: delete it and create it again with the same configuration."""
    subject = get_topic(topic)
    require_purgeable(subject)
    if dry_run:
        return plan_of(purge_danger(subject))
    entry = purge_topic(request, subject, [])
    return Done(detail=_("Topic %(name)s was purged.") % {"name": topic}, entry=entry.pk)


@operation(
    "PATCH",
    "/topics/{path:topic}",
    area="topics",
    need=Action.TOPIC,
    named="topic",
    pages=("topics:edit",),
    form=TopicForm,
    response=Done | PlanOut,
)
def topic_change(
    request: HttpRequest,
    topic: Text,
    dry_run: DryRun = False,
    accept: Accept = False,
    seen: Seen = "",
) -> Done | PlanOut:
    """Update a topic on each broker that has it, or on those in the body."""
    subject = get_topic(topic)
    return configuring.change(request, TOPICS, subject, seen, dry_run=dry_run, accept=accept)


@operation(
    "DELETE",
    "/topics/{path:topic}",
    area="topics",
    need=Action.TOPIC,
    named="topic",
    pages=("topics:delete",),
    response=Done | PlanOut,
)
def topic_delete(request: HttpRequest, topic: Text, dry_run: DryRun = False) -> Done | PlanOut:
    """Delete a topic and its messages."""
    subject = get_topic(topic)
    return configuring.delete(
        request,
        TOPICS,
        subject,
        danger_of(subject),
        lambda: delete_topic(request, subject),
        dry_run=dry_run,
    )


@operation(
    "GET",
    "/topics/{path:topic}",
    area="topics",
    pages=("topics:detail", "topics:queues"),
    response=TopicDetailOut,
)
def topic(request: HttpRequest, topic: Text) -> dict[str, Any]:
    """Get a topic: configuration on each broker, queues and groups."""
    subject = get_topic(topic)
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
