"""MastersDuties: the services that only a master runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.composition.pop import PopParts
    from broker_core.delay.schedule import ScheduleService
    from broker_core.ha.role import Role
    from broker_core.timers.service import TimerService
    from broker_core.transaction.check import TransactionCheck
    from broker_core.transaction.resolve import Transactions

logger = logging.getLogger(__name__)


class MastersDuties:
    """Delivery of delayed messages, transaction checks, and redelivery of leased messages.

    Event loop only.

    They start when a slave becomes master and stop when a master becomes slave.
    Source: broker/BrokerController.java changeToMaster, changeToSlave (4.9.7).
    """

    def __init__(
        self,
        role: Role,
        schedule: ScheduleService,
        timers: TimerService,
        transactions: Transactions,
        transaction_check: TransactionCheck,
        pop: PopParts,
        lower_offsets: Callable[[], None],
    ) -> None:
        self._role = role
        self._schedule = schedule
        self._timers = timers
        self._transactions = transactions
        self._transaction_check = transaction_check
        self._pop = pop
        self._lower_offsets = lower_offsets
        self._is_started = False
        self._is_on_duty = False
        role.listen(self._role_changed)

    def start(self) -> None:
        """Start them on a master; on a slave wait until the role changes."""
        self._is_started = True
        if not self._role.is_slave:
            self._begin()

    async def shutdown(self) -> None:
        """Stop, and write the progress."""
        self._is_started = False
        await self._end()

    async def _role_changed(self) -> None:
        if not self._is_started:
            return
        if self._role.is_slave:
            await self._end()
        elif self._may_begin():
            # All data came from the master, without the bookkeeping of a put.
            self._lower_offsets()
            await self._pop.load_in_turns()
            if not self._may_begin():
                return
            self._schedule.begin()
            self._timers.begin()
            self._transactions.load()
            self._begin()
            logger.info("delayed delivery and transaction checks started")

    def _may_begin(self) -> bool:
        """Return whether this broker is a master whose duties don't run yet."""
        return self._is_started and not self._role.is_slave and not self._is_on_duty

    def _begin(self) -> None:
        self._is_on_duty = True
        self._schedule.start()
        self._timers.start()
        self._transaction_check.start()
        self._pop.revival.start()

    async def _end(self) -> None:
        if self._is_on_duty:
            self._is_on_duty = False
            await self._pop.revival.shutdown()
            if self._role.is_slave:
                self._pop.engine.clear()
            await self._transaction_check.shutdown()
            await self._timers.shutdown()
            await self._schedule.shutdown()
