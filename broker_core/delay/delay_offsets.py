"""DelayOffsets: the delivery progress of each delay level, stored in delayOffset.json.

Source: store/schedule/ScheduleMessageService.java encode, decode (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from broker_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)


class OffsetDocument(Protocol):
    """The file; metadata's Document implements it."""

    path: Path

    def load(self) -> dict[str, Any] | None: ...

    def writing(self, table: Callable[[], dict[Any, Any]]) -> Callable[[], None]: ...


class DelayOffsets:
    """Level -> the queue_offset to deliver next. Event loop only.

    Attributes:
        is_dirty: an offset has moved since the file was written.
    """

    def __init__(self, document: OffsetDocument) -> None:
        self._document = document
        self.table: dict[int, int] = {}
        self.is_dirty = False

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreError: an offset in it isn't a number.
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
        """Set an offset, and write it even if the table has no row for it, which means 0."""
        self.table[level] = queue_offset
        self.is_dirty = True

    def document(self) -> dict[str, Any]:
        """Return the whole table in the file's shape."""
        return {"offsetTable": dict(sorted(self.table.items()))}

    def writing(self) -> Callable[[], None]:
        """Return a function that writes the current table, in any thread; it counts as written."""
        self.is_dirty = False
        table = self.document()
        return self._document.writing(lambda: table)

    async def write(self, writing: Callable[[], None]) -> bool:
        """Run a result of `writing` in a worker thread; return whether the file is written."""
        try:
            await asyncio.to_thread(writing)
        except Exception:
            self.is_dirty = True
            logger.exception("delay offsets not written, will retry")
            return False
        except asyncio.CancelledError:
            # If no thread was free, the shutdown writes the offsets.
            self.is_dirty = True
            raise
        return True
