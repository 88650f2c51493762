"""Retention: which files may be deleted when, and when the disk is full.

A file of the log expires fileReservedTime hours after its last change. Expired files are deleted in
the hours of deleteWhen, or at any hour when disk usage is above diskMaxUsedSpaceRatio; above 85 %
files are deleted even before they expire. Above 90 % the store refuses puts until there is room.
ConsumeQueue and index files are deleted along with the log.

Source: store/DefaultMessageStore.java CleanCommitLogService, CleanConsumeQueueService (4.9.8).
Differs: while the process runs, ages follow the monotonic clock, so that a step of the wall clock
doesn't expire any file.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from broker_core.isolation import isolated
from broker_core.service import Service
from broker_core.store.visibility import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.config.store import StoreConfig
    from broker_core.storage import Storage
    from broker_core.store.availability import Availability
    from broker_core.store.store_files import StoreFiles

logger = logging.getLogger(__name__)

FIRST_RUN_SECONDS = 60.0
DISK_CHECK_SECONDS = 10.0
CLEAN_FORCIBLY_RATIO = 0.85
WARNING_RATIO = 0.90
DELETE_FILES_BATCH_MAX = 10
HOUR_MS = 3_600_000
RESERVE_BYTES = 64 * 1024 * 1024


class Retention(Service):
    """Event loop only.

    Attributes:
        needed_from: returns the log offset from which connected slaves need the log. This protects
            expired files, but not files that are deleted because the disk is full.
        may_delete_before: returns whether the log before an offset may be deleted, even on a full
            disk. Pending timers in it have to be moved first.
        on_expired: called with the deleted messages of a queue: topic, queue_id, the first
        message's queue_offset and the offset after the last message's.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        storage: Storage,
        files: StoreFiles,
        availability: Availability,
    ) -> None:
        super().__init__()
        self.needed_from: Callable[[], int] = _no_required_offset
        self.may_delete_before: Callable[[int], bool] = _always
        self.on_expired: Callable[[str, int, int, int], None] | None = None
        self._config = config
        self._clock = clock
        self._storage = storage
        self._files = files
        self._log = files.log
        self._availability = availability
        self._wall_offset_ms = clock.now_ms() - clock.monotonic() * 1000
        self._cleaned_to = files.log.min_offset
        self._manual_runs = 0

    def start(self) -> None:
        """Start checking the disk and deleting files."""
        self.spawn_forever(self._clock, self._check_disk_forever, name="check-disk")
        self.spawn_forever(self._clock, self._clean_forever, name="clean-files")

    def delete_soon(self) -> None:
        """Delete expired files in the next runs at any hour (DELETE_EXPIRED_COMMITLOG)."""
        self._manual_runs = 20

    def _used_ratio(self) -> float:
        """Return the usage of the log's file system, 0 to 1."""
        used, free = self._storage.disk_usage(self._log.directory)
        return used / (used + free) if used + free else 1.0

    def check_disk(self) -> None:
        """Refuse puts when the disk is full; accept them again when there is room."""
        used, free = self._storage.disk_usage(self._log.directory)
        ratio = used / (used + free) if used + free else 1.0
        availability = self._availability
        if availability.is_disk_full:
            # The maximum room that a put needs: a file of the log, and some for queues and index.
            is_full = ratio > WARNING_RATIO or free < min(
                self._log.file_size + RESERVE_BYTES, 2 * self._log.file_size
            )
        else:
            is_full = ratio > WARNING_RATIO
        if is_full and not availability.is_disk_full:
            availability.fill_disk(ratio * 100)
        elif not is_full and availability.is_disk_full:
            availability.free_disk(ratio * 100)

    async def clean(self) -> None:
        """Delete the files that may be deleted now, with pauses between files."""
        ratio = self._used_ratio()
        at_once = self._config.clean_file_forcibly_enable and ratio > CLEAN_FORCIBLY_RATIO
        max_ratio = min(max(self._config.disk_max_used_space_ratio, 10), 95) / 100
        is_due = self._is_time_to_delete() or ratio > max_ratio or self._manual_runs > 0
        self._manual_runs = max(self._manual_runs - 1, 0)
        if is_due or at_once:
            await self._delete_log_files(at_once=at_once)
        if self._log.min_offset > self._cleaned_to:
            self._cleaned_to = self._log.min_offset
            await self._follow_the_log()

    async def _delete_log_files(self, *, at_once: bool) -> None:
        for _ in range(DELETE_FILES_BATCH_MAX):
            path = self._path_to_delete(at_once=at_once)
            if path is None:
                return
            with isolated("deleting an expired file", path) as deletion:
                self._log.delete_first()
            if deletion.error is not None:
                return  # Files are deleted in order.
            logger.info("expired file deleted path=%s", path)
            await self._clock.sleep(self._config.delete_commit_log_files_interval / 1000)

    def _path_to_delete(self, *, at_once: bool) -> Path | None:
        """Return the path of the first file if it may be deleted, keeping no reference to it."""
        if len(self._log.files) < 2:
            return None
        first, second = self._log.files[:2]
        if second.file_from_offset > self._log.flushed_where:
            return None
        if not at_once:
            if second.file_from_offset > self.needed_from():
                return None
            reserved_ms = self._config.file_reserved_time * HOUR_MS
            if self._now_ms() < first.file.modified_ms + reserved_ms:
                return None
        return first.path if self.may_delete_before(second.file_from_offset) else None

    async def _follow_the_log(self) -> None:
        min_offset = self._log.min_offset
        # The files must not reappear after a power cut once the record of their deletions is
        # dropped.
        self._storage.sync_directory(self._log.directory)
        for queue in list(self._files.queues):
            deleted = 0
            with isolated("deleting expired files of a queue", f"{queue.topic} {queue.queue_id}"):
                before = queue.min_offset
                deleted = queue.delete_before(min_offset)
                queue.correct_min_offset(min_offset)
                if self.on_expired is not None and queue.min_offset > before:
                    self.on_expired(queue.topic, queue.queue_id, before, queue.min_offset)
            if deleted:
                await self._clock.sleep(self._config.delete_consume_queue_files_interval / 1000)
        if self._files.index is not None:
            with isolated("deleting expired files of the index"):
                self._files.index.delete_before(min_offset)
        with isolated("forgetting expired damaged ranges"):
            self._files.quarantine.forget_before(min_offset)
        with isolated("forgetting expired deleted topics"):
            self._files.deleted.forget_before(min_offset)

    def _is_time_to_delete(self) -> bool:
        local = datetime.fromtimestamp(self._now_ms() / 1000, tz=UTC).astimezone()
        hours = {hour.strip() for hour in self._config.delete_when.split(";")}
        return any(hour.isdigit() and int(hour) == local.hour for hour in hours)

    def _now_ms(self) -> int:
        return int(self._wall_offset_ms + self._clock.monotonic() * 1000)

    async def _check_disk_forever(self) -> None:
        while True:
            self.check_disk()
            await self._clock.sleep(DISK_CHECK_SECONDS)

    async def _clean_forever(self) -> None:
        await self._clock.sleep(FIRST_RUN_SECONDS)
        while True:
            await self.clean()
            await self._clock.sleep(self._config.clean_resource_interval / 1000)


def _no_required_offset() -> int:
    return NO_LIMIT


def _always(_: int) -> bool:
    return True
