"""Promotion of a slave to master, and the conditions that prevent it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from broker_core.errors import ReplicationError
from broker_core.ha.epochs import AssignedRole, Epoch, Epochs
from broker_core.ha.peers import BrokerState
from broker_core.ha.promotion import MasterAliveError, Promotion, PromotionResult
from broker_core.ha.role import Role
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_core.ha.peers import Peers

MASTER, OTHER = "10.0.0.1:10911", "10.0.0.3:10911"


class FakeSet:
    """The other brokers of the set, as `Peers` reports them."""

    def __init__(self) -> None:
        self.registered_by_id: dict[int, str] | None = {}
        self.states: dict[str, BrokerState] = {}
        self.reachable: set[str] = set()
        self.requests: list[str] = []

    async def registered(self) -> dict[int, str] | None:
        return self.registered_by_id

    async def states_of(self, addresses: Iterable[str]) -> dict[str, BrokerState]:
        self.requests = list(addresses)
        return {
            address: self.states[address] for address in self.requests if address in self.states
        }

    async def is_reachable(self, address: str) -> bool:
        return address in self.reachable


def state(broker_role: str, newest: int) -> BrokerState:
    return BrokerState(
        cluster_name="c",
        broker_name="b",
        broker_id=0,
        broker_role=broker_role,
        ha_server_addr="",
        min_offset=0,
        max_offset=9,
        epochs=(Epoch(epoch=newest, start_offset=0),),
    )


class OneSlave:
    """A slave that a test promotes."""

    def __init__(self) -> None:
        self.others = FakeSet()
        self.role = Role("SLAVE", 2)
        self.epochs = Epochs(Path("/store/epoch.json"), FaultyStorage())
        self.followed: str | None = None
        self.last_role = ""
        self.log: list[str] = []
        self.promotion = Promotion(
            self.role,
            ("SLAVE", 2),
            self.epochs,
            cast("Peers", self.others),
            former_id=lambda: 2,
            followed=lambda: self.followed,
            last_role=lambda: self.last_role,
            stop_following=self.stop_following,
            max_offset=lambda: 700 if self.log else 900,
        )
        self.role.listen(lambda: self.log.append("told"))

    async def stop_following(self) -> None:
        self.log.append("stopped")


async def test_a_slave_becomes_master_at_the_end_of_the_received_log() -> None:
    slave = OneSlave()

    promoted = await slave.promotion.promote()

    assert promoted == PromotionResult(1, 700, "ASYNC_MASTER")
    assert slave.log == ["stopped", "told"]
    assert (slave.role.broker_role, slave.role.broker_id) == ("ASYNC_MASTER", 0)
    assert slave.epochs.entries == (Epoch(epoch=1, start_offset=700),)
    assert slave.epochs.role == AssignedRole(
        broker_role="ASYNC_MASTER",
        broker_id=0,
        configured_role="SLAVE",
        configured_id=2,
        former_id=2,
    )


@pytest.mark.parametrize(
    ("role", "last_role", "expected"),
    [
        ("", "SYNC_MASTER", "SYNC_MASTER"),
        ("ASYNC_MASTER", "SYNC_MASTER", "ASYNC_MASTER"),
        ("SYNC_MASTER", "", "SYNC_MASTER"),
    ],
)
async def test_it_gets_the_requested_role_or_the_old_masters(
    role: str, last_role: str, expected: str
) -> None:
    slave = OneSlave()
    slave.last_role = last_role

    assert (await slave.promotion.promote(role)).broker_role == expected


@pytest.mark.parametrize("role", ["SLAVE", "MASTER", "async_master"])
async def test_a_role_that_is_not_a_masters_is_rejected(role: str) -> None:
    slave = OneSlave()

    with pytest.raises(ReplicationError, match=f"{role} is not a master's role"):
        await slave.promotion.promote(role)

    assert slave.log == []


async def test_its_epoch_is_later_than_any_known_to_the_set() -> None:
    slave = OneSlave()
    slave.epochs.add_peer(OTHER)
    slave.epochs.adopt([Epoch(epoch=3, start_offset=1)])
    slave.others.states[OTHER] = state("SLAVE", 6)

    promoted = await slave.promotion.promote()

    assert promoted.epoch == 7
    assert slave.others.requests == [OTHER]


async def test_its_own_epoch_also_counts() -> None:
    slave = OneSlave()
    slave.epochs.adopt([Epoch(epoch=9, start_offset=1)])
    slave.others.registered_by_id = None

    assert (await slave.promotion.promote()).epoch == 10


async def a_live_master(slave: OneSlave) -> None:
    slave.others.registered_by_id = {0: MASTER, 3: OTHER}
    slave.others.states = {MASTER: state("SYNC_MASTER", 4), OTHER: state("SLAVE", 4)}


async def a_followed_master(slave: OneSlave) -> None:
    slave.followed = "10.0.0.1:10912"


async def a_reachable_master(slave: OneSlave) -> None:
    slave.others.registered_by_id = {0: MASTER}
    slave.others.reachable = {MASTER}


async def a_registered_master(slave: OneSlave) -> None:
    slave.others.registered_by_id = {0: MASTER}


@pytest.mark.parametrize(
    ("arrange", "reason"),
    [
        (a_live_master, f"the master at {MASTER} is alive"),
        (a_followed_master, "this broker follows the master at 10.0.0.1:10912"),
        (a_reachable_master, f"the master at {MASTER} accepts connections"),
        (a_registered_master, f"still hears from the master at {MASTER}"),
    ],
)
async def test_a_possibly_live_master_prevents_a_promotion_unless_it_is_forced(
    arrange, reason: str
) -> None:
    slave = OneSlave()
    await arrange(slave)

    with pytest.raises(MasterAliveError, match=reason):
        await slave.promotion.promote()
    assert slave.log == []
    assert slave.role.is_slave

    promoted = await slave.promotion.promote(is_forced=True)
    assert promoted.epoch == (5 if arrange is a_live_master else 1)


async def test_a_master_is_not_promoted() -> None:
    slave = OneSlave()
    await slave.promotion.promote()

    with pytest.raises(ReplicationError, match=r"already a master \(ASYNC_MASTER, epoch 1\)"):
        await slave.promotion.promote()


async def test_one_promotion_runs_at_a_time_and_a_failed_one_may_be_repeated() -> None:
    slave = OneSlave()
    refusals: list[str] = []

    async def promote_meanwhile() -> dict[int, str]:
        with pytest.raises(ReplicationError) as refused:
            await slave.promotion.promote()
        refusals.append(str(refused.value))
        return {0: MASTER}

    slave.others.registered = promote_meanwhile  # type: ignore[method-assign]
    with pytest.raises(MasterAliveError):
        await slave.promotion.promote()
    assert refusals == ["this broker is already being promoted"]

    slave.others.registered = FakeSet().registered  # type: ignore[method-assign]
    assert (await slave.promotion.promote()).epoch == 1
