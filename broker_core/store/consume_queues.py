"""All ConsumeQueues of a store."""

from __future__ import annotations

import logging
import resource
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import StoreError
from broker_core.message.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TIMER_TOPIC,
    TIMER_QUEUE_ID,
    check_topic,
    is_legal_name,
)
from broker_core.message.tags import unsigned_hash
from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.consume_queue_ext import ConsumeQueueExt
from broker_core.store.foreign_entries import warn_of_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from broker_core.storage import Storage, StorageFile
    from broker_core.store.consume_queue import BitMapOf
    from broker_core.store.queue_files import QueueFiles

logger = logging.getLogger(__name__)

MAPPED_FILES_MIN = 16
MAPPED_FILES_MAX = 16_384
"""The kernel's default limit is 65,530 mappings per process."""


def mapped_files_max() -> int:
    """Return how many files may be mapped at once: half of the process's descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(max(descriptors // 2, MAPPED_FILES_MIN), MAPPED_FILES_MAX)


class Extension(NamedTuple):
    """Where and how extension files are written."""

    directory: Path
    file_size: int
    bit_map_of: BitMapOf


class ConsumeQueues:
    """Event loop only. A lookup never creates a queue.

    Attributes:
        table: topic -> queue_id -> queue.
        dirty: queues written since the last `take_files_to_flush`.
        is_flushing: set while the queues are being flushed.
        mapped_files_max: the maximum number of files mapped at once.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        storage: Storage,
        delays_ms: list[int],
        extension: Extension | None = None,
    ) -> None:
        self.table: dict[str, dict[int, ConsumeQueue]] = {}
        self.dirty: list[ConsumeQueue] = []
        self.is_flushing = False
        self._directory = directory
        self._file_size = file_size
        self._storage = storage
        self._delays_ms = delays_ms
        self._extension = extension
        self.mapped_files_max = mapped_files_max()
        self._mapped: OrderedDict[tuple[QueueFiles, int], None] = OrderedDict()

    def load(self, *, trust_end: bool) -> None:
        """Find all queues on disk.

        Raises:
            StoreError: a file has a damaged name or the wrong length.
        """
        foreign = []
        for topic in self._storage.list_directory(self._directory):
            directory = self._directory / topic
            if is_legal_name(topic) and self._storage.is_directory(directory):
                self._load_topic(topic, directory, trust_end=trust_end)
            else:
                foreign.append(topic)
        warn_of_foreign(self._directory, foreign)

    def _load_topic(self, topic: str, directory: Path, *, trust_end: bool) -> None:
        foreign = []
        for name in self._storage.list_directory(directory):
            # RocketMQ skips directories with non-numeric names, too.
            if not (name.isascii() and name.isdigit()):
                foreign.append(name)
                continue
            if not self._storage.is_directory(directory / name):
                raise StoreError(
                    f"{directory / name} is a file where queue {name} has its directory; "
                    "move it elsewhere, then start again"
                )
            self._add(topic, int(name)).load(trust_end=trust_end)
        warn_of_foreign(directory, foreign)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for queues in self.table.values():
            yield from queues.values()

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that has or had messages."""
        queues = self.table.get(topic)
        return None if queues is None else queues.get(queue_id)

    def create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a new queue without files; None when the names aren't legal."""
        if check_topic(topic) is not None or not 0 <= queue_id <= 0x7FFFFFFF:
            return None
        queue = self._add(topic, queue_id)
        if queue.ext is not None:
            queue.ext.load(None, trust_end=True)
        return queue

    def delete_topic(self, topic: str, before: int) -> None:
        """Delete the queues of a topic that have no message after a log offset.

        The messages stay in the log until it expires. The deletion is durable: files restored by a
        power cut would occupy the offsets of later messages.
        """
        for queue in list(self.table.get(topic, {}).values()):
            if queue.end_commit_log_offset() <= before:
                self._delete(queue)
        directories = [self._directory]
        if self._extension is not None:
            directories.append(self._extension.directory)
        for directory in directories:
            if not self._storage.is_directory(directory / topic):
                continue
            if topic in self.table:
                self._storage.sync_directory(directory / topic)
            else:
                self._storage.remove_directory(directory / topic)
                self._storage.sync_directory(directory)

    def drop_deleted(self, deleted_before: Callable[[str], int]) -> None:
        """Delete the queues whose messages all belong to a deleted topic.

        deleted_before returns the log offset before which the messages of a topic are deleted. A
        process that is killed while it deletes a topic leaves some queues.
        """
        for queue in list(self):
            end = deleted_before(queue.topic)
            if end and 0 < queue.end_commit_log_offset() <= end:
                self._delete(queue)

    def _delete(self, queue: ConsumeQueue) -> None:
        queues = self.table[queue.topic]
        del queues[queue.queue_id]
        if not queues:
            del self.table[queue.topic]
        if queue.dirty:
            self.dirty.remove(queue)
        queue.delete()
        for key in [key for key in self._mapped if key[0] is queue or key[0] is queue.ext]:
            del self._mapped[key]

    def take_files_to_flush(self, least_units: int) -> tuple[list[StorageFile], list[Path]]:
        """Return files of queues with at least this many new units, and new directories."""
        files: list[StorageFile] = []
        directories: dict[Path, None] = {}
        dirty, self.dirty = self.dirty, []
        for queue in dirty:
            if queue.next_offset - queue.flushed_offset < least_units:
                self.dirty.append(queue)
                continue
            queue.dirty = False
            queue.flushed_offset = queue.next_offset
            files += queue.files_to_flush()
            for one in (queue, queue.ext):
                if one is not None and one.is_new:
                    one.is_new = False
                    directory = one.directory()
                    for path in (directory, directory.parent, directory.parent.parent):
                        directories[path] = None
        return files, list(directories)

    @property
    def mapped_files(self) -> int:
        """How many files are currently mapped."""
        return len(self._mapped)

    def close(self) -> None:
        """Close all descriptors."""
        for queue in self:
            queue.close()
        self._mapped.clear()

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(
            topic,
            queue_id,
            self._directory / topic / str(queue_id),
            self._file_size,
            self._storage,
            self._on_mapped,
        )
        data = topic.encode()
        queue.topic_field = bytes((len(data),)) + data if len(data) < 256 else b""
        queue.key_seed = unsigned_hash(topic + "#")
        if topic == RMQ_SYS_SCHEDULE_TOPIC and self._delays_ms:
            queue.delay(self._delays_ms[min(queue_id, len(self._delays_ms) - 1)])
        if topic == RMQ_SYS_TIMER_TOPIC and queue_id == TIMER_QUEUE_ID:
            # Consumers don't filter this queue, so its units need no extension.
            queue.use_due_times()
        elif self._extension is not None:
            ext = ConsumeQueueExt(
                topic,
                queue_id,
                self._extension.directory / topic / str(queue_id),
                self._extension.file_size,
                self._storage,
                self._on_mapped,
            )
            queue.extend(ext, self._extension.bit_map_of)
        self.table.setdefault(topic, {})[queue_id] = queue
        return queue

    def _on_mapped(self, files: QueueFiles, file_from_offset: int) -> None:
        mapped = self._mapped
        mapped[files, file_from_offset] = None
        # Don't close files during a flush, because the flush would fail.
        attempts = 0 if self.is_flushing else len(mapped)
        while len(mapped) > self.mapped_files_max and attempts > 0:
            attempts -= 1
            key, _ = mapped.popitem(last=False)
            oldest, start = key
            if oldest is files and start == file_from_offset:
                mapped[key] = None
            elif not oldest.has_mapped(start):
                continue
            elif not oldest.evict(start):
                mapped[key] = None
