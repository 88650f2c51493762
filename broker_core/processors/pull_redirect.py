"""PullRedirect: where a consumer should pull next, and which state a pull may change, by role.

Source: broker/processor/PullMessageProcessor.java, store/DefaultMessageStore.java
nextOffsetCorrection (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.config.broker import BrokerConfig
    from broker_core.config.store import StoreConfig
    from broker_core.ha.role import Role
    from broker_core.metadata.subscription_groups import SubscriptionGroups

MASTER = "0"


class PullRedirect:
    """Applies the broker's role to pulls. Event loop only.

    Attributes:
        role: whether the broker is a master. The native turn reads it instead of `commits_offsets`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        role: Role,
        groups: SubscriptionGroups,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self.role = role
        self._groups = groups

    @property
    def commits_offsets(self) -> bool:
        """Whether a pull commits its offset; a slave gets its offsets from the master."""
        return not self.role.is_slave

    @property
    def corrects_offsets(self) -> bool:
        """Whether a pull outside its queue is redirected to the queue's first or last message.

        A slave that doesn't check offsets leaves the offset alone: it may only be behind.
        """
        return not self.role.is_slave or self._store_config.offset_check_in_slave

    def after(self, group: str, *, is_slow: bool) -> str:
        """Return suggestWhichBrokerId; `is_slow` means the group reads data not in memory."""
        if not self._config.slave_read_enable:
            return MASTER
        group_config = self._groups.find(group)
        if group_config is None:
            return MASTER
        if is_slow:
            return str(group_config.which_broker_when_consume_slowly)
        return str(group_config.broker_id)

    def other_broker(self, group: str) -> str:
        """Return suggestWhichBrokerId for a pull that this slave can't serve."""
        group_config = self._groups.find(group)
        return MASTER if group_config is None else str(group_config.broker_id)
