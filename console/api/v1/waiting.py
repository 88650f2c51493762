"""Pending messages on a master: delayed messages, and transactions without an outcome."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Schema

from console.accounts.actions import Action
from console.api.operations import operation
from console.api.schemas import (
    Cursor,
    Done,
    DryRun,
    Number,
    PlanOut,
    Text,
    cursor_of,
    place_of,
    plan_of,
)
from console.api.v1.messages import MessageOut
from console.broker.brokers import transactions
from console.broker.brokers.delays import Waiting, level_in, levels_of, master, next_in, with_key
from console.broker.brokers.services import visible
from console.gateway.access import gateway


class LevelOut(Schema):
    """A delay level; `delay_ms` is null if the broker's configuration no longer has it."""

    number: int
    delay_ms: int | None
    count: int
    first_due_ms: int | None
    last_due_ms: int | None
    is_late: bool


class WaitingOut(Schema):
    """A delayed message and the topic it will be delivered to."""

    topic: str
    due_ms: int
    message: MessageOut


class WaitingListOut(Schema):
    """Messages of a delay level by delivery time; `hidden` counts those the caller may not see."""

    items: list[WaitingOut]
    next: str | None
    hidden: int


class TimerOut(Schema):
    """A pending timer message: its destination and due time."""

    topic: str
    queue_id: int
    due_ms: int
    uniq_key: str
    keys: str
    tags: str
    body_bytes: int
    store_ms: int


class TimersOut(Schema):
    """The next timer messages, or those with a key; `total` counts all pending ones.

    `is_available` is false if the broker doesn't list its timer messages. `hidden` counts messages
    of topics that the caller may not see.
    """

    is_available: bool
    total: int
    next_due_ms: int | None
    items: list[TimerOut]
    hidden: int


class HalfOut(Schema):
    """A transaction without an outcome."""

    queue_offset: int
    topic: str
    group: str
    uniq_key: str
    keys: str
    tags: str
    body_bytes: int
    born_ms: int
    born_host: str
    age_ms: int
    check_times: int


class HalvesOut(Schema):
    """Transactions without an outcome; `is_told` is false if the broker doesn't list them."""

    is_told: bool
    total: int
    items: list[HalfOut]
    next: str | None
    hidden: int


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}/delays",
    area="brokers",
    pages=("brokers:delays",),
    response=list[LevelOut],
)
def delays(request: HttpRequest, broker_name: Text, broker_id: Number) -> list[dict[str, Any]]:
    """List a master's delay levels: how many messages are pending, and until when."""
    return [
        {
            "number": each.number,
            "delay_ms": each.delay_ms,
            "count": each.count,
            "first_due_ms": None if each.first is None else each.first.due_ms,
            "last_due_ms": None if each.last is None else each.last.due_ms,
            "is_late": each.is_late,
        }
        for each in levels_of(master(broker_name, broker_id))
    ]


def waiting_out(
    request: HttpRequest, waiting: list[Waiting], more: int | None = None
) -> dict[str, Any]:
    shown, hidden = visible(request, waiting)
    return {
        "items": [
            {"topic": each.topic, "due_ms": each.due_ms, "message": each.stored} for each in shown
        ],
        "next": None if more is None else cursor_of(more),
        "hidden": hidden,
    }


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}/delays/{level}",
    area="messages",
    need=Action.SEE,
    pages=("brokers:delays",),
    response=WaitingListOut,
)
def delayed(
    request: HttpRequest, broker_name: Text, broker_id: Number, level: Number, cursor: Cursor = ""
) -> dict[str, Any]:
    """List a delay level's messages, next due first."""
    node = master(broker_name, broker_id)
    found = level_in(levels_of(node), level)
    place = place_of(cursor, (int,))
    if not found.count:
        return waiting_out(request, [])
    return waiting_out(request, *next_in(node, found, 0 if place is None else max(0, place[0])))


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}/delayed",
    area="messages",
    need=Action.SEE,
    pages=("brokers:delays",),
    response=WaitingListOut,
)
def delayed_find(
    request: HttpRequest, broker_name: Text, broker_id: Number, key: Text
) -> dict[str, Any]:
    """Find a delayed message by its key or unique key."""
    node = master(broker_name, broker_id)
    return waiting_out(request, with_key(node, levels_of(node), key) if key else [])


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}/timers",
    area="messages",
    need=Action.SEE,
    pages=("brokers:delays",),
    response=TimersOut,
)
def timers(
    request: HttpRequest, broker_name: Text, broker_id: Number, key: Text = ""
) -> dict[str, Any]:
    """List pending timer messages: the next ones, or those with a key."""
    master(broker_name, broker_id)
    found = gateway().sending.timers(broker_name, key)
    if found is None:
        return {"is_available": False, "total": 0, "next_due_ms": None, "items": [], "hidden": 0}
    shown, hidden = visible(request, found.timers)
    return {
        "is_available": True,
        "total": found.total,
        "next_due_ms": found.next_due_ms,
        "items": shown,
        "hidden": hidden,
    }


@operation(
    "GET",
    "/brokers/{broker_name}/{broker_id}/transactions",
    area="messages",
    need=Action.SEE,
    pages=("brokers:transactions",),
    response=HalvesOut,
)
def broker_transactions(
    request: HttpRequest, broker_name: Text, broker_id: Number, cursor: Cursor = ""
) -> dict[str, Any]:
    """List a master's transactions without an outcome, oldest first."""
    transactions.master(broker_name, broker_id)
    place = place_of(cursor, (int,))
    halves = gateway().sending.undecided(broker_name, 0 if place is None else max(0, place[0]))
    if halves is None:
        return {"is_told": False, "total": 0, "items": [], "next": None, "hidden": 0}
    shown, hidden = visible(request, halves.halves)
    return {
        "is_told": True,
        "total": halves.total,
        "items": shown,
        "next": None if halves.next_offset is None else cursor_of(halves.next_offset),
        "hidden": hidden,
    }


@operation(
    "POST",
    "/brokers/{broker_name}/{broker_id}/transactions/{offset}/{deed}",
    area="messages",
    need=Action.SEND,
    pages=("brokers:decide",),
    response=Done | PlanOut,
)
def broker_transaction_decide(
    request: HttpRequest,
    broker_name: Text,
    broker_id: Number,
    offset: Number,
    deed: Text,
    dry_run: DryRun = False,
) -> Done | PlanOut:
    """Commit, roll back or check a transaction: `commit`, `roll-back`, `check`."""
    transactions.master(broker_name, broker_id)
    half = transactions.half_at(request, broker_name, offset)
    wanted = transactions.decision(deed)
    if dry_run:
        return plan_of(transactions.danger_of(half, wanted, "", ""))
    return Done(detail=transactions.apply_decision(request, half, wanted))
