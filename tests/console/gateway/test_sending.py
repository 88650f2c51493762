"""The contract of SendingGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import MessageQueue
from console.gateway.errors import GatewayError, RequestFailedError
from console.gateway.outgoing import NewMessage
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue, MessageRange
from tests.console.gateway.support import ORDERS, ask, send

if TYPE_CHECKING:
    from console.gateway.ports import Gateway

FIRST, SECOND = MessageQueue("Orders", "broker-a", 0), MessageQueue("Orders", "broker-a", 1)
FOREVER_MS = 1 << 44


async def bodies(gateway: Gateway) -> list[bytes]:
    found = await ask(gateway.browse.newest, MessageRange("Orders", 0, FOREVER_MS), None, 100)
    return sorted(each.body or b"" for each in found.messages)


async def test_messages_are_stored_in_order_with_their_content(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    carried = {"KEYS": "k1", "TAGS": "paid", "region": "eu"}
    outgoing = [NewMessage(FIRST, b"%d" % number, carried) for number in range(3)]

    outcome = await ask(gateway.sending.send, [*outgoing, NewMessage(SECOND, b"", {})])

    assert outcome.problem is None
    assert [(each.queue, each.queue_offset) for each in outcome.sent] == [
        (FIRST, 0),
        (FIRST, 1),
        (FIRST, 2),
        (SECOND, 0),
    ]
    last = await ask(gateway.browse.at, "Orders", BrokerQueue("broker-a", 0), 2)
    assert last is not None
    assert last.body == b"2"
    assert (last.keys, last.tags, last.properties["region"]) == ("k1", "paid", "eu")
    assert last.uniq_key == outcome.sent[2].uniq_key
    assert len({each.uniq_key for each in outcome.sent}) == 4


async def test_sending_ends_at_the_first_rejection_and_reports_the_stored_ones(
    gateway: Gateway,
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    beyond = MessageQueue("Orders", "broker-a", 99)
    good = NewMessage(FIRST, b"1", {})

    outcome = await ask(gateway.sending.send, [good, NewMessage(beyond, b"2", {}), good])

    assert len(outcome.sent) == 1
    assert isinstance(outcome.problem, RequestFailedError)
    assert await bodies(gateway) == [b"1"]


@pytest.mark.parametrize(("is_commit", "there"), [(True, [b"half"]), (False, [])])
async def test_a_transactions_message_appears_once_it_is_committed(
    gateway: Gateway, is_commit: bool, there: list[bytes]
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    half = NewMessage(FIRST, b"half", {"KEYS": "k1"}, is_half=True)

    (begun,) = (await ask(gateway.sending.send, [half])).sent
    assert await bodies(gateway) == []

    await ask(gateway.sending.end, begun, is_commit=is_commit)
    assert await bodies(gateway) == there


async def test_a_missing_member_consumes_nothing(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=0, count=1)
    found = await ask(gateway.browse.at, "Orders", BrokerQueue("broker-a", 0), 0)
    assert found is not None

    with pytest.raises(GatewayError, match="not online"):
        await ask(gateway.sending.deliver, "broker-a", found.offset_msg_id, "billing", "c@1")


async def test_an_undecided_transaction_is_listed_and_decided_for_its_producer(
    gateway: Gateway,
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    queue = MessageQueue("Orders", "broker-a", 0)
    for key in ("a", "b"):
        await ask(gateway.sending.send, [NewMessage(queue, b"x", {"KEYS": key}, is_half=True)])

    found = await ask(gateway.sending.undecided, "broker-a")
    assert found is not None
    assert [(each.topic, each.keys, each.body_bytes) for each in found.halves] == [
        ("Orders", "a", 1),
        ("Orders", "b", 1),
    ]
    with pytest.raises(RequestFailedError, match="no producer"):
        await ask(gateway.sending.check, found.halves[0])
    await ask(gateway.sending.decide, found.halves[0], is_commit=True)
    await ask(gateway.sending.decide, found.halves[1], is_commit=False)

    left = await ask(gateway.sending.undecided, "broker-a")
    assert left is not None
    assert (left.halves, left.total) == ((), 0)
    status = await ask(gateway.topics.status, "Orders")
    assert sum(row.message_count for row in status) == 1


async def test_pending_timer_messages_are_listed_and_found_by_key(
    gateway: Gateway,
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    queue = MessageQueue("Orders", "broker-a", 0)
    due_ms = now_ms() + 600_000
    for key, more_ms in (("b", 2_000), ("a", 1_000)):
        carried = {"KEYS": key, "TIMER_DELIVER_MS": str(due_ms + more_ms)}
        await ask(gateway.sending.send, [NewMessage(queue, b"xy", carried)])

    listed = await ask(gateway.sending.timers, "broker-a")
    found = await ask(gateway.sending.timers, "broker-a", "b")

    assert listed is not None
    assert (listed.total, listed.next_due_ms) == (2, due_ms + 1_000)
    assert [(each.topic, each.keys, each.due_ms, each.body_bytes) for each in listed.timers] == [
        ("Orders", "a", due_ms + 1_000, 2),
        ("Orders", "b", due_ms + 2_000, 2),
    ]
    assert found is not None
    assert [each.keys for each in found.timers] == ["b"]
    status = await ask(gateway.topics.status, "Orders")
    assert sum(row.message_count for row in status) == 0
