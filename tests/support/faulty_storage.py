"""An in-memory Storage that tracks flushes, fails on request and simulates power cuts."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable
    from random import Random

PAGE = 4096
SECTOR = 512


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.modified_ms = 0
        self.locked = False

    def copy(self) -> Inode:
        """Return a copy without the lock of the dead process."""
        other = Inode()
        other.data = bytearray(self.data)
        other.durable = bytearray(self.durable)
        other.modified_ms = self.modified_ms
        return other


class FaultyFile:
    def __init__(self, storage: FaultyStorage, path: Path, inode: Inode) -> None:
        self.path = path
        self._storage = storage
        self._inode = inode
        self._holds_lock = False
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._inode.data)

    @property
    def modified_ms(self) -> int:
        return self._inode.modified_ms

    def set_size(self, size: int) -> None:
        self._storage.called("set_size")
        data = self._inode.data
        if size < len(data):
            del data[size:]
        elif size > len(data):
            data.extend(bytes(size - len(data)))

    def allocate(self, offset: int, length: int) -> None:
        self._storage.called("allocate")
        self._storage.take(self._inode, offset, length)
        if offset + length > len(self._inode.data):
            self._inode.data.extend(bytes(offset + length - len(self._inode.data)))

    def map(self) -> bytearray:
        return self._inode.data

    def set_fault_ahead(self, mapping: object, *, is_on: bool) -> None:
        self._storage.faults_ahead[self.path] = is_on

    def populate(self, mapping: object, offset: int, length: int) -> None:
        self._storage.populated.append((self.path, offset, length))

    def read_ahead(self, mapping: object, offset: int, length: int) -> None:
        self._storage.called("read_ahead")

    def will_need(self, offset: int, length: int) -> None:
        self._storage.called("will_need")

    def resident(self, mapping: object, offset: int, length: int) -> int:
        is_absent = self._storage.is_absent
        if is_absent is None:
            return length
        for start in range(offset - offset % PAGE, offset + length, PAGE):
            if is_absent(start // PAGE):
                return max(0, start - offset)
        return length

    def data_ranges(self, offset: int, end: int) -> list[tuple[int, int]]:
        return [(offset, end)] if offset < end else []

    def pread(self, offset: int, length: int) -> bytes:
        self._storage.called("pread")
        return bytes(self._inode.data[offset : offset + length])

    def pread_resident(self, offset: int, length: int) -> bytearray | None:
        return self._inode.data[offset : offset + length] if self._storage.is_resident else None

    def pread_into(self, offset: int, buffer: memoryview) -> int:
        part = memoryview(self._inode.data)[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def pwrite(self, offset: int, data: bytes | memoryview) -> None:
        self._storage.called("pwrite")
        end = offset + len(data)
        if end > len(self._inode.data):
            self._inode.data.extend(bytes(end - len(self._inode.data)))
        self._inode.data[offset:end] = data

    def fdatasync(self) -> None:
        if self._closed:
            return
        self._storage.called("fdatasync")
        self._inode.durable = bytearray(self._inode.data)

    def try_lock(self) -> bool:
        if self._inode.locked:
            return False
        self._inode.locked = self._holds_lock = True
        return True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._storage.open_files.subtract([self.path])
        if self._holds_lock:
            self._inode.locked = self._holds_lock = False


class FaultyStorage:
    """Files by path: `files` as the system sees them, `durable` as a power cut leaves them."""

    def __init__(self, free_bytes: int = 1 << 40) -> None:
        self.files: dict[Path, Inode] = {}
        self.directories: set[Path] = {Path("/")}
        self.durable: dict[Path, Inode] = {}
        self.durable_directories: set[Path] = {Path("/")}
        self.calls: Counter[str] = Counter()
        self.free_bytes = free_bytes
        self.used_bytes = 0
        self.open_files: Counter[Path] = Counter()
        """How often each file is open; see `unclosed_files`."""
        self._names = threading.RLock()
        """Held while names change or are copied, because the store has threads."""
        self._unsynced: list[tuple[Path, Inode | None]] = []
        """Names created (with the inode) or removed (None) since the last sync."""
        self._allocated: dict[int, set[int]] = {}
        self._faults: dict[str, tuple[int, int]] = {}
        self.is_resident = False
        """Whether data far before the log's end is in memory."""
        self.is_absent: Callable[[int], bool] | None = None
        """Tells whether a page of a file is missing from memory; None means no page is."""
        self.on_call: Callable[[str], None] | None = None
        self.on_failure: Callable[[str], None] | None = None
        self.populated: list[tuple[Path, int, int]] = []
        self.faults_ahead: dict[Path, bool] = {}
        self.locked: list[bytearray] = []

    def fail(self, call: str, *, nth: int = 1, error: int = errno.EIO) -> None:
        """Let the n-th call from now on and all later ones fail."""
        self._faults[call] = (self.calls[call] + nth, error)

    def heal(self, call: str) -> None:
        self._faults.pop(call, None)

    def called(self, call: str) -> None:
        self.calls[call] += 1
        if self.on_call is not None:
            self.on_call(call)
        nth, error = self._faults.get(call, (0, 0))
        if nth and self.calls[call] >= nth:
            if self.on_failure is not None:
                self.on_failure(call)
            raise OSError(error, os.strerror(error))

    def take(self, inode: Inode, offset: int, length: int) -> None:
        pages = self._allocated.setdefault(id(inode), set())
        target = set(range(offset // PAGE, -(-(offset + length) // PAGE))) - pages
        if len(target) * PAGE > self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        pages |= target
        self.free_bytes -= len(target) * PAGE
        self.used_bytes += len(target) * PAGE

    def crash(self) -> FaultyStorage:
        """Return the files after a kill now: everything written, durable or not."""
        with self._names:
            files, durable = list(self.files.items()), list(self.durable.items())
            unsynced = list(self._unsynced)
            copies: dict[int, Inode] = {}
            for _, inode in [*files, *durable, *unsynced]:
                if inode is not None and id(inode) not in copies:
                    copies[id(inode)] = inode.copy()
            other = FaultyStorage(self.free_bytes)
            other.directories = set(self.directories)
            other.durable_directories = set(self.durable_directories)
            other.files = {path: copies[id(inode)] for path, inode in files}
            other.durable = {path: copies[id(inode)] for path, inode in durable}
            other._unsynced = [
                (path, None if inode is None else copies[id(inode)]) for path, inode in unsynced
            ]
            return other

    def cut_power(self, kept: Random | None = None) -> FaultyStorage:
        """Return the files that remain after a power cut: flushed pages of files with synced names.

        With `kept`, a random part of the unflushed pages has reached the disk as well, and so have
        the first unsynced name changes, as a journal would write them.
        """
        with self._names:
            names = dict(self.durable)
            directories = set(self.durable_directories)
            if kept is not None:
                for path, inode in self._unsynced[: kept.randrange(len(self._unsynced) + 1)]:
                    if inode is None:
                        names.pop(path, None)
                    else:
                        names[path] = inode
                        directories |= set(path.parents)
            other = FaultyStorage(self.free_bytes)
            other.directories = directories
            other.durable_directories = set(directories)
            for path, inode in names.items():
                data = bytearray(inode.durable)
                if len(data) < len(inode.data):
                    data.extend(bytes(len(inode.data) - len(data)))
                if kept is not None:
                    for start in range(0, len(data), SECTOR):
                        if kept.random() < 0.5:
                            data[start : start + SECTOR] = inode.data[start : start + SECTOR]
                left = Inode()
                left.data = data
                left.durable = bytearray(data)
                left.modified_ms = inode.modified_ms
                other.files[path] = other.durable[path] = left
            return other

    def open(self, path: Path, *, create: bool = False) -> FaultyFile:
        self.called("open")
        with self._names:
            inode = self.files.get(path)
            if inode is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
                inode = self.files[path] = Inode()
                self._unsynced.append((path, inode))
            self.open_files[path] += 1
            return FaultyFile(self, path, inode)

    def unclosed_files(self) -> list[Path]:
        """Return the files that were opened and never closed."""
        return sorted(+self.open_files)

    def exists(self, path: Path) -> bool:
        return path in self.files or path in self.directories

    def is_directory(self, path: Path) -> bool:
        return path in self.directories

    def list_directory(self, path: Path) -> list[str]:
        return sorted(
            entry.name
            for entry in [*list(self.files), *list(self.directories)]
            if entry.parent == path and entry != path
        )

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        with self._names:
            for directory in [*reversed(path.parents), path]:
                self.directories.add(directory)
                if durable:
                    self.durable_directories.add(directory)

    def sync_directory(self, path: Path) -> None:
        self.called("sync_directory")
        with self._names:
            for known in [known for known in list(self.durable) if known.parent == path]:
                if known not in self.files:
                    del self.durable[known]
            for known, inode in list(self.files.items()):
                if known.parent == path:
                    self.durable[known] = inode
            self._unsynced = [one for one in self._unsynced if one[0].parent != path]
            # The files of a removed directory are gone, too.
            gone = {known.parent for known in self.durable} | {
                one.parent for one, _ in self._unsynced
            }
            gone = {
                directory
                for directory in gone
                if any(
                    path in above.parents and above not in self.directories
                    for above in (directory, *directory.parents)
                )
            }
            self.durable = {p: inode for p, inode in self.durable.items() if p.parent not in gone}
            self._unsynced = [one for one in self._unsynced if one[0].parent not in gone]
            self.durable_directories |= {
                known for known in self.directories if known.parent == path or known == path
            }

    def sync_file_system(self, path: Path) -> None:
        self.called("sync_file_system")
        with self._names:
            self.durable = dict(self.files)
            for inode in self.files.values():
                inode.durable = bytearray(inode.data)
            self.durable_directories = set(self.directories)
            self._unsynced = []

    def rename(self, source: Path, target: Path) -> None:
        self.called("rename")
        with self._names:
            inode = self.files[target] = self.files.pop(source)
            self._unsynced += [(target, inode), (source, None)]

    def unlink(self, path: Path) -> None:
        self.called("unlink")
        with self._names:
            if self.files.pop(path, None) is not None:
                self._unsynced.append((path, None))

    def remove_directory(self, path: Path) -> None:
        with self._names:
            if not self.list_directory(path):
                self.directories.discard(path)

    def read(self, path: Path) -> bytes | None:
        inode = self.files.get(path)
        return None if inode is None else bytes(inode.data)

    def permissions(self, path: Path) -> tuple[int, int] | None:
        return (os.geteuid(), 0o600) if path in self.files else None

    def write_atomically(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        self.called("write_atomically")
        with self._names:
            inode = Inode()
            inode.data = bytearray(data)
            inode.durable = bytearray(data)
            if keep_backup and path in self.files:
                backup = path.with_name(path.name + ".bak")
                self.files[backup] = self.durable[backup] = self.files[path]
            self.files[path] = self.durable[path] = inode

    def disk_usage(self, path: Path) -> tuple[int, int]:
        return self.used_bytes, self.free_bytes

    def buffer(self, size: int) -> bytearray:
        self.called("buffer")
        return bytearray(size)

    def lock_memory(self, buffer: mmap.mmap | bytearray) -> None:
        self.called("lock_memory")
        assert isinstance(buffer, bytearray)
        self.locked.append(buffer)

    def unlock_memory(self, buffer: mmap.mmap | bytearray) -> None:
        self.called("unlock_memory")
        self.locked = [other for other in self.locked if other is not buffer]
