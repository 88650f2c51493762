"""DocumentWriter: writes a table to its document after changes, off the event loop.

Differs: RocketMQ writes the whole file with each change, on the thread that serves the request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)


class DocumentWriter:
    """Tracks the changes of a table that aren't in its file yet. Event loop only.

    `snapshot` runs on the loop and must be quick; the function it returns builds the file's table
    in a thread. A write includes every change before it, so many changes cost as much as one.

    Attributes:
        unwritten: the entries whose last change isn't in the file -> the number of that change.
    """

    def __init__(
        self, document: Document, snapshot: Callable[[], Callable[[], dict[str, Any]]]
    ) -> None:
        self._document = document
        self._snapshot = snapshot
        self._unwritten: dict[str, int] = {}
        self.unwritten: Mapping[str, int] = self._unwritten
        self._last_change = 0
        self._written_change = 0
        self._one_at_a_time = asyncio.Lock()

    def changed(self, name: str) -> None:
        """Record that an entry was created, changed or deleted."""
        self._last_change += 1
        self._unwritten[name] = self._last_change

    async def until_written(self, name: str) -> None:
        """Return when the file has the last change of an entry; write it now if needed.

        Raises:
            OSError: the file can't be written.
        """
        await self._until(self._unwritten.get(name, 0))

    async def write(self) -> None:
        """Write the changes in a thread; on failure log it, and leave them to the next call."""
        try:
            await self._until(self._last_change)
        except Exception:
            logger.exception("metadata file not written, will retry path=%s", self._document.path)

    def write_now(self) -> None:
        """Write the changes; blocks.

        Raises:
            OSError: the file can't be written.
        """
        if self._unwritten:
            self._document.writing(self._snapshot())()
            self._note_written(self._last_change)

    async def _until(self, change: int) -> None:
        while self._written_change < change:
            async with self._one_at_a_time:
                # The holder of the lock may have written the change.
                if self._written_change < change:
                    written = self._last_change
                    await asyncio.to_thread(self._document.writing(self._snapshot()))
                    self._note_written(written)

    def _note_written(self, change: int) -> None:
        self._written_change = max(self._written_change, change)
        for name in [name for name, last in self._unwritten.items() if last <= change]:
            del self._unwritten[name]
