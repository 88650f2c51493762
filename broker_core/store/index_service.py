"""The index of a store: IndexFiles, one after the other.

Source: store/index/IndexService.java (4.9.8).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.errors import StoreError
from broker_core.formats.index_entry import file_size, key_hash
from broker_core.formats.paths import index_file_name, is_index_file_name
from broker_core.message.names import KEY_SEPARATOR
from broker_core.message.tags import index_hash
from broker_core.store.index_file import IndexFile

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.storage import Storage, StorageFile

logger = logging.getLogger(__name__)


class IndexService:
    """Event loop only.

    Attributes:
        room: so many entries can be put without `make_room`.
    """

    def __init__(
        self, directory: Path, slot_num: int, entry_num: int, storage: Storage, clock: Clock
    ) -> None:
        self.room = 0
        self._directory = directory
        self._slot_num = slot_num
        self._entry_num = entry_num
        self._storage = storage
        self._clock = clock
        self._files: list[IndexFile] = []
        self._full: list[StorageFile] = []

    def load(self) -> None:
        """Map the index files.

        Raises:
            StoreError: a file has a length that the configuration does not lead to.
        """
        expected = file_size(self._slot_num, self._entry_num)
        for name in self._storage.list_directory(self._directory):
            if not is_index_file_name(name):
                logger.warning("not an index file, passed over: %s", self._directory / name)
                continue
            path = self._directory / name
            file = self._storage.open(path)
            if file.size != expected:
                size = file.size
                file.close()
                if size == 0:
                    self._storage.unlink(path)
                    continue
                raise StoreError(
                    f"{path} has {size} bytes, "
                    f"but maxHashSlotNum and maxIndexNum lead to {expected}"
                )
            self._files.append(IndexFile(file, self._slot_num, self._entry_num))

    def cut_from(self, commit_log_offset: int) -> None:
        """Forget all messages at or behind an offset; they are put again."""
        while self._files and self._files[-1].begin_phy_offset >= commit_log_offset:
            self._delete(self._files[-1])
        if self._files:
            self._files[-1].cut_from(commit_log_offset)
        self.room = 0

    @property
    def files(self) -> list[IndexFile]:
        """The files, oldest first. Not to be changed."""
        return self._files

    @property
    def end_phy_offset(self) -> int:
        """The offset of the last message put; -1 when there is none."""
        return self._files[-1].end_phy_offset if self._files else -1

    def make_room(self, entries: int) -> None:
        """See to it that so many entries can be put.

        Raises:
            OSError: there is no space.
        """
        last = self._files[-1] if self._files else None
        if last is None or last.entry_num - last.count < entries:
            last = self._create(last)
        last.make_room(min(entries, last.entry_num - last.count))
        self.room = last.ready - last.count

    def put(
        self,
        seed: int,
        uniq_key: str | None,
        keys: str | None,
        commit_log_offset: int,
        store_timestamp: int,
    ) -> None:
        """Add the keys of a message of the topic that seed is the hash of (with its "#").

        The caller has made room; of more keys than a file has entries some are left out.
        """
        file = self._files[-1]
        if uniq_key and not file.is_full:
            file.put(key_hash(index_hash(seed, uniq_key)), commit_log_offset, store_timestamp)
            self.room -= 1
        if keys:
            for key in keys.split(KEY_SEPARATOR):
                if key and not file.is_full:
                    hash_ = key_hash(index_hash(seed, key))
                    file.put(hash_, commit_log_offset, store_timestamp)
                    self.room -= 1

    def put_hash(self, hash_: int, commit_log_offset: int, store_timestamp: int) -> None:
        """Add one entry, rolling to a new file when the last one is full.

        Raises:
            OSError: there is no space.
        """
        if self.room < 1:
            self.make_room(1)
        self._files[-1].put(hash_, commit_log_offset, store_timestamp)
        self.room -= 1

    def find(self, seed: int, key: str, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return offsets of messages that may have the key, newest first."""
        found: list[int] = []
        hash_ = key_hash(index_hash(seed, key))
        for file in reversed(self._files):
            if len(found) >= max_num:
                break
            if file.covers(begin_ms, end_ms):
                found += file.find(hash_, begin_ms, end_ms, max_num - len(found))
            if file.begin_timestamp < begin_ms:
                break
        return found

    def delete_before(self, commit_log_offset: int) -> int:
        """Delete files with messages before an offset only; never the last. Return how many."""
        deleted = 0
        while len(self._files) > 1 and self._files[0].end_phy_offset < commit_log_offset:
            self._delete(self._files[0])
            deleted += 1
        return deleted

    def files_to_flush(self) -> list[StorageFile]:
        """Return what was written since the last call."""
        files, self._full = self._full, []
        return files + [file.file for file in self._files[-1:]]

    @property
    def end_timestamp(self) -> int:
        """The store timestamp of the last message put; 0 when there is none."""
        return self._files[-1].end_timestamp if self._files else 0

    def close(self) -> None:
        """Give back all descriptors."""
        for file in self._files:
            file.close()

    def _create(self, previous: IndexFile | None) -> IndexFile:
        self._storage.make_directory(self._directory, durable=False)
        now_ms = self._clock.now_ms()
        path = self._directory / index_file_name(now_ms)
        while self._storage.exists(path):
            now_ms += 1
            path = self._directory / index_file_name(now_ms)
        opened = self._storage.open(path, create=True)
        try:
            opened.set_size(file_size(self._slot_num, self._entry_num))
            file = IndexFile(opened, self._slot_num, self._entry_num)
            file.make_room(1)
        except OSError:
            opened.close()
            self._storage.unlink(path)
            raise
        if previous is not None:
            file.continue_from(previous)
            self._full.append(previous.file)
        self._files.append(file)
        return file

    def _delete(self, file: IndexFile) -> None:
        self._files.remove(file)
        self._storage.unlink(file.file.path)
        file.close()
