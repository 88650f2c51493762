"""Makes a consistent copy of a broker's store, even while the broker is running.

The order of copying makes it consistent, like the files of a killed broker:

1. Offsets, epochs and damaged ranges. By then, the log has the messages that they refer to.
2. ConsumeQueues: a unit is written after its record. The next start repairs missing and extra
   units; only the queues record where a queue continues whose messages have all expired.
3. The log's end: the last complete record, which is found in the files. Topics and groups right
   after it, so that every record has its topic; again if a topic is deleted meanwhile. Other bytes
   after the end are a record being written; the copy waits for it, unless nothing changes.
4. The log up to that end, the newest file first, because the oldest files may expire.

The copy has the file `abort` and no checkpoint, so that its first start reads the whole log, checks
each record, repairs the queues and rebuilds the index, which is left out.

All acknowledged messages are in the broker's files by then, because it writes records to mapped
files. Only a TransientStorePool holds back uncommitted data.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.store.consume_queues import ConsumeQueues
from analytics.store.log_files import CHUNK_BYTES, log_files
from analytics.store.plan import Planner
from broker_core.formats.paths import StorePaths
from deploy.archive.copier import SourceFile, files_below
from deploy.archive.low_priority_copy import OPENED
from deploy.archive.manifest import BackupError, LogRange
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.store.log_files import LogFile
    from deploy.archive.copier import Copier

TABLES = ("topics.json", "subscriptionGroup.json")
"""Files of config/ that must name every topic and group with messages in the log."""
BOTH_MAX = 1000
"""How often topics may be deleted during the search for the log's end."""
SETTLED_SECONDS = 1.0
"""Bytes that don't become a record in this time are damage, or half a record of a killed broker."""
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A broker's store.

    Attributes:
        process: the broker's process, such as `broker-b`.
        target: the store's path below the data directory.
    """

    process: str
    paths: StorePaths
    target: str

    @classmethod
    def of(cls, process: str, root: Path, commit_log: str, target: str) -> StorePlace:
        """Return the place of a store; an empty commit_log means the default inside it."""
        log = str(Path(commit_log).resolve()) if commit_log else ""
        return cls(process, StorePaths.of(str(root.resolve()), log), target)


@dataclass(frozen=True, slots=True)
class _End:
    """Where the copied log ends.

    Attributes:
        to_offset: after the last complete record.
        copied_to: after the last copied byte: the end of the files if bytes after the last record
            are neither a record nor zeros.
        tables: the files of TABLES, then deletedTopics.json.
    """

    files: list[LogFile]
    to_offset: int
    copied_to: int
    tables: dict[str, tuple[bytes, int]]


def log_bytes(place: StorePlace) -> int:
    """Return the approximate size of a log in bytes."""
    files = _log_files(place)
    if not files:
        return 0
    return max(0, _readable_end(place, files)[0] - files[0].from_offset)


def copy_store(
    copier: Copier, place: StorePlace, pause: Callable[[float], None] = time.sleep
) -> LogRange:
    """Copy a store; return the range of its log.

    pause: called with seconds to wait.

    Raises:
        BackupError: the store changes too fast.
        OSError: a file isn't readable.
    """
    paths, target = place.paths, place.target
    if not paths.root.is_dir():
        # A broker that has never started.
        return LogRange(place.process, 0, 0)
    _require_no_links(place)
    copier.tree(f"{target}/config/", paths.root / "config", skips=lambda path: path in TABLES)
    for file in (paths.epoch, paths.quarantine):
        copier.path(f"{target}/{file.name}", file)
    copier.tree(f"{target}/{paths.diverged.name}/", paths.diverged)
    for queues in (paths.consume_queue, paths.consume_queue_ext):
        copier.tree(f"{target}/{queues.name}/", queues, is_queue=True)
    end = _find_end(place, pause)
    for path, (text, modified_ns) in end.tables.items():
        copier.text(f"{target}/{path}", text, modified_ns)
    from_offset = _copy_log(copier, place, end)
    if end.to_offset < end.copied_to and _readable_end(place, end.files)[0] != end.to_offset:
        # Bytes after the end, read during a write, may have holes before records.
        raise BackupError(
            translated(
                "The log of {store} grew past {offset} while its end was copied. Start the "
                "backup again.",
                store=place.paths.root,
                offset=end.to_offset,
            )
        )
    # It makes the next start trust only the log.
    copier.text(f"{target}/{paths.abort.name}", b"", 0)
    return LogRange(place.process, from_offset, end.to_offset)


def _copy_log(copier: Copier, place: StorePlace, end: _End) -> int:
    """Copy the log's files, newest first; return the start of the oldest."""
    first = end.to_offset
    for file in sorted(end.files, key=lambda file: -file.from_offset):
        if file.from_offset >= end.copied_to:
            continue  # allocated ahead
        try:
            descriptor = os.open(file.path, OPENED)
        except FileNotFoundError:
            break  # expired, and so are earlier files
        try:
            found = SourceFile(file.path.name, descriptor, os.fstat(descriptor))
            copier.file(
                f"{place.target}/commitlog/{file.path.name}",
                found,
                limit=end.copied_to - file.from_offset,
                has_empty_end=file.to_offset >= end.copied_to,
                leaves_cache=file.to_offset < end.copied_to,
            )
        finally:
            os.close(descriptor)
        first = file.from_offset
    return first


