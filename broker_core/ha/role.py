"""Role: this broker's current role in its set. Dependent code reads it each time.

Source: store/config/BrokerRole.java, broker/BrokerStartup.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Listener = Callable[[], Awaitable[None] | None]

BrokerRole: TypeAlias = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]

MASTER_ID = 0
SLAVE: BrokerRole = "SLAVE"


class Role:
    """Master or slave, and the broker's ID in its set. Event loop only.

    Don't cache it: a promotion changes the role of the running process.
    """

    __slots__ = ("_listeners", "broker_id", "broker_role", "is_slave")

    def __init__(self, broker_role: BrokerRole, broker_id: int) -> None:
        self._listeners: list[Listener] = []
        self._become(broker_role, broker_id)

    def listen(self, listener: Listener) -> None:
        """Call the listener after each change, after the existing listeners."""
        self._listeners.append(listener)

    async def changed(self, broker_role: BrokerRole, broker_id: int = MASTER_ID) -> None:
        """Change the role, then call the listeners in order.

        A listener's error is raised to the caller: the role has changed, the remaining listeners
        haven't been called, and the broker has to be restarted.

        Raises:
            ValueError: a slave's broker_id is not above 0.
        """
        self._become(broker_role, broker_id)
        for listener in self._listeners:
            awaited = listener()
            if awaited is not None:
                await awaited

    def _become(self, broker_role: BrokerRole, broker_id: int) -> None:
        is_slave = broker_role == SLAVE
        if is_slave and broker_id <= MASTER_ID:
            raise ValueError(f"a slave's brokerId must be above 0, not {broker_id}")
        self.broker_role = broker_role
        self.is_slave = is_slave
        # As in RocketMQ, a master always has this ID, regardless of its configuration file.
        self.broker_id = broker_id if is_slave else MASTER_ID
