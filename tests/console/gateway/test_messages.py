"""The contract of MessageGateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import MessageQueue, TopicConfig
from console.gateway.errors import GatewayError
from tests.console.gateway.support import BILLING, ORDERS, ask, send

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


FIRST = MessageQueue("Orders", "broker-a", 0)


async def test_a_missing_topic_has_no_route(gateway: Gateway) -> None:
    assert await gateway.messages.route("Nowhere") is None


async def test_a_route_has_the_queues_allowed_by_the_permission(gateway: Gateway) -> None:
    await ask(gateway.topics.save, TopicConfig("Archive", 2, 2, perm=4), ["broker-a"])

    route = await gateway.messages.route("Archive")

    assert route is not None
    assert [queue.queue_id for queue in route.read_queues] == [0, 1]
    assert route.write_queues == ()


async def test_sent_messages_get_the_next_queue_offset(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])

    assert await send(gateway, "Orders", queue_id=0, count=2) == [0, 1]


async def test_a_missing_queue_accepts_no_message(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])

    with pytest.raises(GatewayError):
        await send(gateway, "Orders", queue_id=7, count=1)


async def test_a_pull_returns_available_messages_and_where_to_continue(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=0, count=3)
    await gateway.messages.join(BILLING)

    pulled = await gateway.messages.pull(FIRST, "billing", 1, BILLING.sub_version)

    assert (pulled.message_count, pulled.next_begin_offset) == (2, 3)


async def test_a_pull_at_the_end_waits_for_the_next_message(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await gateway.messages.route("Orders")
    await gateway.messages.join(BILLING)

    pull = asyncio.create_task(gateway.messages.pull(FIRST, "billing", 0, BILLING.sub_version))
    await send(gateway, "Orders", queue_id=0, count=1)
    pulled = await asyncio.wait_for(pull, 10)

    assert (pulled.message_count, pulled.next_begin_offset) == (1, 1)


async def test_a_group_starts_at_the_first_message_and_continues_where_it_committed(
    gateway: Gateway,
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=0, count=3)
    begins_at = await gateway.messages.consumer_offset(FIRST, "billing")
    await gateway.messages.commit(FIRST, "billing", 2)

    assert begins_at == 0
    assert await gateway.messages.consumer_offset(FIRST, "billing") == 2


async def test_a_client_is_a_member_until_it_unregisters(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await gateway.messages.route("Orders")

    before = await gateway.messages.members(FIRST, "billing")
    await gateway.messages.join(BILLING)
    during = await gateway.messages.members(FIRST, "billing")
    await gateway.messages.leave(BILLING)

    assert (before, during) == ((), ("member-1",))
    assert await gateway.messages.members(FIRST, "billing") == ()


async def test_a_joining_client_changes_the_members(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await gateway.messages.route("Orders")
    await gateway.messages.join(BILLING)

    await asyncio.wait_for(gateway.messages.until_members_change(), 10)
