"""Consumer groups: configuration, consumers, progress and lag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest
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
    Number,
    PlanOut,
    Text,
    by_name,
)
from console.api.v1 import configuring
from console.api.v1.configuring import Accept, Seen
from console.broker.groups.forms import GroupForm
from console.broker.groups.progress import progress_context
from console.broker.groups.services import (
    GROUPS,
    compare_subscriptions,
    danger_of,
    delete_group,
    get_group,
    get_member,
    get_place,
    member_status,
)
from console.broker.groups.states import GroupState, group_states
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.observe.history.metrics import GROUP, LAG, MEMBERS
from console.observe.history.reading import last_of, sparks
from console.observe.history.series import Aspect, Line


class GroupConfigOut(Schema):
    """A subscription group on one broker."""

    group: str
    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queue_nums: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool


class ReadingOut(Schema):
    """A group's reading state; `reading` is null if unknown, and `reason` says why."""

    reading: str | None
    reason: str
    topic: str
    since_ms: int | None


class GroupOut(Schema):
    """A group with its configuration on each broker that has it."""

    name: str
    is_system: bool
    configs: dict[str, GroupConfigOut]
    reading: ReadingOut


class MemberOut(Schema):
    """A consumer that is connected in a group."""

    client_id: str
    client_addr: str
    language: str
    version_name: str
    broker_names: list[str]


class SubscriptionOut(Schema):
    """A group's subscription to a topic."""

    topic: str
    expression_type: str
    sub_string: str


class QueueProgressOut(Schema):
    """A group's progress in a queue; `consumer_offset` is null if it never committed one.

    `lag` is null if the offset is beyond the queue's end.
    `in_flight` counts messages that POP consumers have received and not acknowledged.
    """

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int | None
    lag: int | None
    is_beyond_end: bool
    last_timestamp_ms: int | None
    in_flight: int
    oldest_lease_ms: int | None


class GroupDetailOut(GroupOut):
    """A group with its consumers, subscriptions and queues."""

    members: list[MemberOut]
    subscriptions: list[SubscriptionOut]
    consume_type: str
    message_model: str
    consume_from_where: str
    consume_tps: float
    lag: int | None
    is_beyond_end: bool
    lag_seconds: float | None
    never_read: int
    queues: list[QueueProgressOut]
    read_at_ms: int


class SubscriptionVariantOut(Schema):
    """A subscription and the consumers that use it; null for consumers without a subscription."""

    subscription: SubscriptionOut | None
    members: list[str]


class TopicSubscriptionsOut(Schema):
    """How a group's consumers subscribe to a topic, most common subscription first."""

    topic: str
    is_mixed: bool
    wishes: list[SubscriptionVariantOut]


class SubscriptionsOut(Schema):
    """A group's subscriptions, compared across its consumers."""

    is_mixed: bool
    answered: int
    unasked: int
    silent: list[tuple[str, str]]
    topics: list[TopicSubscriptionsOut]


def reading_of(state: GroupState) -> dict[str, Any]:
    return {
        "reading": None if state.reading is None else state.reading.value,
        "reason": state.reason,
        "topic": state.topic,
        "since_ms": state.since_ms,
    }


