"""The part of deploy/backup that runs inside .venv: copies a running or stopped appliance.

It doesn't contact any process of the appliance, so it needs no account and works even if a process
hangs. It copies in this order: the lake, which must not be ahead of the logs; slaves' stores, then
masters' stores; databases; all other files; the manifest.
"""

from __future__ import annotations

import os
import platform
import pwd
import signal
import sqlite3
import sys
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from analytics.errors import LakeError
from analytics.lake.place import LOCK_FILE, LOCK_SUFFIX, STAGING, LakePlace
from broker_core.storage import FileStorage
from broker_core.store.retention import CLEAN_FORCIBLY_RATIO
from broker_core.store.runtime_info import size_text
from deploy.archive import (
    contents as backup_contents,
    low_priority_copy,
    manifest as backup_manifest,
    options,
    source as backup_source,
    target as backup_target,
)
from deploy.archive.copier import Copier, SourceFile, files_below
from deploy.archive.manifest import BackupError, LogRange, Manifest
from deploy.archive.progress import Progress
from deploy.archive.store_copy import copy_store, log_bytes
from deploy.settings import secret_files
from deploy.terminal.output import complain, say
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from deploy.archive.contents import Contents
    from deploy.archive.options import BackupOptions

DONE, PROBLEMS_FOUND, NOT_DONE = 0, 1, 2
LAKE_SECONDS_MAX = 600.0
SPARE_BYTES = 64 << 20
PROBLEMS_SHOWN = 20


class _StopSignal(BaseException):
    """A signal arrived. Not an Exception, so that no handler swallows it."""


