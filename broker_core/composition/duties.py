"""MastersDuties: what only a master does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.delay.schedule import ScheduleService
    from broker_core.ha.role import Role
    from broker_core.transaction.check import TransactionCheck
    from broker_core.transaction.resolve import Transactions

logger = logging.getLogger(__name__)


class MastersDuties:
    """Delivery of delayed messages, and questions about transactions. Event loop only.

    They begin when a slave becomes master and end when a master becomes slave.
    Source: broker/BrokerController.java changeToMaster, changeToSlave (4.9.7).
    """

    def __init__(
        self,
        role: Role,
        schedule: ScheduleService,
        transactions: Transactions,
        transaction_check: TransactionCheck,
        lower_offsets: Callable[[], None],
    ) -> None:
        self._role = role
        self._schedule = schedule
        self._transactions = transactions
        self._transaction_check = transaction_check
        self._lower_offsets = lower_offsets
        self._is_started = False
        self._is_on_duty = False
        role.listen(self._role_changed)

    def start(self) -> None:
        """Begin as a master; as a slave wait until the role changes."""
        self._is_started = True
        if not self._role.is_slave:
            self._begin()

    async def shutdown(self) -> None:
        """Stop, and write how far they came."""
        self._is_started = False
        await self._end()

    async def _role_changed(self) -> None:
        if not self._is_started:
            return
        if self._role.is_slave:
            await self._end()
        elif not self._is_on_duty:
            # What there is came from the master: nothing of it was noted when it was put.
            self._lower_offsets()
            self._schedule.begin()
            self._transactions.load()
            self._begin()
            logger.info("delivery of delayed messages and transaction checks begin")

    def _begin(self) -> None:
        self._is_on_duty = True
        self._schedule.start()
        self._transaction_check.start()

    async def _end(self) -> None:
        if self._is_on_duty:
            self._is_on_duty = False
            await self._transaction_check.shutdown()
            await self._schedule.shutdown()
