"""Damage: how a master handles a location in its log that its slave can't read.

A start finds damage only in the part of the log that it scans, and an old record is checked only
when it is read; a slave that catches up reads everything. It reports the location, the master
checks its own bytes, and from then on both skip them. The slave keeps the same bytes at the same
offsets, and the messages in them keep their offsets in their queues.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError
from broker_core.formats.record import examine
from broker_core.ha.divergence import next_record
from broker_core.store.results import DamagedRange

if TYPE_CHECKING:
    from broker_core.store.store_files import StoreFiles

logger = logging.getLogger(__name__)

QUEUES_A_TURN = 64


class DamageCheck:
    """Event loop only; one location at a time."""

    def __init__(self, files: StoreFiles, *, is_guarded: bool) -> None:
        self._files = files
        self._is_guarded = is_guarded
        self._is_busy = False

    async def look(self, commit_log_offset: int) -> None:
        """Quarantine the data at an offset if a record belongs there but can't be read."""
        if self._is_busy or self._files.quarantine.contains(commit_log_offset):
            return
        self._is_busy = True
        try:
            found = await self._find(commit_log_offset)
        finally:
            self._is_busy = False
        if found is not None and self._files.quarantine.add(found):
            self._files.quarantine.save()
            logger.error(
                "slave reported a damaged range from=%d to=%d reason=%s",
                *found,
            )

    async def _find(self, offset: int) -> DamagedRange | None:
        log = self._files.log
        file = log.file_at(offset) if log.min_offset <= offset < log.committed_where else None
        if file is None:
            return None
        position = offset - file.file_from_offset
        limit = min(file.size, log.committed_where - file.file_from_offset)
        try:
            examine(file.view, position, limit, offset, check_crc=True, is_guarded=self._is_guarded)
        except CorruptRecordError as error:
            reason = error.reason
        else:
            return None
        # The slave may be wrong about where records begin.
        if position and not await self._is_boundary(offset):
            return None
        end = await asyncio.to_thread(next_record, file, position + 1, limit)
        return DamagedRange(offset, file.file_from_offset + end, f"{file.path}: {reason}")

    async def _is_boundary(self, offset: int) -> bool:
        for number, queue in enumerate(list(self._files.queues)):
            if number % QUEUES_A_TURN == QUEUES_A_TURN - 1:
                await asyncio.sleep(0)
            behind = queue.lower_bound(queue.min_offset, lambda found: found < offset)
            for unit in (queue.unit(behind), queue.unit(behind - 1)):
                if unit is not None and offset in {unit[0], unit[0] + unit[1]}:
                    return True
        return False
