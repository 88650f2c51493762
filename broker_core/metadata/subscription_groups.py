"""The consumer groups of this broker, stored in subscriptionGroup.json.

Source: broker/subscription/SubscriptionGroupManager.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.config.limits import LIMITS
from broker_core.errors import RequestRefusedError, StoreError
from broker_core.message import names
from broker_core.message.data_version import DataVersion
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.metadata.document_writer import DocumentWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.config.limits import LimitsConfig
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

SYSTEM_ERROR = 1
"""ResponseCode.SYSTEM_ERROR, which this layer can't import."""
ALL = ""
"""Represents all groups in the set of unwritten changes."""


class SubscriptionGroups:
    """Finds, creates, changes and deletes consumer groups. Event loop only.

    Changes are written later, off the loop: await `writer.until_written` before confirming one.
    """

    def __init__(
        self, config: BrokerConfig, clock: Clock, document: Document, limits: LimitsConfig = LIMITS
    ) -> None:
        self._config = config
        self._limits = limits
        self._clock = clock
        self._document = document
        self.writer = DocumentWriter(document, self._snapshot)
        self.data_version = DataVersion()
        self.table = {
            group: SubscriptionGroupConfig(group_name=group, consume_broadcast_enable=True)
            for group in sorted(names.SYSTEM_GROUPS)
        }
        self._stopped: set[str] = set()

    def load(self) -> None:
        """Read the file; its groups replace the built-in ones of the same name.

        Raises:
            StoreError: the file isn't a table of groups.
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
        """Return the group's configuration, creating it if allowed, else None.

        Raises:
            RequestRefusedError: the group would be created, but there are too many.
        """
        found = self.table.get(group)
        if found is not None:
            return found
        allowed = self._config.auto_create_subscription_group or group in names.SYSTEM_GROUPS
        if not allowed or names.check_group(group):
            return None
        self.require_room(group)
        created = SubscriptionGroupConfig(group_name=group)
        logger.info("subscription group created group=%s", group)
        self.put(created)
        return created

    def require_room(self, group: str) -> None:
        """Check that a group exists or may be created.

        Raises:
            RequestRefusedError: there are too many.
        """
        if group not in self.table and len(self.table) >= self._limits.consumer_group_nums_max:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"couldn't create group {group}: the limit of "
                f"consumerGroupNumsMax={self._limits.consumer_group_nums_max} groups is reached",
            )

    def put(self, group_config: SubscriptionGroupConfig) -> None:
        self._stopped.discard(group_config.group_name)
        self.table[group_config.group_name] = group_config
        self._changed(group_config.group_name)

    def delete(self, group: str) -> bool:
        """Delete a group; False if it doesn't exist."""
        if self.table.pop(group, None) is None:
            return False
        self._stopped.discard(group)
        self._changed(group)
        return True

    def follow(
        self, data_version: DataVersion, table: Mapping[str, SubscriptionGroupConfig]
    ) -> None:
        """Copy the master's table, unless it is the same."""
        if data_version == self.data_version:
            return
        self.data_version = data_version
        self._stopped.clear()
        self.table.clear()
        self.table.update(table)
        self.writer.changed(ALL)

    def disable_consume(self, group: str) -> None:
        """Stop a group from consuming until it is configured again or the broker restarts."""
        found = self.table.get(group)
        if found is not None and found.consume_enable:
            self._stopped.add(group)
            self.table[group] = msgspec.structs.replace(found, consume_enable=False)
            self.data_version = self.data_version.next(self._clock.now_ms())

    def is_stopped(self, group: str) -> bool:
        """Return whether disable_consume has stopped a group."""
        return group in self._stopped

    def _changed(self, group: str) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.writer.changed(group)

    def _snapshot(self) -> Callable[[], dict[str, Any]]:
        version, kept = self.data_version, dict(self.table)
        for group in self._stopped:
            # The file has the configured value: a restart lets these groups consume again.
            kept[group] = msgspec.structs.replace(kept[group], consume_enable=True)
        return lambda: {
            "dataVersion": version,
            "subscriptionGroupTable": kept,
        }
