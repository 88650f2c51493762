"""Promotion: makes the slave in a running process the master of its set.

The steps: stop receiving from the old master and dispatch everything received; write the new epoch
and the role durably; change the role, and with it everything that depends on it. So no message is
put before its epoch is recorded, and a kill at any step leaves either a slave or a
master: epoch.json decides.

While the old master may be alive, only `force` promotes: otherwise two masters would accept
messages, and readers would lose the old master's messages when it returns.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, get_args

from broker_core.errors import ReplicationError
from broker_core.ha.epochs import AssignedRole
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
    """The old master is or may be alive; only a forced promotion is possible."""


class PromotionResult(NamedTuple):
    """The broker's state after a promotion."""

    epoch: int
    start_offset: int
    broker_role: str


class Promotion:
    """Event loop only.

    `stop_following` permanently ends replication from the master and returns when all complete
    records have been dispatched; an incomplete record at the end has been removed.
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
        """`former_id` returns this slave's broker ID, or None.

        `followed` returns the HA address of a connected master, `last_role` its role.
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

    async def promote(self, broker_role: str = "", *, is_forced: bool = False) -> PromotionResult:
        """Make this slave the master; by default with the old master's role.

        Raises:
            MasterAliveError: the old master may be alive, and `is_forced` is false.
            ReplicationError: this broker isn't a slave, or is being promoted already.
            OSError: the epoch can't be written; the broker is still a slave.
        """
        wanted = _role_of(broker_role or self._last_role() or DEFAULT_ROLE)
        if not self._role.is_slave:
            raise ReplicationError(
                f"this broker is already a master ({self._role.broker_role}, epoch "
                f"{self._epochs.newest})"
            )
        if self._is_running:
            raise ReplicationError("this broker is already being promoted")
        self._is_running = True
        try:
            newest = await self._newest_of_set(is_forced=is_forced)
            await self._stop_following()
            promoted = self._begin(newest + 1, wanted)
        finally:
            self._is_running = False
        logger.warning(
            "broker promoted broker_role=%s epoch=%d start_offset=%d",
            promoted.broker_role,
            promoted.epoch,
            promoted.start_offset,
        )
        await self._role.changed(wanted)
        return promoted

    def _begin(self, epoch: int, wanted: BrokerRole) -> PromotionResult:
        configured_role, configured_id = self._configured
        start_offset = self._max_offset()
        self._epochs.begin(
            epoch,
            start_offset,
            AssignedRole(
                broker_role=wanted,
                broker_id=MASTER_ID,
                configured_role=configured_role,
                configured_id=configured_id,
                former_id=self._former_id(),
            ),
        )
        return PromotionResult(epoch, start_offset, wanted)

    async def _newest_of_set(self, *, is_forced: bool) -> int:
        """Return the latest epoch in the set; refuse while the master is alive."""
        registered = await self._peers.registered()
        known = {} if registered is None else dict(registered)
        states = await self._peers.states_of([*known.values(), *self._epochs.peers])
        newest = max([self._epochs.newest, *(state.newest for state in states.values())])
        if is_forced:
            return newest
        hint = (
            "Stop it first, or promote with force; messages that it accepts meanwhile are lost "
            "to consumers"
        )
        for address, state in states.items():
            if not state.is_slave:
                raise MasterAliveError(f"the master at {address} is alive. {hint}")
        followed = self._followed()
        if followed is not None:
            raise MasterAliveError(f"this broker follows the master at {followed}. {hint}")
        master = known.get(MASTER_ID)
        if master is not None:
            if await self._peers.is_reachable(master):
                raise MasterAliveError(f"the master at {master} accepts connections. {hint}")
            raise MasterAliveError(
                f"a name server still hears from the master at {master}, which this broker cannot "
                f"reach. {hint}"
            )
        return newest


def _role_of(text: str) -> BrokerRole:
    for role in MASTER_ROLES:
        if role == text:
            return role
    raise ReplicationError(f"{text} is not a master's role; use {' or '.join(MASTER_ROLES)}")