@operation("GET", "/groups", area="groups", pages=("groups:list",), response=Listed[GroupOut])
def groups(
    request: HttpRequest,
    q: Text = "",
    system: bool = False,
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List groups by name."""
    matching = [
        each
        for each in gateway().groups.all().values()
        if q.lower() in each.name.lower() and each.is_system == system
    ]
    page, following = by_name(matching, lambda each: each.name, cursor, limit)
    states = group_states(now_ms())
    names = [each.name for each in page]
    lags, members = (
        sparks(GROUP, names, Line("", metric, Aspect.PEAK), now_ms()) for metric in (LAG, MEMBERS)
    )
    rows = [
        {
            "name": each.name,
            "is_system": each.is_system,
            "configs": each.configs,
            "reading": reading_of(
                states.of(
                    each.name,
                    lag=lags.get(each.name),
                    is_abandoned=bool(last_of(lags.get(each.name)))
                    and last_of(members.get(each.name)) == 0,
                )
            ),
        }
        for each in page
    ]
    return {"items": rows, "next": following}


@operation(
    "GET",
    "/groups/{path:group}/subscriptions",
    area="groups",
    pages=("groups:subscriptions",),
    response=SubscriptionsOut,
)
def group_subscriptions(request: HttpRequest, group: Text) -> Any:
    """Compare the subscriptions of a group's consumers, of at most 50."""
    _connections, found = compare_subscriptions(group)
    return found


@operation(
    "GET",
    "/groups/{path:group}/members/{client_id}",
    area="groups",
    need=Action.MEMBER,
    named="group",
    pages=("groups:member",),
    response=dict[str, Any],
)
def group_member(
    request: HttpRequest, group: Text, client_id: Text, threads: bool = False
) -> dict[str, Any]:
    """Get a consumer's own report: queues, messages in memory, settings and threads."""
    member = get_member(group, client_id)
    info = member_status(group, member, with_threads=threads)
    if isinstance(info, GatewayError):
        raise info
    return asdict(info)


@operation(
    "GET",
    "/groups/{path:group}/queues/{broker_name}/{queue_id}/{path:topic}",
    area="groups",
    pages=("groups:queue",),
    response=QueueProgressOut,
)
def group_queue(
    request: HttpRequest, group: Text, broker_name: Text, queue_id: Number, topic: Text
) -> Any:
    """Get a group's progress in one queue."""
    return get_place(group, topic, BrokerQueue(broker_name, queue_id))


@operation(
    "GET",
    "/groups/{path:group}",
    area="groups",
    pages=("groups:detail", "groups:progress"),
    response=GroupDetailOut,
)
def group(request: HttpRequest, group: Text) -> dict[str, Any]:
    """Get a group: configuration, consumers, and lag in each queue."""
    subject = get_group(group)
    context = progress_context(group)
    connections, progress = context["connections"], context["progress"]
    return {
        "name": subject.name,
        "is_system": subject.is_system,
        "configs": subject.configs,
        "reading": reading_of(context["reading"]),
        "members": connections.members,
        "subscriptions": connections.subscriptions,
        "consume_type": connections.consume_type,
        "message_model": connections.message_model,
        "consume_from_where": connections.consume_from_where,
        "consume_tps": progress.consume_tps,
        "lag": progress.known_lag,
        "is_beyond_end": progress.is_beyond_end,
        "lag_seconds": context["lag_seconds"],
        "never_read": context["never_read"],
        "queues": progress.queues,
        "read_at_ms": progress.read_at_ms,
    }


@operation(
    "POST",
    "/groups",
    area="groups",
    need=Action.GROUP,
    pages=("groups:create",),
    form=GroupForm,
    response=Done | PlanOut,
)
def group_create(
    request: HttpRequest, dry_run: DryRun = False, accept: Accept = False
) -> Done | PlanOut:
    """Create a subscription group on all brokers, or on those in the body."""
    return configuring.make(request, GROUPS, dry_run=dry_run, accept=accept)


@operation(
    "PATCH",
    "/groups/{path:group}",
    area="groups",
    need=Action.GROUP,
    named="group",
    pages=("groups:edit",),
    form=GroupForm,
    response=Done | PlanOut,
)
def group_change(
    request: HttpRequest,
    group: Text,
    dry_run: DryRun = False,
    accept: Accept = False,
    seen: Seen = "",
) -> Done | PlanOut:
    """Update a group on each broker that has it, or on those in the body."""
    subject = get_group(group)
    return configuring.change(request, GROUPS, subject, seen, dry_run=dry_run, accept=accept)


@operation(
    "DELETE",
    "/groups/{path:group}",
    area="groups",
    need=Action.GROUP,
    named="group",
    pages=("groups:delete",),
    response=Done | PlanOut,
)
def group_delete(
    request: HttpRequest, group: Text, remove_offset: bool = False, dry_run: DryRun = False
) -> Done | PlanOut:
    """Delete a group that has no consumers, with or without its offsets."""
    subject = get_group(group)
    return configuring.delete(
        request,
        GROUPS,
        subject,
        danger_of(subject),
        lambda: delete_group(request, subject, remove_offset=remove_offset),
        dry_run=dry_run,
    )
