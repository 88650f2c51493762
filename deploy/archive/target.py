"""Writes a backup: a directory, or one tar file.

The name ends in `.partial` until the manifest is written and everything is durable. A killed copy
keeps that name, and nothing reads it.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from typing import IO, TYPE_CHECKING, Protocol, cast

import zstandard

from broker_core.storage import FileStorage
from deploy.archive import manifest as backup_manifest
from deploy.archive.low_priority_copy import PIECE_BYTES, Sink
from deploy.archive.manifest import BackupError
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.archive.low_priority_copy import Source

PARTIAL = ".partial"
TAR, TAR_ZST = ".tar", ".tar.zst"
ZSTD_LEVEL = 3
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Target(Protocol):
    """A backup being written: add files, then the manifest, or abandon it."""

    def add(self, path: str, source: Source, stored: int) -> None:
        """Write a file with this many bytes."""
        ...

    def finish(self, manifest: bytes) -> None:
        """Write the manifest and make everything durable."""
        ...

    def abandon(self) -> None:
        """Delete the written files."""
        ...


def opened(path: Path) -> Target:
    """Begin a backup at a path that doesn't exist yet.

    Raises:
        BackupError: the path exists.
        OSError: the path isn't writable.
    """
    partial = path.with_name(path.name + PARTIAL)
    if os.path.lexists(path):
        raise BackupError(translated("{path} exists. Choose a new path for the backup.", path=path))
    if os.path.lexists(partial):
        raise BackupError(
            translated(
                "{path} belongs to an unfinished or running backup. Delete it if no backup is "
                "running.",
                path=partial,
            )
        )
    if path.name.endswith((TAR, TAR_ZST)):
        return TarTarget(path, partial)
    return DirectoryTarget(path, partial)


class DirectoryTarget:
    """A backup as a directory; trailing zeros of each file are left out."""

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
    """A backup as a POSIX tar file, compressed with zstd if its name ends in .tar.zst."""

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
        # Without closing the tar file, which would write a valid end.
        self._sink.close()
        self._partial.unlink(missing_ok=True)

    def _put(self, path: str, content: IO[bytes], size: int) -> None:
        member = tarfile.TarInfo(path)
        member.size, member.mode = size, 0o600
        self._tar.addfile(member, content)
