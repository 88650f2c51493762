"""The index of a store: a sequence of IndexFiles.

Entries are buffered in memory and written in batches: written as arrays, an entry costs a sixth of
the time. They are written before every lookup and flush, into space that was reserved for them.
After a crash, recovery restores the entries that weren't written.

Source: store/index/IndexService.java (4.9.8).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from broker_core.errors import StoreError
from broker_core.formats.index_entry import file_size, key_hash, to_key_hashes
from broker_core.formats.paths import index_file_name, is_index_file_name
from broker_core.message.names import KEY_SEPARATOR
from broker_core.message.tags import POWERS_MAX, index_hash
from broker_core.store.foreign_entries import warn_of_foreign
from broker_core.store.index_file import IndexFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from broker_core.clock import Clock
    from broker_core.formats.index_entry import Waiting, WriteEntries
    from broker_core.storage import Storage, StorageFile

logger = logging.getLogger(__name__)

WAITING_MAX = 256
"""Maximum number of buffered entries; it limits memory use and the work of recovery after a crash.
"""
ARRAYS_FROM = 8
"""Use arrays from this many messages on; below it they cost more than they save."""
_POWERS = np.array([pow(31, n, 1 << 32) for n in range(POWERS_MAX)], np.uint32)


class IndexService:
    """Event loop only.

    The put path appends to `waiting` directly and subtracts the entries from `room`; when `room`
    isn't enough it calls `make_room` first. A message needs one entry plus at most one per
    character of its keys; if it has more keys than a file has entries, some are left out.

    Attributes:
        room: how many entries can be put without `make_room`.
        waiting: entries that were put but not written yet.
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_entry_num",
        "_files",
        "_full",
        "_is_file_new",
        "_slot_num",
        "_storage",
        "_write_entries",
        "room",
        "waiting",
    )

    def __init__(
        self, directory: Path, slot_num: int, entry_num: int, storage: Storage, clock: Clock
    ) -> None:
        self.room = 0
        self.waiting: list[Waiting] = []
        self._directory = directory
        self._slot_num = slot_num
        self._entry_num = entry_num
        self._storage = storage
        self._clock = clock
        self._files: list[IndexFile] = []
        self._full: list[StorageFile] = []
        self._is_file_new = False
        self._write_entries: WriteEntries | None = None

    def use(self, write_entries: WriteEntries) -> None:
        """Let the native code write the buffered entries."""
        self._write_entries = write_entries

    def load(self) -> None:
        """Map the index files.

        Raises:
            StoreError: the length of a file doesn't match the configuration.
        """
        expected = file_size(self._slot_num, self._entry_num)
        foreign = []
        for name in self._storage.list_directory(self._directory):
            if not is_index_file_name(name):
                foreign.append(name)
                continue
            path = self._directory / name
            if self._storage.is_directory(path):
                raise StoreError(f"{path} is a directory; move it elsewhere, then start again")
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
        warn_of_foreign(self._directory, foreign)

    def cut_from(self, commit_log_offset: int) -> None:
        """Remove all messages at or after an offset, so that they can be put again."""
        self.write()
        while self._files and self._files[-1].begin_phy_offset >= commit_log_offset:
            self._delete(self._files[-1])
        if self._files:
            self._files[-1].cut_from(commit_log_offset)
        self.room = 0

    @property
    def files(self) -> list[IndexFile]:
        """The files, oldest first. Callers must not change it."""
        return self._files

    @property
    def end_phy_offset(self) -> int:
        """The offset of the last message put; -1 without messages."""
        if self.waiting:
            return self.waiting[-1][3]
        return self._files[-1].end_phy_offset if self._files else -1

    def make_room(self, entries: int) -> None:
        """Make room for this many entries.

        Raises:
            OSError: there is no space.
        """
        self.write()
        last = self._files[-1] if self._files else None
        if last is None or last.entry_num - last.count < entries:
            last = self._create(last)
        wanted = min(entries, last.entry_num - last.count)
        if last.ready - last.count < wanted:
            last.make_room(wanted)
        self.room = min(last.ready - last.count, max(entries, WAITING_MAX))

    def write(self) -> None:
        """Write the buffered entries."""
        waiting = self.waiting
        if not waiting:
            return
        self.waiting = []
        file = self._files[-1]
        write_entries = self._write_entries
        if write_entries is None or not file.put_waiting(write_entries, waiting):
            self._write_to(file, waiting)
        self.room = min(file.ready - file.count, WAITING_MAX)

    def _write_to(self, file: IndexFile, waiting: Sequence[Waiting]) -> None:
        seeds, words, all_keys, offsets, times = zip(*waiting, strict=True)
        if any(all_keys) or not all(words):
            entries = _entries(waiting)
            if not entries:
                return
            seeds, words, offsets, times = zip(*entries, strict=True)
        room = file.entry_num - file.count
        if len(words) < ARRAYS_FROM:
            for seed, word, offset, time in zip(seeds, words, offsets, times, strict=True):
                if not file.is_full:
                    file.put(key_hash(index_hash(seed, word)), offset, time)
        elif room > 0:
            file.put_all(
                _key_hashes(seeds, words)[:room],
                np.array(offsets[:room], np.int64),
                np.array(times[:room], np.int64),
            )

    def put_hashes(
        self, hashes: NDArray[np.int64], offsets: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """Add entries in this order, rolling to a new file when the last one is full.

        Raises:
            OSError: there is no space.
        """
        done = 0
        while done < len(hashes):
            if not self._files or self._files[-1].is_full:
                self.make_room(1)
            file = self._files[-1]
            part = slice(done, done + file.entry_num - file.count)
            count = len(hashes[part])
            if file.ready - file.count < count:
                file.make_room(count)
            file.put_all(hashes[part], offsets[part], times[part])
            self.room = min(file.ready - file.count, WAITING_MAX)
            done += count

    def find(self, seed: int, key: str, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return offsets of messages that may have the key, newest first."""
        self.write()
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
        """Delete files with only messages before an offset, never the last; return how many."""
        deleted = 0
        while len(self._files) > 1 and self._files[0].end_phy_offset < commit_log_offset:
            self._delete(self._files[0])
            deleted += 1
        return deleted

    def files_to_flush(self) -> list[StorageFile]:
        """Return the files written since the last call."""
        self.write()
        files, self._full = self._full, []
        return files + [file.file for file in self._files[-1:]]

    def directories_to_flush(self) -> list[Path]:
        """Return the directories in which files were created since the last call."""
        is_new, self._is_file_new = self._is_file_new, False
        return [self._directory] if is_new else []

    @property
    def end_timestamp(self) -> int:
        """The store timestamp of the last message put; 0 without messages."""
        if self.waiting:
            return self.waiting[-1][4]
        return self._files[-1].end_timestamp if self._files else 0

    def close(self) -> None:
        """Close all descriptors."""
        self.write()
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
        self._is_file_new = True
        return file

    def _delete(self, file: IndexFile) -> None:
        # Unlink first: if that fails, the file must stay in use.
        self._storage.unlink(file.file.path)
        self._files.remove(file)
        file.close()


def _entries(waiting: Sequence[Waiting]) -> list[tuple[int, str, int, int]]:
    """Return (seed, key, offset, time) of each key of messages, UNIQ_KEY first."""
    entries = []
    for seed, uniq_key, keys, offset, time in waiting:
        if uniq_key:
            entries.append((seed, uniq_key, offset, time))
        if keys:
            entries += [(seed, key, offset, time) for key in keys.split(KEY_SEPARATOR) if key]
    return entries


def _key_hashes(seeds: Sequence[int], words: Sequence[str]) -> NDArray[np.int64]:
    """Return the `key_hash` of each `index_hash`, for many keys at once."""
    joined = "".join(words)
    length = len(words[0])
    lengths = set(map(len, words))
    if not joined.isascii() or max(lengths) >= POWERS_MAX:
        return np.array([key_hash(index_hash(*one)) for one in zip(seeds, words, strict=True)])
    units = np.frombuffer(joined.encode(), np.uint8)
    # 32 bits overflow, as in Java.
    if len(lengths) == 1:
        products = units.reshape(len(words), length) * _POWERS[:length][::-1]
        tails, factors = products.sum(1, dtype=np.uint32), _POWERS[length]
    else:
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        ends = sizes.cumsum()
        back = ends.repeat(sizes) - np.arange(1, len(units) + 1)
        tails = np.add.reduceat(units * _POWERS[back], ends - sizes, dtype=np.uint32)
        factors = _POWERS[sizes]
    return to_key_hashes((np.array(seeds, np.uint32) * factors + tails).astype(np.int64))
