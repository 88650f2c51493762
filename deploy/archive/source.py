"""Reads a backup: a directory, or a tar file from its beginning to its end.

A backup isn't trusted: paths that lead outside the directory are rejected, and only the bytes of
regular files are unpacked, to paths that we choose.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import zstandard

from deploy.archive import manifest as backup_manifest
from deploy.archive.low_priority_copy import OPENED, PIECE_BYTES
from deploy.archive.manifest import BackupError, Manifest
from deploy.archive.target import PARTIAL, TAR_ZST
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    FileConsumer = Callable[[str, Iterator[bytes]], None]
    """Called with a path and its bytes; must read all of them."""


class Contents(NamedTuple):
    """The contents of a backup.

    Attributes:
        manifest: the expected contents.
        problems: a sentence for each file that is missing, truncated or modified.
    """

    manifest: Manifest
    problems: list[str]


def read(source: Path, take: FileConsumer) -> Contents:
    """Read all of a backup.

    Raises:
        BackupError: the manifest is missing or not readable, or it isn't a backup.
        OSError: the disk failed.
    """
    if source.name.endswith(PARTIAL):
        raise BackupError(
            translated("{path} isn't a complete backup. Start the backup again.", path=source)
        )
    found: dict[str, tuple[int, str]] = {}

    def taken(path: str, pieces: Iterator[bytes]) -> None:
        digest, size = hashlib.sha256(), 0

        def noted() -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                yield piece

        take(path, noted())
        found[path] = (size, digest.hexdigest())

    mode = source.stat().st_mode
    if stat.S_ISDIR(mode):
        manifest = _read_directory(source, taken)
    elif stat.S_ISREG(mode):
        manifest = _read_tar(source, taken)
    else:
        raise BackupError(translated("{path} isn't a directory or a file.", path=source))
    return Contents(manifest, backup_manifest.differences(manifest, found))


def stored_bytes(source: Path) -> int:
    """Return the total size of a backup's files, 0 if that requires reading it."""
    if source.is_dir():
        return sum(entry.stored for entry in _manifest_of(source).files)
    return 0 if source.name.endswith(TAR_ZST) else source.stat().st_size


def _read_directory(source: Path, take: FileConsumer) -> Manifest:
    manifest = _manifest_of(source)
    for entry in manifest.files:
        try:
            descriptor = os.open(source / entry.path, OPENED)
        except OSError:
            # Missing, or replaced by a link.
            continue
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                take(entry.path, _pieces(partial(os.read, descriptor)))
        finally:
            os.close(descriptor)
    return manifest


def _manifest_of(source: Path) -> Manifest:
    try:
        text = (source / backup_manifest.NAME).read_bytes()
    except FileNotFoundError:
        raise _without_manifest(source) from None
    return backup_manifest.decode(text)


def _read_tar(source: Path, take: FileConsumer) -> Manifest:
    manifest: Manifest | None = None
    try:
        with (
            _stream(source) as stream,
            tarfile.open(fileobj=stream, mode="r|", bufsize=PIECE_BYTES) as tar,
        ):
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise BackupError(
                        translated(
                            "The backup contains a path that isn't allowed: {path!r}.",
                            path=member.name,
                        )
                    )
                if member.name == backup_manifest.NAME:
                    manifest = backup_manifest.decode(content.read(backup_manifest.BYTES_MAX))
                    continue
                backup_manifest.require_inside(member.name)
                take(member.name, _pieces(content.read))
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise BackupError(
            translated("{path} is truncated or damaged: {why}.", path=source, why=error)
        ) from error
    if manifest is None:
        raise _without_manifest(source)
    return manifest


@contextmanager
def _stream(source: Path) -> Iterator[IO[bytes]]:
    with source.open("rb") as file:
        if not source.name.endswith(TAR_ZST):
            yield file
            return
        with zstandard.ZstdDecompressor().stream_reader(file) as stream:
            yield cast("IO[bytes]", stream)


def _pieces(read_some: Callable[[int], bytes]) -> Iterator[bytes]:
    while piece := read_some(PIECE_BYTES):
        yield piece


def _without_manifest(source: Path) -> BackupError:
    return BackupError(
        translated(
            "{path} has no {manifest}. It isn't a backup, or the backup didn't finish.",
            path=source,
            manifest=backup_manifest.NAME,
        )
    )
