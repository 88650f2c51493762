"""SyncReplicas: reports the slaves' progress to the store of a SYNC_MASTER.

Source: store/ha/GroupTransferService.java, store/CommitLog.java calcNeedAckNums (5.3.3).
Differs: with fewer replicas than minInSyncReplicas the store refuses all puts, with
SERVICE_NOT_AVAILABLE; 5.x checks at each put, and answers SYSTEM_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.config.ha import HaConfig
    from broker_core.ha.master import HaMaster
    from broker_core.ha.role import Role
    from broker_core.store.message_store import MessageStore

SYNC_MASTER = "SYNC_MASTER"


class SyncReplicas:
    """Event loop only. The settings are read each time, because they may change at run time."""

    def __init__(
        self, config: HaConfig, role: Role, ha_master: HaMaster, store: MessageStore
    ) -> None:
        self._config = config
        self._role = role
        self._ha_master = ha_master
        self._store = store
        ha_master.on_acknowledged = self.replicated

    @property
    def slaves(self) -> int:
        """How many slaves must have a message; see ReplicaTerms."""
        return self._config.in_sync_replicas - 1

    @property
    def timeout_s(self) -> float:
        """How long a sender waits for the slaves."""
        return self._config.slave_timeout / 1000

    @property
    def fall_behind_max(self) -> int:
        """Senders don't wait for a slave that is more bytes behind than this."""
        return self._config.ha_slave_fallbehind_max

    def take_role(self) -> None:
        """Configure the store for the current role."""
        is_sync = self._role.broker_role == SYNC_MASTER
        self._store.take_role(is_slave=self._role.is_slave, terms=self if is_sync else None)
        self.replicated()

    def replicated(self) -> None:
        """Report to the store how far enough slaves have the log."""
        store = self._store
        if self._role.broker_role != SYNC_MASTER:
            store.availability.need_replicas(are_missing=False)
            return
        store.acknowledge.replicated(self._ha_master.replicated_where(self.slaves))
        least = self._config.min_in_sync_replicas - 1
        is_missing = (
            least > 0 and self._ha_master.in_sync_slaves(store.max_commit_log_offset) < least
        )
        store.availability.need_replicas(are_missing=is_missing)
