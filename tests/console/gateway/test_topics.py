"""The contract of TopicGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import GroupConfig, TopicConfig, TopicKind
from console.gateway.errors import NotFoundError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from tests.console.gateway.support import ORDERS, ask, send

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


async def test_a_saved_topic_has_its_configuration_and_empty_queues(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])

    topic = (await ask(gateway.topics.all))["Orders"]
    status = await ask(gateway.topics.status, "Orders")

    assert topic.kind is TopicKind.NORMAL
    assert topic.configs == {"broker-a": ORDERS}
    assert [(row.queue_id, row.min_offset, row.max_offset) for row in status] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert all(row.last_update_ms is None for row in status)


async def test_a_changed_topic_keeps_the_change(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.topics.save, TopicConfig("Orders", 4, 4, 4), ["broker-a"])

    config = (await ask(gateway.topics.all))["Orders"].configs["broker-a"]

    assert (config.write_queue_nums, config.perm) == (4, 4)


async def test_queues_closed_to_producers_have_ends_as_long_as_they_are_read(
    gateway: Gateway,
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=3)
    await ask(gateway.topics.save, TopicConfig("Orders", 2, 1, 6), ["broker-a"])

    status = await ask(gateway.topics.status, "Orders")

    assert [(row.queue_id, row.min_offset, row.max_offset) for row in status] == [
        (0, 0, 0),
        (1, 0, 3),
    ]


async def test_a_deleted_topic_is_gone(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.topics.delete, "Orders")

    assert "Orders" not in await ask(gateway.topics.all)
    with pytest.raises(NotFoundError):
        await ask(gateway.topics.status, "Orders")


async def test_a_topic_without_traffic_has_none(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])

    traffic = (await ask(gateway.topics.traffic, ["Orders"]))["Orders"]

    assert (traffic.minute_tps, traffic.hour_sum) == (0.0, 0)


async def test_a_missing_topic_is_not_found(gateway: Gateway) -> None:
    with pytest.raises(NotFoundError):
        await ask(gateway.topics.status, "Nowhere")


async def test_a_queue_shows_when_its_first_message_was_stored(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    before = now_ms()
    await send(gateway, "Orders", queue_id=1, count=1)
    between = now_ms()
    await send(gateway, "Orders", queue_id=1, count=1)
    status = await ask(gateway.topics.status, "Orders")

    found = await ask(gateway.topics.oldest, status, "Orders")

    assert found[BrokerQueue("broker-a", 0)] is None
    first = found[BrokerQueue("broker-a", 1)]
    assert first is not None
    assert before <= first <= between


async def test_sent_messages_appear_at_the_end_of_their_queue(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=3)

    status = await ask(gateway.topics.status, "Orders")

    assert [row.message_count for row in status] == [0, 3]
    assert status[0].last_update_ms is None
    assert status[1].last_update_ms is not None


async def test_a_group_with_offsets_in_a_topic_consumes_it(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing"), ["broker-a"])
    before = await ask(gateway.topics.consumers, "Orders")
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 0): 0})

    assert before == ()
    assert await ask(gateway.topics.consumers, "Orders") == ("billing",)
