"""The contract of OffsetGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import LATEST_TIMESTAMP, GroupConfig
from console.gateway.errors import NotFoundError, RequestFailedError
from console.lib.stored import BrokerQueue
from tests.console.gateway.support import BILLING, ORDERS, ask, send

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


async def test_a_time_is_within_a_queues_range(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=3)
    status = await ask(gateway.topics.status, "Orders")
    last_ms = status[1].last_update_ms
    assert last_ms is not None

    at_start = await ask(gateway.offsets.at, "Orders", 0)
    at_end = await ask(gateway.offsets.at, "Orders", last_ms + 60_000)

    assert at_start == {BrokerQueue("broker-a", 0): 0, BrokerQueue("broker-a", 1): 0}
    assert at_end == {BrokerQueue("broker-a", 0): 0, BrokerQueue("broker-a", 1): 3}


async def test_a_missing_time_in_a_topic_is_not_found(gateway: Gateway) -> None:
    with pytest.raises(NotFoundError):
        await ask(gateway.offsets.at, "Nowhere", 0)


async def test_a_group_without_members_cannot_be_reset_by_time(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing"), ["broker-a"])

    with pytest.raises(RequestFailedError) as caught:
        await ask(gateway.offsets.reset_online, "billing", "Orders", -1)

    assert caught.value.code in {1, 206}


async def test_the_members_of_an_online_group_move_to_the_end(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=0, count=1)
    await gateway.messages.join(BILLING)

    moved = await ask(gateway.offsets.reset_online, "billing", "Orders", LATEST_TIMESTAMP)

    assert moved == {BrokerQueue("broker-a", 0): 1, BrokerQueue("broker-a", 1): 0}


async def test_the_members_of_an_online_group_move_to_an_offset_of_each_queue(
    gateway: Gateway,
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=0, count=3)
    targets = {BrokerQueue("broker-a", 0): 2, BrokerQueue("broker-a", 1): 0}
    with pytest.raises(RequestFailedError):
        await ask(gateway.offsets.move_online, "billing", "Orders", targets)
    await gateway.messages.join(BILLING)

    await ask(gateway.offsets.move_online, "billing", "Orders", targets)

    with pytest.raises(RequestFailedError):
        await ask(gateway.offsets.move_online, "billing", "Orders", {BrokerQueue("broker-a", 0): 9})


async def test_an_offset_that_no_group_can_have_read_to_is_rejected(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=3)
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 1): 3})

    with pytest.raises(RequestFailedError, match="beyond the end"):
        await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 1): 4})
    with pytest.raises(NotFoundError):
        await ask(gateway.offsets.commit, "billing", "Nowhere", {BrokerQueue("broker-a", 1): 0})

    progress = await ask(gateway.groups.progress, "billing")
    assert {row.queue: row.consumer_offset for row in progress.queues}[
        BrokerQueue("broker-a", 1)
    ] == 3
