"""A slave copies consumer offsets only together with the leases they depend on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode
from tests.support.clock import ManualClock
from tests.support.time_steps import pass_time, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


from tests.support.following_slave import MASTER, Slave


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slave(clock: ManualClock) -> AsyncIterator[Slave]:
    one = Slave(clock)
    one.sync.follow(MASTER)
    yield one
    await one.sync.shutdown()


SEEN = "rmq_sys_REVIVE_LOG_c"
WITH_LEASES = b'{"offsetTable":{"T@g":{0:7},"rmq_sys_REVIVE_LOG_c@CID_RMQ_SYS_REVIVE_SEEN":{0:5}}}'


async def test_offsets_beyond_leases_wait_until_the_leases_are_replicated(
    slave: Slave, clock: ManualClock
) -> None:
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = WITH_LEASES
    slave.queue_ends[SEEN, 0] = 4
    syncing = asyncio.create_task(slave.sync.sync())
    await settle()
    assert slave.offsets.query("g", "T", 0) == -1

    slave.queue_ends[SEEN, 0] = 5
    await pass_time(clock, 20)
    await syncing

    assert slave.offsets.query("g", "T", 0) == 7


async def test_offsets_beyond_missing_leases_are_left_out(slave: Slave, clock: ManualClock) -> None:
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = WITH_LEASES
    slave.offsets.commit("g", "T", 0, 3)
    syncing = asyncio.create_task(slave.sync.sync())
    for _ in range(110):
        await pass_time(clock, 20)
    await syncing

    assert slave.offsets.query("g", "T", 0) == 3
    assert slave.sync.state.failures == {}


async def test_the_first_offsets_of_a_new_master_with_leases_replace_all(slave: Slave) -> None:
    slave.offsets.commit("g", "T", 0, 9)
    slave.queue_ends[SEEN, 0] = 5
    slave.master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = WITH_LEASES
    await slave.sync.sync()
    assert slave.offsets.query("g", "T", 0) == 7
    slave.offsets.commit("g", "T", 0, 8)
    await slave.sync.sync()
    assert slave.offsets.query("g", "T", 0) == 8

    slave.sync.follow("10.0.0.3:10911")
    await slave.sync.sync()

    assert slave.offsets.query("g", "T", 0) == 7
