"""The contract of RepairGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import MessageQueue, TopicConfig
from console.gateway.errors import GatewayError
from console.lib.stored import BrokerQueue
from tests.console.gateway.support import ORDERS, ask, send

if TYPE_CHECKING:
    from console.gateway.ports import Gateway

QUEUE = BrokerQueue("broker-a", 1)


async def test_messages_are_read_whole_from_an_offset(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=3)

    received = await ask(gateway.repair.copies, "Orders", QUEUE, 1, 32)
    end = await ask(gateway.repair.copies, "Orders", QUEUE, 3, 32)

    assert [copy.stored.queue_offset for copy in received.messages] == [1, 2]
    assert {len(copy.body) == copy.stored.body_bytes for copy in received.messages} == {True}
    assert received.next_offset == 3
    assert (end.messages, end.next_offset) == ((), 3)


async def test_a_resent_message_has_the_given_properties(
    gateway: Gateway,
) -> None:
    for config in (ORDERS, TopicConfig("Again", 1, 1, 6)):
        await ask(gateway.topics.save, config, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=1)
    copy = (await ask(gateway.repair.copies, "Orders", QUEUE, 0, 1)).messages[0]
    targets = await ask(gateway.repair.writable, "Again")
    table = {"KEYS": "k9", "UNIQ_KEY": "AC", "own": "1"}

    offset = await ask(gateway.repair.resend, copy, targets[0], table)

    assert targets == (MessageQueue("Again", "broker-a", 0),)
    assert offset == 0
    status = await ask(gateway.topics.status, "Again")
    assert [row.message_count for row in status] == [1]


async def test_a_missing_topic_accepts_no_messages(gateway: Gateway) -> None:
    assert await ask(gateway.repair.writable, "Nowhere") == ()


async def test_a_compressed_body_stays_compressed(gateway: Gateway) -> None:
    """The stored copy has the same bytes, flag and properties, in another topic."""
    for config in (ORDERS, TopicConfig("Again", 1, 1, 6)):
        await ask(gateway.topics.save, config, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=1)
    copy = (await ask(gateway.repair.copies, "Orders", QUEUE, 0, 1)).messages[0]
    target = MessageQueue("Again", "broker-a", 0)

    await ask(gateway.repair.resend, copy, target, {**copy.stored.properties, "own": "1"})

    again = (await ask(gateway.repair.copies, "Again", BrokerQueue("broker-a", 0), 0, 1)).messages[
        0
    ]
    assert (again.body, again.flag, again.sys_flag) == (copy.body, copy.flag, copy.sys_flag)
    assert again.stored.uniq_key == copy.stored.uniq_key
    assert again.stored.properties["own"] == "1"


async def test_a_message_that_a_broker_rejects_is_an_error(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=1)
    copy = (await ask(gateway.repair.copies, "Orders", QUEUE, 0, 1)).messages[0]

    with pytest.raises(GatewayError):
        await ask(gateway.repair.resend, copy, MessageQueue("Orders", "broker-b", 9), {})