def back_up(asked: BackupOptions, database_url: str) -> Manifest:
    """Copy an appliance; return the manifest of the copy.

    Raises:
        BackupError: the appliance or target isn't suitable; the partial copy is deleted.
        OSError: a file can't be read or written; the partial copy is deleted.
    """
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    _require_outside(asked)
    found = backup_contents.find(
        asked.data, asked.broker_file, asked.lake, database_url, has_lake=asked.has_lake
    )
    lake = found.lake if asked.has_lake else None
    total = _bytes_of(found, lake)
    _require_room(asked.target, total, found)
    low_priority_copy.lower_priority()
    target = backup_target.opened(asked.target)
    progress = Progress(total)
    try:
        copier = Copier(target, progress, _reader_of(asked.data))
        ranges = _copy(found, lake, copier, asked.target)
        manifest = Manifest(
            format=backup_manifest.FORMAT,
            made_at=made_at,
            data=str(asked.data),
            owner=_owner_of(asked.data),
            versions={"python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
            has_lake=lake is not None,
            brokers=ranges,
            edits=found.edits,
            left_out=found.left_out,
            files=copier.entries,
        )
        target.finish(backup_manifest.encode(manifest))
    except BaseException:
        target.abandon()
        raise
    finally:
        progress.end()
    return manifest


def verify(source: Path) -> tuple[Manifest, list[str]]:
    """Read all of a backup; return its manifest, and a sentence for each file that changed.

    Raises:
        BackupError: it isn't a backup, or isn't readable to its end.
    """
    low_priority_copy.lower_priority()
    progress = Progress(backup_source.stored_bytes(source))
    try:
        contents = backup_source.read(source, lambda _, pieces: _count(progress, pieces))
    finally:
        progress.end()
    return contents.manifest, contents.problems


def _count(progress: Progress, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        progress.add(len(piece))


def _is_of_a_writer(path: str) -> bool:
    """Return whether a file of the lake is a lock, or isn't committed yet."""
    return path.endswith(LOCK_SUFFIX) or STAGING in Path(path).parts


def _copy(found: Contents, lake: Path | None, copier: Copier, target: Path) -> list[LogRange]:
    if lake is not None:
        place = LakePlace.of(str(lake), None, os.environ)
        # The appliance must create the lock, because root's file wouldn't be writable.
        is_kept = (lake / LOCK_FILE).exists()
        with place.locked(wait_seconds=LAKE_SECONDS_MAX) if is_kept else nullcontext():
            copier.tree(f"{backup_contents.LAKE}/", lake, skips=_is_of_a_writer)
    ranges = [copy_store(copier, place) for place in found.stores]
    draft = target.with_name(f"{target.name}{backup_target.PARTIAL}{backup_contents.DATABASE}")
    for path, database in found.databases.items():
        _copy_database(copier, path, database, draft)
    for path, file in (found.broker_files | found.outside).items():
        if file.is_dir():
            copier.tree(f"{path}/", file)
        elif not copier.path(path, file):
            raise BackupError(translated("Can't read {file}: it isn't a regular file.", file=file))
    copier.tree("", found.data, skips=found.skips)
    return ranges


def _copy_database(copier: Copier, path: str, database: Path, draft: Path) -> None:
    """Copy a SQLite database as of one moment; writers continue meanwhile (WAL)."""
    draft.unlink(missing_ok=True)
    try:
        os.close(os.open(draft, backup_target.NEW, 0o600))
        with (
            closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(draft)) as copy,
        ):
            # In a single step, because a copy in several steps restarts at each write.
            source.backup(copy)
        descriptor = os.open(draft, low_priority_copy.OPENED)
        try:
            copier.file(path, SourceFile(path, descriptor, database.stat()))
        finally:
            os.close(descriptor)
    except sqlite3.Error as error:
        raise BackupError(
            translated("Can't read the database {path}: {why}.", path=database, why=error)
        ) from error
    finally:
        for end in ("", *backup_contents.DATABASE_SUFFIXES):
            Path(f"{draft}{end}").unlink(missing_ok=True)


def _require_outside(asked: BackupOptions) -> None:
    target = asked.target.parent.resolve() / asked.target.name
    if not target.parent.is_dir():
        raise BackupError(translated("The directory {path} doesn't exist.", path=target.parent))
    if target.is_relative_to(asked.data.resolve()):
        raise BackupError(
            translated(
                "{path} is inside the data directory, so it would be copied, too. Choose "
                "another path.",
                path=target,
            )
        )


def _bytes_of(found: Contents, lake: Path | None) -> int:
    """Return the approximate number of bytes to copy."""
    total = 0
    for place in found.stores:
        total += log_bytes(place)
        for directory in (place.paths.consume_queue, place.paths.consume_queue_ext):
            total += _on_disk(directory)
    total += sum(path.stat().st_size for path in found.databases.values() if path.exists())
    total += sum(each.status.st_size for each in files_below(found.data, skips=found.skips))
    return total + (0 if lake is None else _on_disk(lake))


def _on_disk(directory: Path) -> int:
    return sum(
        min(each.status.st_size, each.status.st_blocks * 512) for each in files_below(directory)
    )


def _require_room(target: Path, total: int, found: Contents) -> None:
    """Check that the copy fits, and leaves enough space for a broker on the same disk."""
    largest = max((path.stat().st_size for path in found.databases.values()), default=0)
    needed = total + largest + SPARE_BYTES
    used, free = FileStorage().disk_usage(target.parent)
    if needed > free:
        raise BackupError(
            translated(
                "{path} needs {needed}, but only {free} are free.",
                path=target,
                needed=size_text(needed),
                free=size_text(free),
            )
        )
    device = target.parent.stat().st_dev
    logs = [place.paths.commit_log for place in found.stores if place.paths.commit_log.is_dir()]
    is_shared = any(path.stat().st_dev == device for path in logs)
    if is_shared and (used + needed) / (used + free) > CLEAN_FORCIBLY_RATIO:
        raise BackupError(
            translated(
                "{path} would fill the broker's log disk to more than {percent} %, at which "
                "the broker deletes its oldest messages. Use another disk.",
                path=target,
                percent=round(CLEAN_FORCIBLY_RATIO * 100),
            )
        )


def _reader_of(data: Path) -> os.stat_result | None:
    """Return the user whose permissions count: for root, the owner of the data directory."""
    return data.stat() if os.geteuid() == 0 else None


def _owner_of(directory: Path) -> str:
    try:
        return pwd.getpwuid(directory.stat().st_uid).pw_name
    except KeyError:
        return ""


def _print_contents(manifest: Manifest, heading: str) -> None:
    say(heading)
    for one in manifest.brokers:
        say(
            translated(
                "  {process}: commit_log_offset {start} to {end}",
                process=one.process,
                start=one.from_offset,
                end=one.to_offset,
            )
        )
    for sentence in manifest.left_out:
        complain(translated("WARNING not included: {what}", what=sentence))


def _on_signals() -> None:
    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _StopSignal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def _run(asked: BackupOptions, database_url: str) -> int:
    if asked.is_verified:
        try:
            manifest, problems = verify(asked.target)
        except BackupError as error:
            complain(str(error))
            return PROBLEMS_FOUND
        for problem in problems[:PROBLEMS_SHOWN]:
            complain(problem)
        if len(problems) > PROBLEMS_SHOWN:
            complain(translated("and {count} more", count=len(problems) - PROBLEMS_SHOWN))
        if problems:
            return PROBLEMS_FOUND
        heading = translated(
            "{path} is unchanged since it was written ({made_at}).",
            path=asked.target,
            made_at=manifest.made_at,
        )
    else:
        manifest = back_up(asked, database_url)
        stored = sum(entry.stored for entry in manifest.files)
        heading = translated(
            "{path} contains {count} files, {size}; keep it secret, because it has passwords "
            "and keys.",
            path=asked.target,
            count=len(manifest.files),
            size=size_text(stored),
        )
    _print_contents(manifest, heading)
    return DONE


def main(arguments: Sequence[str]) -> int:
    _on_signals()
    os.umask(0o077)
    try:
        secrets = secret_files.take(os.environ)
        asked = options.parse_backup(arguments)
        return _run(asked, secrets.get("DATABASE_URL", ""))
    except (BackupError, LakeError) as error:
        complain(str(error))
    except OSError as error:
        where = error.filename or translated("the disk")
        complain(translated("{where}: {why}.", where=where, why=error.strerror or error))
    except _StopSignal:
        complain(translated("Stopped; all partial files were deleted."))
    return NOT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
