"""Consumer offsets: where a group stands in a topic, and moving it."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema
from pydantic import Field

from broker_core.message import names
from console.api.operations import operation
from console.api.schemas import Number
from console.gateway.access import gateway
from console.offsets.following import following_of
from console.offsets.views import SUBJECT_SEPARATOR, reset_of, subject_context
from console.ui.missing import MissingError

Group = Annotated[str, Field(min_length=1, max_length=names.GROUP_LENGTH_MAX)]
Topic = Annotated[str, Field(min_length=1, max_length=names.RETRY_TOPIC_LENGTH_MAX)]


class QueueOffsetOut(Schema):
    """Where a group stands in a queue; `consumer_offset` None: it never committed there."""

    queue: str
    min_offset: int
    max_offset: int
    consumer_offset: int | None
    lag: int | None


class OffsetsOut(Schema):
    """A group's offsets in a topic, in queues it never read, too."""

    group: str
    topic: str
    is_online: bool
    lag: int
    queues: list[QueueOffsetOut]
    read_at_ms: int


class QueueFollowingOut(Schema):
    """A queue after a reset: where its member was, was sent, and is."""

    queue: str
    old: int | None
    target: int
    now: int | None
    state: str


class FollowingOut(Schema):
    """How far the members have followed a reset."""

    entry: int
    waiting: int
    is_over: bool
    queues: list[QueueFollowingOut]


@operation("GET", "/offsets", area="offsets", pages=("offsets:index",), response=OffsetsOut)
def offsets(request: HttpRequest, group: Group, topic: Topic) -> dict[str, Any]:
    """Show a group's offset in each queue of a topic."""
    context = subject_context(gateway().groups.progress(group), topic)
    return {
        "group": group,
        "topic": topic,
        "is_online": context["connections"].is_online,
        "lag": context["lag"],
        "queues": [
            {
                "queue": str(row["status"].queue),
                "min_offset": row["status"].min_offset,
                "max_offset": row["status"].max_offset,
                "consumer_offset": row["consumer_offset"],
                "lag": row["lag"],
            }
            for row in context["rows"]
        ],
        "read_at_ms": context["read_at_ms"],
    }


@operation(
    "GET",
    "/offsets/resets/{entry}",
    area="offsets",
    pages=("offsets:following",),
    response=FollowingOut,
)
def offset_following(request: HttpRequest, entry: Number) -> dict[str, Any]:
    """Show how far the members have followed a reset, by the number of its entry."""
    reset = reset_of(entry)
    if reset is None:
        raise MissingError(_("There is no such reset."))
    group, _separator, topic = reset.subject.partition(SUBJECT_SEPARATOR)
    found = following_of(reset, group, topic)
    queues = [
        {
            "queue": str(each.queue),
            "old": each.old,
            "target": each.target,
            "now": each.now,
            "state": each.state.value,
        }
        for each in found.queues
    ]
    return {"entry": entry, "waiting": found.waiting, "is_over": found.is_over, "queues": queues}
