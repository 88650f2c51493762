"""SyncReplicas: tells the store of a SYNC_MASTER what its slaves have.

Source: store/ha/GroupTransferService.java, store/CommitLog.java calcNeedAckNums (5.3.3).
Differs: with fewer replicas than minInSyncReplicas the store refuses puts as a whole, with
SERVICE_NOT_AVAILABLE; 5.x asks at each put, and answers SYSTEM_ERROR.
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
    """Event loop only. The keys are read each time: they may change while the broker runs."""

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
        """How long a sender waits for them."""
        return self._config.slave_timeout / 1000

    @property
    def fall_behind_max(self) -> int:
        """A slave that lacks more bytes than this is not waited for."""
        return self._config.ha_slave_fallbehind_max

    def take_role(self) -> None:
        """Have the store do what the role in force asks of it."""
        is_sync = self._role.broker_role == SYNC_MASTER
        self._store.take_role(is_slave=self._role.is_slave, terms=self if is_sync else None)
        self.replicated()

    def replicated(self) -> None:
        """Tell the store up to where enough slaves have the log."""
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
