"""Stop groups that read so far behind the log's end that they keep the disk busy.

With disableConsumeIfConsumerReadSlowly, a group that receives a message further behind than
consumerFallbehindThreshold can't consume any longer, until its configuration is set again or the
broker restarts.

Source: broker/BrokerController.java protectBroker (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from broker_core.isolation import isolated
from broker_core.service import Service

if TYPE_CHECKING:
    import asyncio

    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

SCAN_SECONDS = 180.0
GROUPS_MAX = 100_000


class PulledStore(Protocol):
    """The store's methods used here."""

    @property
    def max_commit_log_offset(self) -> int: ...

    def units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]: ...


class ConsumerGroups(Protocol):
    """The interface that stops a group; metadata's SubscriptionGroups implements it."""

    def disable_consume(self, group: str) -> None: ...

    def is_stopped(self, group: str) -> bool: ...


class SlowConsumers(Service):
    """Finds and stops slow consumers. Event loop only.

    Attributes:
        is_watching: whether pulls must be reported.
        disabled: the stopped groups, with the bytes that they were behind.
    """

    # The native turn reads it for each pull.
    __slots__ = ("is_watching",)

    def __init__(
        self,
        threshold_bytes: int,
        store: PulledStore,
        groups: ConsumerGroups,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.disabled: dict[str, int] = {}
        self.is_watching = False
        self._threshold_bytes = threshold_bytes
        self._store = store
        self._groups = groups
        self._clock = clock
        self._behind: dict[str, dict[tuple[str, int], int]] = {}
        self._scanning: asyncio.Task[None] | None = None

    def watch(self, *, watching: bool) -> None:
        """Start or stop looking for slow consumers; stopped groups stay stopped."""
        if watching == self.is_watching:
            return
        self.is_watching = watching
        self._behind.clear()
        if watching:
            self._scanning = self.spawn_forever(
                self._clock, self._scan_forever, name="slow-consumers"
            )
        elif self._scanning is not None:
            self._scanning.cancel()

    def on_pulled(self, group: str, topic: str, queue_id: int, next_begin_offset: int) -> None:
        """Note how far behind the log's end a group's last message is."""
        units = self._store.units(topic, queue_id, next_begin_offset - 1, 1)
        if not units or (group not in self._behind and len(self._behind) >= GROUPS_MAX):
            return
        behind = self._store.max_commit_log_offset - units[0][0]
        queues = self._behind.setdefault(group, {})
        if behind > self._threshold_bytes:
            queues[topic, queue_id] = behind
        else:
            queues.pop((topic, queue_id), None)
            if not queues:
                del self._behind[group]

    def scan(self) -> None:
        """Stop the groups that are too far behind now."""
        behind_now, self._behind = self._behind, {}
        for group, queues in behind_now.items():
            with isolated("stopping a slow group", group):
                self._stop(group, max(queues.values(), default=0))

    def _stop(self, group: str, behind: int) -> None:
        logger.warning(
            "slow group stopped group=%s behind_bytes=%d threshold_bytes=%d",
            group,
            behind,
            self._threshold_bytes,
        )
        self.disabled[group] = behind
        self._groups.disable_consume(group)

    def runtime_info(self) -> dict[str, str]:
        """Return a row for GET_BROKER_RUNTIME_INFO with the stopped groups."""
        for group in [one for one in self.disabled if not self._groups.is_stopped(one)]:
            del self.disabled[group]
        return {"slowConsumerGroups": ",".join(sorted(self.disabled))}

    async def _scan_forever(self) -> None:
        while True:
            await self._clock.sleep(SCAN_SECONDS)
            self.scan()
