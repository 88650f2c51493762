"""Mastership: whether this broker is still the master of its set.

A promotion begins an epoch that the old master doesn't have. So a master asks the other brokers
of its set before it starts serving and every few seconds after that: brokers that asked it for its
epochs before, and brokers that name servers list under its name. If one of them is in a later
epoch, this broker was replaced. It takes the ID that the new master had, and restarts as its slave;
when no broker says which ID is free, it stops and logs how to continue.

If no broker answers, it assumes that it hasn't been replaced, and serves. Two brokers can't do
better, since a broken network and a dead peer look the same. Messages that both accepted meanwhile
aren't lost silently, but saved aside when they reconnect (`divergence`); SYNC_MASTER never
acknowledges such messages.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.clock import wait_within
from broker_core.errors import ReplicationError
from broker_core.ha.epochs import AssignedRole
from broker_core.ha.role import SLAVE
from broker_core.service import Service

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.ha.epochs import Epochs
    from broker_core.ha.peers import BrokerState, Peers
    from broker_core.ha.role import Role
    from broker_core.ha.shutdown import Shutdown

logger = logging.getLogger(__name__)

CHECK_PERIOD_S = 5.0
START_TIMEOUT_S = 10.0


class Mastership(Service):
    """Watches for a later epoch while this broker is master. Event loop only."""

    def __init__(
        self,
        role: Role,
        configured: tuple[str, int],
        epochs: Epochs,
        peers: Peers,
        ending: Shutdown,
        clock: Clock,
    ) -> None:
        """`configured`: brokerRole and brokerId of the configuration file."""
        super().__init__()
        self._role = role
        self._configured = configured
        self._epochs = epochs
        self._peers = peers
        self._ending = ending
        self._clock = clock

    async def start(self) -> None:
        """Check once before anything is served, then periodically.

        Raises:
            ReplicationError: another broker is the set's master.
        """
        looking = self.spawn(self.check(), name="mastership at start")
        if not await wait_within(self._clock, looking, START_TIMEOUT_S):
            looking.cancel()
            logger.warning(
                "name servers and peers unreachable, keeping the role role=%s",
                self._role.broker_role,
            )
        if self._ending.is_requested:
            raise ReplicationError(self._ending.failure or "this broker was replaced")
        self.spawn_forever(self._clock, self._check_forever, name="mastership")

    async def shutdown(self) -> None:
        await super().shutdown()
        await self._peers.shutdown()

    async def check(self) -> None:
        """Check whether this master was replaced, and end the broker if so."""
        if self._role.is_slave or self._ending.is_requested:
            return
        registered = await self._peers.registered() or {}
        states = await self._peers.states_of([*registered.values(), *self._epochs.peers])
        # Compare only now: a promotion of this broker may have begun an epoch meanwhile.
        later = {
            address: state
            for address, state in states.items()
            if state.newest > self._epochs.newest
        }
        if later and not self._role.is_slave:
            self._step_down(later)

    def _step_down(self, later: dict[str, BrokerState]) -> None:
        newest = max(state.newest for state in later.values())
        found = {
            address: state
            for address, state in later.items()
            if state.newest == newest and not state.is_slave
        }
        for address, state in found.items():
            broker_id = self._free_id(state)
            if broker_id is None:
                continue
            try:
                self._become_slave(broker_id)
            except OSError:
                logger.exception("epoch file not written")
                break
            self._ending.restart(
                f"the broker at {address} was promoted (epoch {newest}); this one becomes its "
                f"slave with brokerId={broker_id}"
            )
            return
        self._fail(f"the broker at {next(iter(found), next(iter(later)))}", newest)

    def outranked(self, epoch: int, where: str) -> None:
        """Record that a name server reports a later epoch of this set."""
        if not self._role.is_slave and epoch > self._epochs.newest:
            self._fail(f"the name server at {where}", epoch)

    def _free_id(self, master: BrokerState) -> int | None:
        """Return the ID for this broker as a slave: its own, or the new master's old one."""
        configured_role, configured_id = self._configured
        return configured_id if configured_role == SLAVE else master.former_broker_id

    def _become_slave(self, broker_id: int) -> None:
        configured_role, configured_id = self._configured
        given = None
        if configured_role != SLAVE:
            given = AssignedRole(
                broker_role=SLAVE,
                broker_id=broker_id,
                configured_role=configured_role,
                configured_id=configured_id,
            )
        self._epochs.set_role(given)

    def _fail(self, whom: str, epoch: int) -> None:
        self._ending.fail(
            f"{whom} reports epoch {epoch} for this set, but this broker started as master of "
            f"epoch {self._epochs.newest}; it was replaced. Start it as a slave "
            "(brokerRole=SLAVE, and a free brokerId above 0); it saves the messages that the "
            "new master lacks. Or, to continue with this log: python -m broker_core promote -c "
            "FILE --force, while it is stopped"
        )

    async def _check_forever(self) -> None:
        while True:
            await self._clock.sleep(CHECK_PERIOD_S)
            if self._epochs.peers or self._epochs.entries:
                await self.check()
