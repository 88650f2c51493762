"""Consumer offsets: show a group's offsets in a topic, and reset them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema
from pydantic import Field

from broker_core.message import names
from console.accounts.actions import Action
from console.accounts.permissions import require
from console.api.operations import operation
from console.api.problems import ProblemError, of_form
from console.api.requestbody import json_object, valid_form
from console.api.schemas import Done, DryRun, Number, PlanOut, plan_of
from console.broker.offsets.forms import ResetForm, SubjectForm
from console.broker.offsets.plan import Plan, PlanError
from console.broker.offsets.reset_progress import following_of
from console.broker.offsets.services import (
    carry_out,
    changed_since,
    danger_of,
    done_message,
    get_reset,
    is_unchanged_since,
    pack,
    plan_reset,
    plan_restore,
    subject_context,
)
from console.gateway.access import gateway

Group = Annotated[str, Field(min_length=1, max_length=names.GROUP_LENGTH_MAX)]
Topic = Annotated[str, Field(min_length=1, max_length=names.RETRY_TOPIC_LENGTH_MAX)]


class QueueOffsetOut(Schema):
    """A group's offset in a queue; `consumer_offset` is null if it never committed one.

    `lag` is null if the offset is beyond the queue's end.
    """

    queue: str
    min_offset: int
    max_offset: int
    consumer_offset: int | None
    lag: int | None
    is_beyond_end: bool


class OffsetsOut(Schema):
    """A group's offsets in a topic, including queues it never read.

    `lag` is null if it is unknown in every queue.
    """

    group: str
    topic: str
    is_online: bool
    lag: int | None
    is_beyond_end: bool
    queues: list[QueueOffsetOut]
    read_at_ms: int


class QueueFollowingOut(Schema):
    """A queue after a reset: the old offset, the target, and the current offset."""

    queue: str
    old: int | None
    target: int
    now: int | None
    state: str


class FollowingOut(Schema):
    """How many queues have followed a reset."""

    entry: int
    waiting: int
    is_over: bool
    queues: list[QueueFollowingOut]


@operation("GET", "/offsets", area="offsets", pages=("offsets:index",), response=OffsetsOut)
def offsets(request: HttpRequest, group: Group, topic: Topic) -> dict[str, Any]:
    """Get a group's offset in each queue of a topic."""
    context = subject_context(gateway().groups.progress(group), topic)
    return {
        "group": group,
        "topic": topic,
        "is_online": context["connections"].is_online,
        "lag": context["lag"],
        "is_beyond_end": context["is_beyond_end"],
        "queues": [
            {
                "queue": str(row["status"].queue),
                "min_offset": row["status"].min_offset,
                "max_offset": row["status"].max_offset,
                "consumer_offset": row["consumer_offset"],
                "lag": row["lag"],
                "is_beyond_end": row["is_beyond_end"],
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
    """Get how far consumers have followed a reset, by its audit log entry."""
    reset, group, topic = get_reset(entry)
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


@operation(
    "POST",
    "/offsets/reset",
    area="offsets",
    need=Action.OFFSET,
    pages=("offsets:preview", "offsets:apply"),
    form=ResetForm,
    response=Done | PlanOut,
)
def offset_reset(request: HttpRequest, dry_run: DryRun = False) -> Done | PlanOut:
    """Reset a group's offsets in a topic: to the earliest, latest, a time, an offset and more."""
    asked = json_object(request, tuple(ResetForm.base_fields))
    subject = subject_of_body(asked)
    group, topic = subject["group"], subject["topic"]
    require(request, Action.OFFSET, group)
    queues = subject_context(gateway().groups.progress(group), topic)["queues"]
    form = valid_form(request, lambda data: ResetForm(data, queues=queues))
    with plan_errors_as_problems():
        plan = plan_reset(form.reset_request())
    return preview_or_apply(request, plan, dry_run=dry_run)


def subject_of_body(asked: dict[str, Any]) -> dict[str, str]:
    """Return the group and topic in a body."""
    form = SubjectForm({name: asked.get(name) for name in SubjectForm.base_fields})
    if not form.is_valid():
        raise of_form(form)
    found: dict[str, str] = form.cleaned_data
    return found


@contextmanager
def plan_errors_as_problems() -> Iterator[None]:
    """Raise a ProblemError for a plan that isn't possible."""
    try:
        yield
    except PlanError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


def preview_or_apply(request: HttpRequest, plan: Plan, *, dry_run: bool) -> Done | PlanOut:
    """Preview a reset, or apply it."""
    danger, sealed = danger_of(plan), pack(plan)
    if dry_run:
        names_of = ("queue", "old", "new")
        moves = [dict(zip(names_of, each, strict=True)) for each in sealed["moves"]]
        return plan_of(danger, changes=moves)
    if danger.refusal:
        return Done(detail=danger.refusal)
    problem = changed_since(sealed)
    if problem is not None:
        raise ProblemError(HTTPStatus.CONFLICT, problem)
    entry = carry_out(request, sealed)
    return Done(
        detail=done_message(plan.reset_request.group, plan.reset_request.topic, entry),
        entry=entry.pk,
    )


def undo_reset(request: HttpRequest, entry: int, *, dry_run: bool) -> Done | PlanOut:
    """Restore the offsets from before a reset, unless an offset has changed since."""
    reset, group, topic = get_reset(entry)
    require(request, Action.OFFSET, group)
    with plan_errors_as_problems():
        plan = plan_restore(reset, group, topic)
    if not dry_run and not plan.is_idle and not is_unchanged_since(plan, reset):
        detail = _("Offsets changed after that reset. Preview with dry_run and reset them again.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    return preview_or_apply(request, plan, dry_run=dry_run)
