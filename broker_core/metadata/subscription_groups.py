"""The consumer groups of this broker, kept in subscriptionGroup.json.

Source: broker/subscription/SubscriptionGroupManager.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import StoreError
from broker_core.message import names
from broker_core.message.data_version import DataVersion
from broker_core.message.subscription import SubscriptionGroupConfig

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.config import BrokerConfig
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

GROUP_NUMS_MAX = 100_000
"""Automatic creation ends here; a group costs a retry topic as well."""


class SubscriptionGroups:
    """Find, create, change and delete consumer groups. Event loop only."""

    def __init__(self, config: BrokerConfig, clock: Clock, document: Document) -> None:
        self._config = config
        self._clock = clock
        self._document = document
        self.data_version = DataVersion()
        self.table = {
            group: SubscriptionGroupConfig(group_name=group, consume_broadcast_enable=True)
            for group in sorted(names.SYSTEM_GROUPS)
        }
        self._stopped: set[str] = set()

    def load(self) -> None:
        """Put what the file says over the groups that exist at boot.

        Raises:
            StoreError: the file holds no group table.
        """
        document = self._document.load()
        if document is None:
            return
        try:
            version = msgspec.convert(document.get("dataVersion") or {}, DataVersion)
            table = msgspec.convert(
                document.get("subscriptionGroupTable") or {},
                dict[str, SubscriptionGroupConfig],
                strict=False,
            )
        except msgspec.ValidationError as error:
            raise StoreError(f"{self._document.path}: {error}") from error
        self.data_version = version
        self.table.update(table)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration without creating it."""
        return self.table.get(group)

    def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration, made on first use where that is allowed, else None."""
        found = self.table.get(group)
        if found is not None:
            return found
        allowed = self._config.auto_create_subscription_group or group in names.SYSTEM_GROUPS
        if not allowed or names.check_group(group) or len(self.table) >= GROUP_NUMS_MAX:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        logger.info("subscription group created: group=%s", group)
        self.put(created)
        return created

    def put(self, group_config: SubscriptionGroupConfig) -> None:
        self._stopped.discard(group_config.group_name)
        self.table[group_config.group_name] = group_config
        self._changed()

    def delete(self, group: str) -> bool:
        """Forget a group; False when there was none."""
        if self.table.pop(group, None) is None:
            return False
        self._stopped.discard(group)
        self._changed()
        return True

    def disable_consume(self, group: str) -> None:
        """Let a group consume no more, until it is configured again or the broker starts anew."""
        found = self.table.get(group)
        if found is not None and found.consume_enable:
            self._stopped.add(group)
            self.table[group] = msgspec.structs.replace(found, consume_enable=False)
            self.data_version = self.data_version.next(self._clock.now_ms())

    def is_stopped(self, group: str) -> bool:
        """Say whether disable_consume is in force for a group."""
        return group in self._stopped

    def _changed(self) -> None:
        kept = self.table
        if self._stopped:
            # The file says what was configured: a new start lets them consume again.
            kept = {
                group: msgspec.structs.replace(one, consume_enable=True)
                if group in self._stopped
                else one
                for group, one in self.table.items()
            }
        self.data_version = self.data_version.next(self._clock.now_ms())
        self._document.save(
            {
                "dataVersion": msgspec.to_builtins(self.data_version),
                "subscriptionGroupTable": msgspec.to_builtins(kept),
            }
        )
