"""Copies files of an appliance, which may be running, into a backup and records them."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from broker_core.formats.paths import is_system_entry
from deploy.archive.low_priority_copy import OPENED, Source, length_without_zeros
from deploy.archive.manifest import BackupError, Entry
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deploy.archive.progress import Progress
    from deploy.archive.target import Target

PRIVATE = 0o600
DRAFTS = (".tmp", ".bak.tmp")
"""Suffixes of temporary files that are renamed once they are complete."""


class SourceFile(NamedTuple):
    """A regular file below a directory: its relative path, with `/`, and its status."""

    path: str
    descriptor: int
    status: os.stat_result


class Copier:
    """Copies files into a target.

    Attributes:
        entries: the files copied so far.
    """

    def __init__(
        self, target: Target, progress: Progress, reader: os.stat_result | None = None
    ) -> None:
        """`reader` owns the directory and may read everything that root copies for it."""
        self._reader = reader
        self._target = target
        self._progress = progress
        self.entries: list[Entry] = []

    def file(
        self,
        path: str,
        found: SourceFile,
        *,
        limit: int | None = None,
        has_empty_end: bool = False,
        leaves_cache: bool = False,
    ) -> None:
        """Copy an open file in its current state.

        limit: bytes after this offset are replaced by zeros. has_empty_end: zeros at the end are
        left out. leaves_cache: drop the file from the page cache.

        Raises:
            BackupError: the appliance's user may not read the file.
        """
        self._require_readable(path, found.status)
        size = os.fstat(found.descriptor).st_size
        stored = size if limit is None else min(size, limit)
        if has_empty_end:
            stored = length_without_zeros(found.descriptor, stored)
        source = Source(
            found.descriptor, stored, path, self._progress.add, leaves_cache=leaves_cache
        )
        self._target.add(path, source, stored)
        mode, modified_ns = stat.S_IMODE(found.status.st_mode), found.status.st_mtime_ns
        self.entries.append(Entry(path, size, stored, source.sha256, mode, modified_ns))

    def text(self, path: str, text: bytes, modified_ns: int) -> None:
        """Add a file from memory."""
        descriptor = os.memfd_create("backup", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text)
            source = Source(descriptor, len(text), path, self._progress.add)
            self._target.add(path, source, len(text))
        finally:
            os.close(descriptor)
        digest = hashlib.sha256(text).hexdigest()
        self.entries.append(Entry(path, len(text), len(text), digest, PRIVATE, modified_ns))

    def path(self, path: str, source: Path) -> bool:
        """Copy one file; return whether it exists. Symbolic links don't count."""
        try:
            descriptor = os.open(source, OPENED)
        except OSError as error:
            if isinstance(error, PermissionError):
                raise
            return False
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return False
            self.file(path, SourceFile(path, descriptor, status))
        finally:
            os.close(descriptor)
        return True

    def _require_readable(self, path: str, status: os.stat_result) -> None:
        """Check that the appliance's user may read a file that root copies.

        The user controls the paths in its directory and its configuration.
        """
        reader = self._reader
        if reader is None or reader.st_uid in (0, status.st_uid):
            return
        may_group = status.st_mode & stat.S_IRGRP and status.st_gid == reader.st_gid
        if not may_group and not status.st_mode & stat.S_IROTH:
            raise BackupError(
                translated(
                    "The user of the data directory can't read {path}. Change its owner "
                    "(chown), or move it away.",
                    path=path,
                )
            )

    def tree(
        self,
        prefix: str,
        directory: Path,
        *,
        skips: Callable[[str], bool] = lambda path: False,
        is_queue: bool = False,
    ) -> None:
        """Copy all regular files below a directory.

        skips: returns whether to leave out a relative path and everything below it. is_queue: the
        files of each directory are a sequence, the first may be deleted at any time, and each ends
        in zeros.
        """
        for found in files_below(directory, skips=skips, ends_at_gap=is_queue):
            self.file(f"{prefix}{found.path}", found, has_empty_end=is_queue)


def files_below(
    directory: Path, *, skips: Callable[[str], bool] = lambda path: False, ends_at_gap: bool = False
) -> Iterator[SourceFile]:
    """Yield the regular files below a directory, each open until the next is requested.

    Symbolic links aren't followed, even if they replace a directory meanwhile. Files that disappear
    meanwhile are left out; with ends_at_gap, the files of a directory are yielded newest name
    first, and stop at the first missing file. Entries of the operating system, such as
    `lost+found`, are left out.

    Raises:
        OSError: a file or directory isn't readable.
    """
    if not directory.is_dir():
        return
    for where, directories, names, at in os.fwalk(directory, onerror=_raise_unless_gone):
        base = os.path.relpath(where, directory)
        prefix = "" if base == "." else f"{base}/"
        directories[:] = sorted(
            each
            for each in directories
            if not is_system_entry(each) and not skips(f"{prefix}{each}")
        )
        for name in sorted(names, reverse=ends_at_gap):
            path = f"{prefix}{name}"
            if is_system_entry(name) or skips(path) or name.endswith(DRAFTS):
                continue
            try:
                descriptor = os.open(name, OPENED, dir_fd=at)
            except FileNotFoundError:
                if ends_at_gap:
                    break
                continue
            except OSError as error:
                if isinstance(error, PermissionError):
                    raise
                continue  # a link, or a socket
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode):
                    yield SourceFile(path, descriptor, status)
            finally:
                os.close(descriptor)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
