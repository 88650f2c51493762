"""How far each consumer group has read each queue, kept in consumerOffset.json.

Source: broker/offset/ConsumerOffsetManager.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from broker_core.errors import StoreError

if TYPE_CHECKING:
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR = "@"
OFFSET_MAX = (1 << 63) - 1


class ConsumerOffsets:
    """The next queue_offset each group will read. Event loop only; `persist` is called every few
    seconds and writes only when something moved.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._table: dict[str, dict[int, int]] = {}
        self._dirty = False

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreError: an offset in it is not a number.
        """
        document = self._document.load() or {}
        try:
            self._table = {
                str(key): {int(queue): int(offset) for queue, offset in queues.items()}
                for key, queues in (document.get("offsetTable") or {}).items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{self._document.path}: {error}") from error

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset; a smaller one than before is a reset and is stored as well."""
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the stored offset, -1 when there is none."""
        queues = self._table.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of queue_id -> offset."""
        return dict(self._table.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {}))

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group has offsets."""
        suffix = TOPIC_GROUP_SEPARATOR + group
        return {key[: -len(suffix)] for key in self._table if key.endswith(suffix)}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in the topic."""
        prefix = topic + TOPIC_GROUP_SEPARATOR
        return {key[len(prefix) :] for key in self._table if key.startswith(prefix)}

    def delete_group(self, group: str) -> None:
        suffix = TOPIC_GROUP_SEPARATOR + group
        self._delete([key for key in self._table if key.endswith(suffix)])

    def delete_topic(self, topic: str) -> None:
        prefix = topic + TOPIC_GROUP_SEPARATOR
        self._delete([key for key in self._table if key.startswith(prefix)])

    def document(self) -> dict[str, Any]:
        """Return the whole table in the file's shape."""
        return {"offsetTable": self._table}

    def persist(self) -> None:
        """Write the file if an offset moved since the last time."""
        if self._dirty:
            self._document.save(self.document())
            self._dirty = False

    async def persist_in_thread(self) -> None:
        """Do as `persist` without making the loop wait for the disk."""
        if self._dirty:
            text = self._document.text(self.document())
            self._dirty = False
            try:
                await asyncio.to_thread(self._document.write, text)
            except OSError:
                self._dirty = True
                logger.exception("consumer offsets are not persisted, trying again")

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            del self._table[key]
            self._dirty = True
