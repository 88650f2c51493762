"""Promotion: the slave of a running process becomes its set's master.

In this order: nothing more is taken from the old master, and all that came is dispatched; the new
epoch and the role are written durably; then the role changes, and with it all that depends on it.
So no message is put before its epoch is recorded, and a kill at any step leaves a slave or a
master, never something between: epoch.json decides.

While the old master may be alive, only `force` promotes: two masters would take messages, and those
of the old one are lost to readers when it comes back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, get_args

from broker_core.errors import ReplicationError
from broker_core.ha.epochs import GivenRole
from broker_core.ha.role import MASTER_ID, SLAVE, BrokerRole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.ha.epochs import Epochs
    from broker_core.ha.peers import Peers
    from broker_core.ha.role import Role

logger = logging.getLogger(__name__)

MASTER_ROLES: tuple[BrokerRole, ...] = tuple(role for role in get_args(BrokerRole) if role != SLAVE)
DEFAULT_ROLE: BrokerRole = "ASYNC_MASTER"


class MasterAliveError(ReplicationError):
    """The old master lives, or may live: only a forced promotion goes on."""


class Promoted(NamedTuple):
    """What a promotion has made of the broker."""

    epoch: int
    start_offset: int
    broker_role: str


class Promotion:
    """Event loop only.

    `stop_following` ends replication from the master for good and returns when all whole records
    that came are dispatched; a part of a record at the end is gone then.
    """

    def __init__(
        self,
        role: Role,
        configured: tuple[str, int],
        epochs: Epochs,
        peers: Peers,
        *,
        former_id: Callable[[], int | None],
        followed: Callable[[], str | None],
        last_role: Callable[[], str],
        stop_following: Callable[[], Awaitable[None]],
        max_offset: Callable[[], int],
    ) -> None:
        """`former_id` returns the id of this slave, None for what was none; `followed` the HA
        address of a connected master, `last_role` its role.
        """
        self._role = role
        self._configured = configured
        self._epochs = epochs
        self._peers = peers
        self._former_id = former_id
        self._followed = followed
        self._last_role = last_role
        self._stop_following = stop_following
        self._max_offset = max_offset
        self._is_running = False

    async def promote(self, broker_role: str = "", *, is_forced: bool = False) -> Promoted:
        """Make this slave the master; by default of the kind that the old one was.

        Raises:
            MasterAliveError: the old master may be alive, and it is not forced.
            ReplicationError: this broker is no slave, or is being promoted already.
            OSError: the epoch cannot be written; the broker is a slave as before.
        """
        wanted = _role_of(broker_role or self._last_role() or DEFAULT_ROLE)
        if not self._role.is_slave:
            raise ReplicationError(
                f"this broker is a master already ({self._role.broker_role}, epoch "
                f"{self._epochs.newest})"
            )
        if self._is_running:
            raise ReplicationError("this broker is being promoted already")
        self._is_running = True
        try:
            newest = await self._newest_of_set(is_forced=is_forced)
            await self._stop_following()
            promoted = self._begin(newest + 1, wanted)
        finally:
            self._is_running = False
        logger.warning(
            "promoted: broker_role=%s epoch=%d start_offset=%d",
            promoted.broker_role,
            promoted.epoch,
            promoted.start_offset,
        )
        await self._role.changed(wanted)
        return promoted

    def _begin(self, epoch: int, wanted: BrokerRole) -> Promoted:
        configured_role, configured_id = self._configured
        start_offset = self._max_offset()
        self._epochs.begin(
            epoch,
            start_offset,
            GivenRole(
                broker_role=wanted,
                broker_id=MASTER_ID,
                configured_role=configured_role,
                configured_id=configured_id,
                former_id=self._former_id(),
            ),
        )
        return Promoted(epoch, start_offset, wanted)

    async def _newest_of_set(self, *, is_forced: bool) -> int:
        """Return the latest epoch that anybody in the set knows; refuse while the master lives."""
        registered = await self._peers.registered()
        known = {} if registered is None else dict(registered)
        states = await self._peers.states_of([*known.values(), *self._epochs.peers])
        newest = max([self._epochs.newest, *(state.newest for state in states.values())])
        if is_forced:
            return newest
        hint = "Stop it first, or promote with force: what it takes meanwhile is lost to readers"
        for address, state in states.items():
            if not state.is_slave:
                raise MasterAliveError(f"the master at {address} is alive. {hint}")
        followed = self._followed()
        if followed is not None:
            raise MasterAliveError(f"this broker follows the master at {followed}. {hint}")
        master = known.get(MASTER_ID)
        if master is not None:
            if await self._peers.is_reachable(master):
                raise MasterAliveError(f"the master at {master} takes connections. {hint}")
            raise MasterAliveError(
                f"a name server still hears from the master at {master}, which this broker cannot "
                f"reach. {hint}"
            )
        return newest


def _role_of(text: str) -> BrokerRole:
    for role in MASTER_ROLES:
        if role == text:
            return role
    raise ReplicationError(f"{text} is not the role of a master: {' or '.join(MASTER_ROLES)}")
