"""Where a backup is written: a directory, or one tar file.

Until the manifest is in and all of it is durable its name ends in `.partial`; a copy that was
killed stays under that name, and nothing reads it.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from typing import IO, TYPE_CHECKING, Protocol, cast

import zstandard

from broker_core.storage import FileStorage
from deploy import backup_manifest
from deploy.backup_manifest import BackupError
from deploy.gentle import PIECE_BYTES, Sink
from deploy.words import told

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.gentle import Source

PARTIAL = ".partial"
TAR, TAR_ZST = ".tar", ".tar.zst"
ZSTD_LEVEL = 3
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Target(Protocol):
    """Files go in one after the other, then the manifest; or all of it is given up."""

    def add(self, path: str, source: Source, stored: int) -> None:
        """Write a file of so many bytes."""
        ...

    def finish(self, manifest: bytes) -> None:
        """Make all of it durable and complete."""
        ...

    def abandon(self) -> None:
        """Delete what was written."""
        ...


def opened(path: Path) -> Target:
    """Begin a backup at a place where nothing is.

    Raises:
        BackupError: something is there.
        OSError: it cannot be written.
    """
    partial = path.with_name(path.name + PARTIAL)
    if os.path.lexists(path):
        raise BackupError(told("{path} exists: a backup is written to a new place.", path=path))
    if os.path.lexists(partial):
        raise BackupError(
            told(
                "{path} is what a backup left that did not end, or one that is being made: delete "
                "it if none is.",
                path=partial,
            )
        )
    if path.name.endswith((TAR, TAR_ZST)):
        return TarTarget(path, partial)
    return DirectoryTarget(path, partial)


class DirectoryTarget:
    """A backup whose files are files; the last zeros of each are left out."""

    def __init__(self, path: Path, partial: Path) -> None:
        self._path = path
        self._partial = partial
        partial.mkdir(mode=0o700)

    def add(self, path: str, source: Source, stored: int) -> None:
        file = self._partial / path
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sink = Sink(os.open(file, NEW, 0o600))
        try:
            while data := source.read():
                sink.write(data)
        finally:
            sink.close()

    def finish(self, manifest: bytes) -> None:
        storage = FileStorage()
        storage.sync_file_system(self._partial)
        storage.write_atomically(self._partial / backup_manifest.NAME, manifest)
        self._partial.rename(self._path)
        storage.sync_directory(self._path.parent)

    def abandon(self) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)


class TarTarget:
    """A backup as a POSIX tar file, compressed by zstd where its name ends in .tar.zst."""

    def __init__(self, path: Path, partial: Path) -> None:
        self._path = path
        self._partial = partial
        self._sink = Sink(os.open(partial, NEW, 0o600))
        self._stream: IO[bytes] | None = None
        if path.name.endswith(TAR_ZST):
            compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
            self._stream = cast(
                "IO[bytes]", compressor.stream_writer(cast("IO[bytes]", self._sink), closefd=False)
            )
        self._tar = tarfile.open(  # noqa: SIM115  it is closed by finish or abandon
            fileobj=self._stream or cast("IO[bytes]", self._sink),
            mode="w|",
            bufsize=PIECE_BYTES,
            format=tarfile.PAX_FORMAT,
        )
        self._tar.copybufsize = PIECE_BYTES  # type: ignore[attr-defined]

    def add(self, path: str, source: Source, stored: int) -> None:
        self._put(path, cast("IO[bytes]", source), stored)

    def finish(self, manifest: bytes) -> None:
        self._put(backup_manifest.NAME, io.BytesIO(manifest), len(manifest))
        self._tar.close()
        if self._stream is not None:
            self._stream.close()
        self._sink.sync()
        self._sink.close()
        self._partial.rename(self._path)
        FileStorage().sync_directory(self._path.parent)

    def abandon(self) -> None:
        # Without a word to the tar file, whose end must not look like one.
        self._sink.close()
        self._partial.unlink(missing_ok=True)

    def _put(self, path: str, content: IO[bytes], size: int) -> None:
        member = tarfile.TarInfo(path)
        member.size, member.mode = size, 0o600
        self._tar.addfile(member, content)