def _find_end(place: StorePlace, pause: Callable[[float], None]) -> _End:
    deleted = place.paths.deleted_topics
    for _ in range(BOTH_MAX):
        before = _read(deleted)
        files, end, copied_to = _settled_end(place, pause)
        tables = {f"config/{name}": _read(place.paths.root / "config" / name) for name in TABLES}
        after = _read(deleted)
        if before == after:
            tables[deleted.name] = after
            known = {path: text for path, text in tables.items() if text is not None}
            return _End(files, end, copied_to, known)
    raise BackupError(
        translated("Topics of {store} are being deleted too fast to copy.", store=place.paths.root)
    )


def _settled_end(
    place: StorePlace, pause: Callable[[float], None]
) -> tuple[list[LogFile], int, int]:
    """Return the log's files, its end, and the end of the copied bytes.

    A broker writes a record in pieces, and a concurrent read may see later pieces without earlier
    ones. That is temporary. Permanent gaps are damage, or half a record of a killed broker: the
    next start decides, and needs all bytes for that.
    """
    seen, waited = -1, 0.0
    while True:
        files = _log_files(place)
        if not files:
            return files, 0, 0
        end, is_clean = _readable_end(place, files)
        if is_clean:
            return files, end, end
        if end != seen:
            seen, waited = end, 0.0
        if waited >= SETTLED_SECONDS:
            return files, end, max(file.to_offset for file in files)
        pause(LOOK_SECONDS)
        waited += LOOK_SECONDS


def _readable_end(place: StorePlace, files: list[LogFile]) -> tuple[int, bool]:
    """Return where the last complete record ends, and whether nothing follows it."""
    planner = Planner(files, ConsumeQueues(place.paths.consume_queue), CHUNK_BYTES)
    end, behind = planner.readable_end()
    return end, behind is None


def _require_no_links(place: StorePlace) -> None:
    """Check that no symbolic link hides files from the copy.

    Raises:
        BackupError: a link does.
    """
    paths = place.paths
    inside = (paths.root / "config", paths.consume_queue, paths.consume_queue_ext, paths.diverged)
    for path in (*inside, paths.commit_log):
        if path.is_symlink():
            raise BackupError(
                translated(
                    "{path} is a symbolic link, which a backup doesn't follow. Set its target "
                    "in storePathRootDir or storePathCommitLog.",
                    path=path,
                )
            )


def _log_files(place: StorePlace) -> list[LogFile]:
    try:
        return log_files(place.paths.commit_log)
    except FileNotFoundError:
        return []


def _read(path: Path) -> tuple[bytes, int] | None:
    """Return text and time of an atomically replaced file, or None."""
    for found in files_below(path.parent, skips=lambda name: name != path.name):
        with os.fdopen(os.dup(found.descriptor), "rb") as file:
            return file.read(), found.status.st_mtime_ns
    return None
