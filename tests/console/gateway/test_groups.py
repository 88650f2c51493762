"""The contract of GroupGateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import GroupConfig
from console.gateway.errors import RequestFailedError
from console.lib.stored import BrokerQueue
from tests.console.gateway.support import BILLING, ORDERS, ask, send
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


async def test_a_saved_group_is_listed_and_offline(gateway: Gateway) -> None:
    config = GroupConfig("billing", retry_max_times=3)
    await ask(gateway.groups.save, config, ["broker-a"])

    groups = await ask(gateway.groups.all)
    connections = await ask(gateway.groups.connections, "billing")

    assert groups["billing"].configs == {"broker-a": config}
    assert not connections.is_online


async def test_committed_offsets_are_the_groups_progress(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing"), ["broker-a"])
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 0): 0})

    progress = await ask(gateway.groups.progress, "billing")
    groups = await ask(gateway.topics.consumers, "Orders")

    assert [(row.queue_id, row.consumer_offset) for row in progress.queues] == [(0, 0), (1, None)]
    assert progress.lag == 0
    assert groups == ("billing",)


async def test_a_group_is_deleted_with_or_without_its_offsets(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing"), ["broker-a"])
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 0): 0})

    await ask(gateway.groups.delete, "billing", remove_offset=False)
    left = (await ask(gateway.groups.all))["billing"]
    await ask(gateway.groups.delete, "billing", remove_offset=True)

    assert left.configs == {}
    assert "billing" not in await ask(gateway.groups.all)


async def test_unconsumed_messages_are_the_lag(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=3)
    await ask(gateway.offsets.commit, "billing", "Orders", {BrokerQueue("broker-a", 1): 1})

    progress = await ask(gateway.groups.progress_of, ["billing"])

    assert progress["billing"].lag == 2


async def test_an_online_group_shows_its_members_and_subscriptions(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await gateway.messages.route("Orders")
    await gateway.messages.join(BILLING)

    connections = (await ask(gateway.groups.connections_of, ["billing"]))["billing"]

    assert connections.is_online
    assert [member.client_id for member in connections.members] == ["member-1"]
    assert connections.members[0].broker_names == ("broker-a",)
    assert ("Orders", "*") in [(each.topic, each.sub_string) for each in connections.subscriptions]


async def test_a_client_is_disconnected_from_all_its_groups_or_none(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await gateway.messages.route("Orders")
    await gateway.messages.join(BILLING)

    (producer,) = (each for each in await ask(gateway.groups.producers) if each.group == "pg")
    (report,) = await ask(gateway.groups.connected, "billing", "member-1")
    nobody = await ask(gateway.groups.connected, "billing", "member-2")
    with pytest.raises(RequestFailedError, match="does not name"):
        await ask(gateway.groups.disconnect, "billing", "member-1", ["billing"])
    still = await ask(gateway.groups.connected, "pg", "member-1")
    closed = await ask(gateway.groups.disconnect, "billing", "member-1", report.groups)

    assert (producer.client_id, producer.broker_names) == ("member-1", ("broker-a",))
    assert report.groups == {"billing", "pg"}
    assert nobody == ()
    assert still == closed == (report,)
    async with asyncio.timeout(PATIENCE_S):
        while await ask(gateway.groups.connected, "billing", "member-1"):
            pass
    assert not (await ask(gateway.groups.connections, "billing")).members
