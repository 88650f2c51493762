"""The file system, as a parameter.

Every file operation of the broker goes through a `Storage`. Tests use implementations that keep
files in memory, fail a chosen call or simulate a power cut. This doesn't slow the hot path: `map()`
returns the buffer into which records are packed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MADV_POPULATE_READ = 22
MADV_POPULATE_WRITE = 23
MLOCK_ONFAULT = 1
MAP_FIXED = 0x10
POPULATE_STEP = 8 * 1024 * 1024
WILL_NEED_STEP = 128 * 1024


class StorageFile(Protocol):
    """An open file."""

    @property
    def path(self) -> Path:
        """The path with which the file was opened."""
        ...

    @property
    def size(self) -> int:
        """The length in bytes."""
        ...

    @property
    def modified_ms(self) -> int:
        """When it was last modified, milliseconds since the epoch."""
        ...

    def set_size(self, size: int) -> None:
        """Set the length; added bytes read as zeros and have no blocks yet."""
        ...

    def allocate(self, offset: int, length: int) -> None:
        """Reserve blocks and grow the file if needed; OSError (ENOSPC) when the disk is full."""
        ...

    def map(self) -> mmap.mmap | bytearray:
        """Return a writable buffer over the whole file; it stays valid after `close`.

        It doesn't keep a descriptor.
        """
        ...

    def set_fault_ahead(self, mapping: mmap.mmap | bytearray, *, is_on: bool) -> None:
        """Make a page fault load the surrounding pages, as by default, or only that page."""
        ...

    def populate(self, mapping: mmap.mmap | bytearray, offset: int, length: int) -> None:
        """Fault pages in for writing without holding the interpreter lock."""
        ...

    def read_ahead(self, mapping: mmap.mmap | bytearray, offset: int, length: int) -> None:
        """Fault pages in for reading, without the interpreter lock; return once they are loaded."""
        ...

    def will_need(self, offset: int, length: int) -> None:
        """Start reading a part, which may extend past the end, without waiting for it."""
        ...

    def resident(self, mapping: mmap.mmap | bytearray, offset: int, length: int) -> int:
        """Return how many of length bytes from an offset on can be read without waiting."""
        ...

    def data_ranges(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [offset, end) that may hold data; the rest reads as zeros."""
        ...

    def pread(self, offset: int, length: int) -> bytes:
        """Read length bytes, fewer at the end of the file."""
        ...

    def pread_resident(self, offset: int, length: int) -> bytearray | None:
        """Read length bytes if all can be read without waiting, else return None."""
        ...

    def pread_into(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer; return the number of bytes, smaller only at the end of the file."""
        ...

    def pwrite(self, offset: int, data: bytes | memoryview) -> None:
        """Write all of data without holding the interpreter lock; `map` shows it immediately."""
        ...

    def fdatasync(self) -> None:
        """Make written data durable; blocks, without holding the interpreter lock."""
        ...

    def try_lock(self) -> bool:
        """Acquire the POSIX lock on byte 0, as RocketMQ does; held until `close`."""
        ...

    def close(self) -> None:
        """Close the descriptor; mappings stay valid."""
        ...


class Storage(Protocol):
    """Files and directories."""

    def open(self, path: Path, *, create: bool = False) -> StorageFile:
        """Open for reading and writing; with create, create a missing file (empty)."""
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or directory exists."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Return whether path is a directory."""
        ...

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; empty when it is missing."""
        ...

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        """Create a directory with its parents, durably unless the caller syncs them later."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make additions to and removals from a directory durable."""
        ...

    def sync_file_system(self, path: Path) -> None:
        """Make everything durable that any process wrote to path's file system."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file; a missing file isn't an error."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove a directory unless it has entries; a missing directory isn't an error."""
        ...

    def read(self, path: Path) -> bytes | None:
        """Return a whole file, or None when it is missing."""
        ...

    def permissions(self, path: Path) -> tuple[int, int] | None:
        """Return a file's owner (uid) and mode, or None when it is missing."""
        ...

    def write_atomically(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        """Replace a file durably: a crash leaves either the whole old or the whole new text.

        With keep_backup the old text is kept as `<name>.bak`.
        """
        ...

    def disk_usage(self, path: Path) -> tuple[int, int]:
        """Return the used bytes of path's file system, and the bytes free for this user."""
        ...

    def buffer(self, size: int) -> mmap.mmap | bytearray:
        """Return zeroed, page-aligned anonymous memory; OSError if there isn't enough."""
        ...

    def lock_memory(self, buffer: mmap.mmap | bytearray) -> None:
        """Keep a buffer's pages in memory once they are used; OSError when not permitted."""
        ...

    def unlock_memory(self, buffer: mmap.mmap | bytearray) -> None:
        """Allow the kernel to reclaim a buffer's pages again."""
        ...


class OsFile:
    """A `StorageFile` of the operating system. Any thread; positions are arguments."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @property
    def path(self) -> Path:
        return self._path

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @property
    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def set_size(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, offset: int, length: int) -> None:
        os.posix_fallocate(self._fd, offset, length)

    def map(self) -> mmap.mmap | bytearray:
        # Before Python 3.13, mmap.mmap of a file keeps a copy of the descriptor for its lifetime:
        # instead, map the file over anonymous memory, which is freed like any other.
        size = self.size
        try:
            buffer = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            # The file is empty, or the system doesn't allow overcommitting anonymous memory.
            return mmap.mmap(self._fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        anchor = ctypes.c_char.from_buffer(buffer)
        address = ctypes.addressof(anchor)
        del anchor
        access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_FIXED
        if _libc.mmap(address, size, access, kind, self._fd, 0) != address:
            error = ctypes.get_errno()
            # The address range may be unmapped or reused by now, so the buffer must never be freed.
            _given_up.append(buffer)
            raise OSError(error, os.strerror(error), str(self._path))
        return buffer

    def set_fault_ahead(self, mapping: mmap.mmap | bytearray, *, is_on: bool) -> None:
        assert isinstance(mapping, mmap.mmap)
        mapping.madvise(mmap.MADV_NORMAL if is_on else mmap.MADV_RANDOM)

    def populate(self, mapping: mmap.mmap | bytearray, offset: int, length: int) -> None:
        # mmap.madvise holds the interpreter lock while it faults pages in; a ctypes call doesn't.
        anchor = ctypes.c_char.from_buffer(mapping)
        address = ctypes.addressof(anchor)
        first = offset - offset % mmap.PAGESIZE
        for start in range(first, offset + length, POPULATE_STEP):
            step = min(POPULATE_STEP, offset + length - start)
            if _libc.madvise(address + start, step, MADV_POPULATE_WRITE) != 0:
                break  # Older kernels don't support it: pages are faulted in on first use.
        del anchor

    def read_ahead(self, mapping: mmap.mmap | bytearray, offset: int, length: int) -> None:
        anchor = ctypes.c_char.from_buffer(mapping)
        first = offset - offset % mmap.PAGESIZE
        address, size = ctypes.addressof(anchor) + first, offset + length - first
        # This causes one large disk request; page faults cause only small ones.
        _libc.madvise(address, size, mmap.MADV_WILLNEED)
        is_done = _libc.madvise(address, size, MADV_POPULATE_READ) == 0
        del anchor
        if not is_done:
            # An older kernel, or a bad sector, which pread reports.
            os.pread(self._fd, length, offset)

    def will_need(self, offset: int, length: int) -> None:
        # Each call is limited to the kernel's read-ahead size, on some disks 128 KiB.
        with contextlib.suppress(OSError):
            for start in range(offset, offset + length, WILL_NEED_STEP):
                size = min(WILL_NEED_STEP, offset + length - start)
                os.posix_fadvise(self._fd, start, size, os.POSIX_FADV_WILLNEED)

    def resident(self, mapping: mmap.mmap | bytearray, offset: int, length: int) -> int:
        anchor = ctypes.c_char.from_buffer(mapping)
        first = offset - offset % mmap.PAGESIZE
        states = ctypes.create_string_buffer(-(-(offset + length - first) // mmap.PAGESIZE))
        address, size = ctypes.addressof(anchor) + first, len(states) * mmap.PAGESIZE
        status = _mincore(address, size, states)
        del anchor
        absent = states.raw.find(0) if status == 0 else -1
        return length if absent < 0 else max(0, first + absent * mmap.PAGESIZE - offset)

    def data_ranges(self, offset: int, end: int) -> list[tuple[int, int]]:
        # A list, not a generator: reading the first range makes the kernel read ahead into the hole
        # after it, and pages that were read count as data.
        ranges = []
        while offset < end:
            try:
                start = os.lseek(self._fd, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                raise
            if start >= end:
                break
            offset = min(os.lseek(self._fd, start, os.SEEK_HOLE), end)
            ranges.append((start, offset))
        return ranges

    def pread(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def pread_resident(self, offset: int, length: int) -> bytearray | None:
        found = bytearray(length)
        try:
            count = os.preadv(self._fd, [found], offset, os.RWF_NOWAIT)
        except OSError:
            # Not in memory, or the file system doesn't report it (such as FUSE): reading may block.
            return None
        return found if count == length else None

    def pread_into(self, offset: int, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._fd, [buffer[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def pwrite(self, offset: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, offset)
            offset += written
            view = view[written:]

    def fdatasync(self) -> None:
        # A file that was deleted before its flush needs no flush.
        if self._fd < 0:
            return
        try:
            os.fdatasync(self._fd)
        except OSError:
            if self._fd >= 0:
                raise

    def try_lock(self) -> bool:
        try:
            # A Java FileChannel lock is a POSIX lock: flock(2) wouldn't keep a Java broker out.
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                return False
            raise
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileStorage:
    """A `Storage` of the operating system. Any thread; holds no state."""

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, 0o600))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def list_directory(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208  names only, without creating 10,000 Paths
        except FileNotFoundError:
            return []

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        if path.is_dir():
            return
        self.make_directory(path.parent, durable=durable)
        path.mkdir(mode=0o700, exist_ok=True)
        if durable:
            self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            if _libc.syncfs(fd) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), str(path))
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        try:
            path.rmdir()
        except OSError as error:
            # NFS keeps a deleted file under another name for as long as it is open.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def permissions(self, path: Path) -> tuple[int, int] | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return status.st_uid, stat.S_IMODE(status.st_mode)

    def write_atomically(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        if keep_backup and path.exists():
            # A hard link to the old text, so the file is never missing.
            backup = path.with_name(path.name + ".bak")
            spare = path.with_name(path.name + ".bak.tmp")
            spare.unlink(missing_ok=True)
            os.link(path, spare)
            spare.replace(backup)
        temporary.replace(path)
        self.sync_directory(path.parent)

    def disk_usage(self, path: Path) -> tuple[int, int]:
        status = os.statvfs(path)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return used, status.f_bavail * status.f_frsize

    def buffer(self, size: int) -> mmap.mmap | bytearray:
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def lock_memory(self, buffer: mmap.mmap | bytearray) -> None:
        # On fault: plain mlock would immediately touch every page of a pool of several gigabytes.
        self._call(_libc.mlock2, buffer, MLOCK_ONFAULT)

    def unlock_memory(self, buffer: mmap.mmap | bytearray) -> None:
        self._call(_libc.munlock, buffer)

    @staticmethod
    def _call(function: Callable[..., int], buffer: mmap.mmap | bytearray, *flags: int) -> None:
        anchor = ctypes.c_char.from_buffer(buffer)
        try:
            if function(ctypes.addressof(anchor), len(buffer), *flags) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error))
        finally:
            del anchor


def _load_mincore() -> Callable[[int, int, ctypes.Array[ctypes.c_char]], int]:
    # It never waits, so keep the interpreter lock, which other threads would otherwise acquire.
    mincore = ctypes.PyDLL(None).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    mincore.restype = ctypes.c_int
    return mincore


def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    libc.mmap.restype = ctypes.c_void_p
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.madvise.restype = ctypes.c_int
    libc.mlock2.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.mlock2.restype = ctypes.c_int
    libc.munlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.munlock.restype = ctypes.c_int
    libc.syncfs.argtypes = (ctypes.c_int,)
    libc.syncfs.restype = ctypes.c_int
    return libc


_libc = _load_libc()
_mincore = _load_mincore()
_given_up: list[mmap.mmap] = []
