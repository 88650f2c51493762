"""Detecting that a master was replaced, and its reaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from broker_core.errors import ReplicationError
from broker_core.ha.epochs import AssignedRole, Epoch, Epochs
from broker_core.ha.mastership import Mastership
from broker_core.ha.peers import BrokerState
from broker_core.ha.role import Role
from broker_core.ha.shutdown import Shutdown
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_core.ha.peers import Peers
    from tests.support.clock import ManualClock

NEW, OTHER = "10.0.0.2:10911", "10.0.0.3:10911"
PROMOTED = BrokerState(
    cluster_name="c",
    broker_name="b",
    broker_id=0,
    broker_role="ASYNC_MASTER",
    ha_server_addr="",
    min_offset=0,
    max_offset=9,
    epochs=(Epoch(epoch=2, start_offset=5),),
    former_broker_id=4,
)


class FakeSet:
    """The other brokers of the set, as `Peers` reports them."""

    def __init__(self) -> None:
        self.registered_by_id: dict[int, str] | None = {}
        self.states: dict[str, BrokerState] = {}
        self.rounds = 0
        self.silence: asyncio.Event | None = None

    async def registered(self) -> dict[int, str] | None:
        self.rounds += 1
        if self.silence is not None:
            await self.silence.wait()
        return self.registered_by_id

    async def states_of(self, addresses: Iterable[str]) -> dict[str, BrokerState]:
        requests = list(addresses)
        return {address: self.states[address] for address in requests if address in self.states}

    async def shutdown(self) -> None:
        return


class OneMaster:
    """A master of epoch 1 that may have been replaced."""

    def __init__(
        self, clock: ManualClock, configured: tuple[str, int] = ("SYNC_MASTER", 0)
    ) -> None:
        self.others = FakeSet()
        self.role = Role("SYNC_MASTER", 0)
        self.storage = FaultyStorage()
        self.epochs = Epochs(Path("/store/epoch.json"), self.storage)
        self.epochs.begin(1, 0, None)
        self.ending = Shutdown()
        self.ended = 0
        self.ending.on_request(self.count_end)
        self.mastership = Mastership(
            self.role, configured, self.epochs, cast("Peers", self.others), self.ending, clock
        )

    def count_end(self) -> None:
        self.ended += 1


async def test_a_replaced_master_starts_again_as_the_new_ones_slave(clock: ManualClock) -> None:
    master = OneMaster(clock)
    master.others.registered_by_id = {0: NEW}
    master.others.states = {NEW: PROMOTED}

    await master.mastership.check()

    assert (master.ending.is_requested, master.ending.failure, master.ended) == (True, "", 1)
    assert master.epochs.role == AssignedRole(
        broker_role="SLAVE", broker_id=4, configured_role="SYNC_MASTER", configured_id=0
    )


async def test_a_replaced_promoted_slave_gets_its_configured_role_back(
    clock: ManualClock,
) -> None:
    master = OneMaster(clock, ("SLAVE", 7))
    master.epochs.set_role(
        AssignedRole(
            broker_role="SYNC_MASTER", broker_id=0, configured_role="SLAVE", configured_id=7
        )
    )
    master.epochs.add_peer(NEW)
    master.others.registered_by_id = None
    master.others.states = {NEW: PROMOTED}

    await master.mastership.check()

    assert master.ending.is_requested
    assert master.ending.failure == ""
    assert master.epochs.role is None


@pytest.mark.parametrize(
    "state",
    [
        msgspec.structs.replace(PROMOTED, epochs=(Epoch(epoch=1, start_offset=0),)),
        msgspec.structs.replace(PROMOTED, epochs=()),
    ],
)
async def test_a_broker_without_a_later_epoch_replaces_none(
    clock: ManualClock, state: BrokerState
) -> None:
    master = OneMaster(clock)
    master.others.registered_by_id = {0: NEW}
    master.others.states = {NEW: state}

    await master.mastership.check()

    assert not master.ending.is_requested
    assert master.epochs.role is None


async def test_only_the_master_of_the_newest_epoch_reports_the_free_id(
    clock: ManualClock,
) -> None:
    master = OneMaster(clock)
    slave = msgspec.structs.replace(PROMOTED, broker_role="SLAVE", former_broker_id=8)
    older = msgspec.structs.replace(PROMOTED, former_broker_id=9)
    newest = (Epoch(epoch=3, start_offset=7),)
    master.others.registered_by_id = {0: "a:1", 1: "b:1", 2: NEW}
    master.others.states = {
        "a:1": older,
        "b:1": msgspec.structs.replace(slave, epochs=newest),
        NEW: msgspec.structs.replace(PROMOTED, epochs=newest),
    }

    await master.mastership.check()

    assert master.epochs.role is not None
    assert master.epochs.role.broker_id == 4


@pytest.mark.parametrize(
    "state",
    [
        msgspec.structs.replace(PROMOTED, former_broker_id=None),
        msgspec.structs.replace(PROMOTED, broker_role="SLAVE"),
    ],
)
async def test_without_a_free_id_it_stops_and_explains_how_to_continue(
    clock: ManualClock, state: BrokerState
) -> None:
    master = OneMaster(clock)
    master.others.registered_by_id = {0: NEW}
    master.others.states = {NEW: state}

    await master.mastership.check()

    assert master.ending.failure.startswith(
        f"the broker at {NEW} reports epoch 2 for this set, but this broker started as master of "
        "epoch 1; it was replaced."
    )
    assert master.epochs.role is None


async def test_an_unwritable_role_stops_it(clock: ManualClock) -> None:
    master = OneMaster(clock)
    master.others.registered_by_id = {0: NEW}
    master.others.states = {NEW: PROMOTED}
    master.storage.fail("write_atomically")

    await master.mastership.check()

    assert "reports epoch 2 for this set" in master.ending.failure


async def test_a_slave_and_a_stopping_broker_check_no_other_brokers(clock: ManualClock) -> None:
    master = OneMaster(clock)
    await master.role.changed("SLAVE", 1)
    await master.mastership.check()
    await master.role.changed("SYNC_MASTER")
    master.ending.fail("because")
    await master.mastership.check()

    assert master.others.rounds == 0


async def test_a_name_server_with_a_later_epoch_stops_a_master(clock: ManualClock) -> None:
    master = OneMaster(clock)
    master.mastership.outranked(1, "ns:9876")
    await master.role.changed("SLAVE", 1)
    master.mastership.outranked(2, "ns:9876")
    assert not master.ending.is_requested

    await master.role.changed("SYNC_MASTER")
    master.mastership.outranked(2, "ns:9876")

    assert master.ending.failure.startswith("the name server at ns:9876 reports epoch 2")


async def test_a_replaced_master_does_not_start(clock: ManualClock) -> None:
    master = OneMaster(clock)
    master.others.registered_by_id = {0: NEW}
    master.others.states = {NEW: PROMOTED}

    with pytest.raises(ReplicationError, match="this broker was replaced"):
        await master.mastership.start()


async def test_a_stopped_masters_start_explains_why(clock: ManualClock) -> None:
    master = OneMaster(clock)
    master.ending.fail("because")

    with pytest.raises(ReplicationError, match="because"):
        await master.mastership.start()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_set_silent_for_ten_seconds_does_not_delay_a_start(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    master = OneMaster(clock)
    master.others.silence = asyncio.Event()
    starting = asyncio.create_task(master.mastership.start())
    await turns()
    clock.advance_ms(9_999)
    await turns()
    assert not starting.done()

    clock.advance_ms(1)
    await turns()

    assert starting.done()
    await starting
    assert [line for line in caplog.messages if "name servers and peers unreachable" in line]
    await master.mastership.shutdown()


@pytest.mark.parametrize("knows_a_set", [True, False])
async def test_a_master_of_a_set_asks_every_five_seconds(
    clock: ManualClock, knows_a_set: bool
) -> None:
    master = OneMaster(clock)
    if not knows_a_set:
        master.epochs.adopt([])
    await master.mastership.start()
    for milliseconds in (4_999, 1, 5_000):
        await turns()
        clock.advance_ms(milliseconds)
    await turns()

    assert master.others.rounds == (3 if knows_a_set else 1)
    await master.mastership.shutdown()
