"""Availability: whether the store accepts puts, and why not.

Source: store/DefaultMessageStore.java checkStoreStatus (4.9.7).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.store.put_state import PutState

logger = logging.getLogger(__name__)


class Availability:
    """Six reasons to refuse puts; `PutState.is_writable` is true if no reason applies.

    Event loop only.

    Attributes:
        is_started: between start and shutdown.
        failure: the first failed disk write; only a restart recovers from it.
        is_disk_full: set by the disk check, and by a put that found no free blocks.
        behind: how many messages wait for the disk if there are too many, else 0.
        is_slave: messages come only from a master.
        are_replicas_missing: fewer brokers than minInSyncReplicas are in sync.
    """

    def __init__(self, state: PutState) -> None:
        self.is_started = False
        self.failure: OSError | None = None
        self.is_disk_full = False
        self.behind = 0
        self.is_slave = False
        self.are_replicas_missing = False
        self._state = state

    def start(self) -> None:
        """Accept puts from now on."""
        self.is_started = True
        self._decide()

    def stop(self) -> None:
        """Refuse puts from now on."""
        self.is_started = False
        self._decide()

    def fail(self, error: OSError) -> None:
        """Refuse puts until a restart, because a disk write failed."""
        if self.failure is None:
            self.failure = error
        self._decide()

    def fill_disk(self, used_percent: float | None = None) -> None:
        """Refuse puts: disk usage is above its limit, or (used_percent None) no blocks are free."""
        if self.is_disk_full:
            return
        self.is_disk_full = True
        if used_percent is None:
            logger.error("no space left, refusing writes")
        else:
            logger.error("disk full, refusing writes used_percent=%.1f", used_percent)
        self._decide()

    def free_disk(self, used_percent: float) -> None:
        """Accept puts again: the disk has room."""
        self.is_disk_full = False
        logger.warning("disk has room, accepting writes used_percent=%.1f", used_percent)
        self._decide()

    @contextmanager
    def override_full_disk(self) -> Iterator[None]:
        """Accept puts even if the disk is full, for puts that allow a log file to be deleted."""
        is_full, self.is_disk_full = self.is_disk_full, False
        self._decide()
        try:
            yield
        finally:
            self.is_disk_full |= is_full
            self._decide()

    def fall_behind(self, messages: int) -> None:
        """Refuse puts: too many messages wait for the disk."""
        self.behind = messages
        logger.warning("disk too slow, refusing writes waiting=%d", messages)
        self._decide()

    def catch_up(self) -> None:
        """Accept puts again: fewer messages wait for the disk."""
        self.behind = 0
        self._decide()

    def follow(self, *, is_slave: bool) -> None:
        """Refuse puts as a slave, or accept them as a master."""
        self.is_slave = is_slave
        self._decide()

    def need_replicas(self, *, are_missing: bool) -> None:
        """Refuse puts while there are too few replicas; accept them when there are enough."""
        if are_missing is self.are_replicas_missing:
            return
        self.are_replicas_missing = are_missing
        if are_missing:
            logger.warning("too few replicas in sync, refusing writes")
        else:
            logger.warning("enough replicas in sync, accepting writes")
        self._decide()

    def text(self) -> str:
        """Return storeState for GET_BROKER_RUNTIME_INFO."""
        if self.failure is not None:
            return f"read-only after a failed write to the disk: {self.failure}; restart the broker"
        if self.is_disk_full:
            return "read-only: the disk is full"
        if self.behind:
            return f"read-only: {self.behind} messages wait for the disk"
        if self.are_replicas_missing:
            return "read-only: fewer replicas than minInSyncReplicas are in sync"
        if self.is_slave and self.is_started:
            return "slave: messages come from the master"
        return "running" if self.is_started else "stopped"

    def _decide(self) -> None:
        self._state.is_writable = (
            self.is_started
            and self.failure is None
            and not self.is_disk_full
            and not self.behind
            and not self.is_slave
            and not self.are_replicas_missing
        )
