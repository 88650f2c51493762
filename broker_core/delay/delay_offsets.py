"""DelayOffsets: how far each delay level is delivered, kept in delayOffset.json.

Source: store/schedule/ScheduleMessageService.java encode, decode (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from broker_core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


class OffsetDocument(Protocol):
    """The file; metadata's Document is one."""

    path: Path

    def load(self) -> dict[str, Any] | None: ...

    def save(self, table: dict[Any, Any]) -> None: ...

    def text(self, table: dict[Any, Any]) -> bytes: ...

    def write(self, text: bytes) -> None: ...


class DelayOffsets:
    """Level -> the queue_offset that is delivered next. Event loop only.

    Attributes:
        is_dirty: an offset moved since the file was written.
    """

    def __init__(self, document: OffsetDocument) -> None:
        self._document = document
        self.table: dict[int, int] = {}
        self.is_dirty = False

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreError: an offset in it is not a number.
        """
        document = self._document.load() or {}
        try:
            self.table = {
                int(level): int(offset)
                for level, offset in (document.get("offsetTable") or {}).items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{self._document.path}: {error}") from error

    def get(self, level: int) -> int:
        return self.table.get(level, 0)

    def move(self, level: int, queue_offset: int) -> None:
        if self.table.get(level, 0) != queue_offset:
            self.table[level] = queue_offset
            self.is_dirty = True

    def put(self, level: int, queue_offset: int) -> None:
        """Set an offset, and write it even where the table has no row and counts it as 0."""
        self.table[level] = queue_offset
        self.is_dirty = True

    def document(self) -> dict[str, Any]:
        """Return the whole table in the file's shape."""
        return {"offsetTable": dict(sorted(self.table.items()))}

    def text(self) -> bytes:
        """Return the file's new text; the table counts as written."""
        self.is_dirty = False
        return self._document.text(self.document())

    async def write(self, text: bytes) -> bool:
        """Write the file in a worker thread; return whether it is written."""
        try:
            await asyncio.to_thread(self._document.write, text)
        except OSError:
            self.is_dirty = True
            logger.exception("delay offsets are not persisted, trying again")
            return False
        return True
