"""The contract of BrowseGateway, and of reading records."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker_core.message.ids import parse_offset_msg_id
from console.gateway.answers import GroupConfig
from console.gateway.errors import NotFoundError, UnknownStoreError
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from console.gateway.requests.records import decode_all
from console.lib.stored import BrokerQueue, MessageRange, Place
from tests.console.gateway.support import ORDERS, ask, send
from tests.support.broker import running_broker
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from console.gateway.ports import Gateway

FOREVER_MS = 1 << 44


async def everything(gateway: Gateway, target: MessageRange, count: int) -> list[Place]:
    """Return the locations on all pages."""
    places: list[Place] = []
    total = None
    while True:
        found = await ask(gateway.browse.newest, target, places[-1] if places else None, count)
        total = found.total if total is None else total
        assert len(found.messages) <= count
        places += [each.place for each in found.messages]
        # The bounds of a time range are accurate to a message or two per queue.
        assert 0 <= total - len(places) - found.left <= 2 * ORDERS.read_queue_nums
        if not found.left:
            return places


@pytest.mark.parametrize("count", [1, 7, 100])
async def test_pages_list_each_message_once_newest_first_over_all_queues(
    gateway: Gateway, count: int
) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    for queue_id, number in ((1, 40), (0, 3), (1, 1)):
        await send(gateway, "Orders", queue_id=queue_id, count=number)

    places = await everything(gateway, MessageRange("Orders", 0, FOREVER_MS), count)

    assert places == sorted(places, reverse=True)
    assert sorted((each.queue.queue_id, each.queue_offset) for each in places) == [
        *((0, offset) for offset in range(3)),
        *((1, offset) for offset in range(41)),
    ]


async def test_a_search_ends_at_its_time_and_at_its_queue(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=0, count=5)
    await send(gateway, "Orders", queue_id=1, count=5)
    queue = BrokerQueue("broker-a", 1)
    whole = await everything(gateway, MessageRange("Orders", 0, FOREVER_MS), 100)

    assert {each.queue for each in whole} == {queue, BrokerQueue("broker-a", 0)}
    of_one = await everything(gateway, MessageRange("Orders", 0, FOREVER_MS, queue), 2)
    assert [each.queue for each in of_one] == [queue] * 5
    assert await everything(gateway, MessageRange("Orders", 0, 1_000), 100) == []
    low, high = whole[-1].store_ms, whole[0].store_ms
    within = [each for each in whole if low + 1 <= each.store_ms < high]
    found = await ask(gateway.browse.newest, MessageRange("Orders", low + 1, high), None, 100)
    assert [each.place for each in found.messages] == within


async def test_one_message_is_found_only_at_its_offset(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=2)
    queue = BrokerQueue("broker-a", 1)

    found = await ask(gateway.browse.at, "Orders", queue, 1)

    assert found is not None
    assert (found.queue, found.queue_offset) == (queue, 1)
    assert found.body
    assert found.keys
    assert await ask(gateway.browse.at, "Orders", queue, 2) is None
    assert await ask(gateway.browse.at, "Orders", BrokerQueue("broker-x", 1), 0) is None


async def test_an_id_identifies_one_message_of_one_broker(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await send(gateway, "Orders", queue_id=1, count=2)
    there = await ask(gateway.browse.at, "Orders", BrokerQueue("broker-a", 1), 1)
    assert there is not None
    place = parse_offset_msg_id(there.offset_msg_id)
    assert place is not None

    assert await ask(gateway.browse.by_id, place) == there
    beyond = place._replace(commit_log_offset=1 << 50)
    assert await ask(gateway.browse.by_id, beyond) is None
    with pytest.raises(UnknownStoreError):
        await ask(gateway.browse.by_id, place._replace(host="10.9.9.9:10911"))


async def test_a_key_finds_its_messages_within_a_time_range_newest_first(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    for queue_id in (0, 1, 0):
        await send(gateway, "Orders", queue_id=queue_id, count=2)

    async with asyncio.timeout(PATIENCE_S):
        # The index lags behind the log.
        while True:
            found = await ask(gateway.browse.by_key, "Orders", "k2", 0, FOREVER_MS)
            if len(found.messages) == 6:
                break

    times = [each.store_ms for each in found.messages]
    assert times == sorted(times, reverse=True)
    assert not found.has_more
    assert found.without_index == ()
    assert (await ask(gateway.browse.by_key, "Orders", "k", 0, FOREVER_MS)).messages == ()
    assert (await ask(gateway.browse.by_key, "Orders", "k2", 0, times[-1])).messages == ()
    unique = found.messages[0].uniq_key
    if unique:
        one = await ask(gateway.browse.by_key, "Orders", unique, 0, FOREVER_MS)
        assert [each.uniq_key for each in one.messages] == [unique]


async def test_a_key_is_found_in_several_topics_within_the_time(gateway: Gateway) -> None:
    bills = replace(ORDERS, topic="Bills")
    for config in (ORDERS, bills):
        await ask(gateway.topics.save, config, ["broker-a"])
        await send(gateway, config.topic, queue_id=0, count=2)
    topics = ["Bills", "Missing", "Orders"]

    async with asyncio.timeout(PATIENCE_S):
        # The index lags behind the log.
        while True:
            found = await ask(gateway.browse.by_key_in, topics, "k2", 0, FOREVER_MS, 5.0)
            if len(found.messages) == 4:
                break

    assert {each.topic for each in found.messages} == {"Bills", "Orders"}
    times = [each.store_ms for each in found.messages]
    assert times == sorted(times, reverse=True)
    assert (found.searched, found.has_more, found.problems) == (3, False, ())
    none = await ask(gateway.browse.by_key_in, topics, "k2", 0, FOREVER_MS, 0.0)
    assert (none.searched, none.messages) == (0, ())


async def test_viewing_moves_no_group(gateway: Gateway) -> None:
    await ask(gateway.topics.save, ORDERS, ["broker-a"])
    await ask(gateway.groups.save, GroupConfig("billing"), ["broker-a"])
    await send(gateway, "Orders", queue_id=0, count=3)

    await ask(gateway.browse.newest, MessageRange("Orders", 0, FOREVER_MS), None, 100)

    for name in await ask(gateway.groups.all):
        progress = await ask(gateway.groups.progress, name)
        assert all(row.consumer_offset is None for row in progress.queues), name


async def test_a_missing_topic_is_not_found(gateway: Gateway) -> None:
    with pytest.raises(NotFoundError):
        await ask(gateway.browse.newest, MessageRange("Nowhere", 0, FOREVER_MS), None, 100)


@pytest.mark.parametrize(
    "data",
    [b"\0", struct.pack(">i", 200), struct.pack(">i", 4), struct.pack(">i", 80) + bytes(76)],
)
def test_bytes_without_a_record_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="record"):
        list(decode_all(data, "broker-a"))


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_broker_that_names_no_index_has_none_only_if_it_keeps_none(
    tmp_path: Path, is_kept: bool
) -> None:
    async with running_broker(tmp_path, messageIndexEnable=is_kept) as broker:
        port = broker.configuration.broker.namesrv_listen_port
        brokers = RemoteBrokers([f"127.0.0.1:{port}"], PATIENCE_S)
        gateway = gateway_to(brokers)
        await ask(gateway.topics.save, ORDERS, ["broker-a"])

        found = await ask(gateway.browse.by_key, "Orders", "unknown", 0, FOREVER_MS)

        assert found.messages == ()
        assert found.without_index == (() if is_kept else ("broker-a",))
        await gateway.messages.close()
        await ask(brokers.close)
