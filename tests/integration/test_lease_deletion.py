"""Deleting topics and groups that have leases, over a real socket."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

RETRY = "%RETRY%g_T"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as one:
        yield one


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    one = Client(f"127.0.0.1:{broker.listen_port}")
    for n in range(3):
        await one.send("T", b"%d" % n)
    yield one
    await one.shutdown()


async def pop(client: Client, poll_ms: int = 0, invisible_ms: int = 60_000) -> int:
    answer = await client.ask(
        RequestCode.POP_MESSAGE,
        consumerGroup="g",
        topic="T",
        queueId="-1",
        maxMsgNums="1",
        invisibleTime=str(invisible_ms),
        pollTime=str(poll_ms),
        bornTime=str(time.time_ns() // 1_000_000),
        initMode="0",
        order="false",
    )
    return answer.code


async def test_a_deleted_topic_takes_its_retry_topics_and_leases_with_it(
    broker: Broker, client: Client
) -> None:
    storage = broker.storage
    assert await pop(client, invisible_ms=1) == ResponseCode.SUCCESS
    await until_async(lambda: RETRY in storage.topics.table, "a retry")
    for _ in range(3):
        assert await pop(client) == ResponseCode.SUCCESS
    assert storage.pop.engine.leases.count == 3

    answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")

    assert answer.code == ResponseCode.SUCCESS
    assert storage.pop.engine.leases.count == 0
    assert not {"T", RETRY} & storage.topics.table.keys()
    assert not {"T", RETRY} & set(storage.store.topics())
    assert not {"T@g", f"{RETRY}@g"} & storage.offsets.table.keys()


@pytest.mark.parametrize("removes_offsets", [False, True])
async def test_a_deleted_group_has_no_leases(
    broker: Broker, client: Client, *, removes_offsets: bool
) -> None:
    assert await pop(client) == ResponseCode.SUCCESS

    answer = await client.ask(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        groupName="g",
        removeOffset=str(removes_offsets).lower(),
    )

    assert answer.code == ResponseCode.SUCCESS
    assert broker.storage.pop.engine.leases.count == 0
    assert broker.storage.offsets.query("g", "T", 0) == (-1 if removes_offsets else 0)
