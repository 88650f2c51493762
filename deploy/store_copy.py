"""A consistent copy of a broker's store, of a broker that may be running and is not asked.

What is copied when makes it consistent, as the files of a killed broker are:

1. Offsets, epochs and damaged ranges. They speak of messages that the log has by then.
2. ConsumeQueues: a unit comes behind its record. What they lack, or have too much, the next start
   mends; what they alone know (where a queue goes on whose messages have all expired) is kept.
3. The log's end: the last whole record, which is found in the files. Topics and groups right after
   it, so that none is missing that a record is of; should a topic be deleted meanwhile, once more.
   What stands behind the end is a record being packed, and waited for, unless nothing changes.
4. The log up to that end, the newest file first: of the oldest some may expire.

The copy has the file `abort` and no checkpoint, so that its first start reads the whole log, checks
each record, mends the queues and builds the index, which is left out.

Whatever a broker acknowledged is in its files by then: it packs records into mappings of them. A
TransientStorePool alone holds back what is not committed yet.
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
from deploy.backup_copier import Found, files_below
from deploy.backup_manifest import BackupError, LogRange
from deploy.gentle import OPENED
from deploy.words import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.store.log_files import LogFile
    from deploy.backup_copier import Copier

TABLES = ("topics.json", "subscriptionGroup.json")
"""Files of config/ that are to name all that the log has messages of."""
BOTH_MAX = 1000
"""So often may topics be deleted while the log's end is looked for."""
SETTLED_SECONDS = 1.0
"""What no broker has made a record of for so long is damage, or half a record of a killed one."""
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A broker's store.

    Attributes:
        process: the broker's process, such as `broker-b`.
        target: where the store goes, below the data directory.
    """

    process: str
    paths: StorePaths
    target: str

    @classmethod
    def of(cls, process: str, root: Path, commit_log: str, target: str) -> StorePlace:
        """Return the place of a store; an empty commit_log means inside of it."""
        log = str(Path(commit_log).resolve()) if commit_log else ""
        return cls(process, StorePaths.of(str(root.resolve()), log), target)


@dataclass(frozen=True, slots=True)
class _End:
    """Where the log is cut.

    Attributes:
        to_offset: behind the last whole record.
        copied_to: behind the last byte that is copied: as far as the files go, where something
            stands behind the last record that is neither a record nor nothing.
        tables: the files of TABLES, then deletedTopics.json.
    """

    files: list[LogFile]
    to_offset: int
    copied_to: int
    tables: dict[str, tuple[bytes, int]]


def log_bytes(place: StorePlace) -> int:
    """Return how many bytes of a log there are to copy, about."""
    files = _log_files(place)
    if not files:
        return 0
    return max(0, _readable_end(place, files)[0] - files[0].from_offset)


def copy_store(
    copier: Copier, place: StorePlace, pause: Callable[[float], None] = time.sleep
) -> LogRange:
    """Copy a store; return what there is of its log.

    pause: is called with seconds to wait.

    Raises:
        BackupError: it changes too fast.
        OSError: a file cannot be read.
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
        # Read while they were written, the bytes behind the end may have holes before records.
        raise BackupError(
            told(
                "The log of {store} went on behind {offset} after it had stood still there: "
                "begin the backup anew.",
                store=place.paths.root,
                offset=end.to_offset,
            )
        )
    # With it the next start trusts nothing but the log.
    copier.text(f"{target}/{paths.abort.name}", b"", 0)
    return LogRange(place.process, from_offset, end.to_offset)


def _copy_log(copier: Copier, place: StorePlace, end: _End) -> int:
    """Copy the log's files, newest first; return where the oldest one begins."""
    first = end.to_offset
    for file in sorted(end.files, key=lambda file: -file.from_offset):
        if file.from_offset >= end.copied_to:
            continue  # allocated ahead
        try:
            descriptor = os.open(file.path, OPENED)
        except FileNotFoundError:
            break  # expired, and so are those before it
        try:
            found = Found(file.path.name, descriptor, os.fstat(descriptor))
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
        told("Topics of {store} are deleted without a pause.", store=place.paths.root)
    )


def _settled_end(
    place: StorePlace, pause: Callable[[float], None]
) -> tuple[list[LogFile], int, int]:
    """Return the log's files, where it ends, and up to where it is copied.

    A broker packs a record piece by piece, and files that are read meanwhile may show later pieces
    without earlier ones. That passes; what does not is damage, or half a record of a broker that
    was killed: the next start tells which, and needs all of it for that.
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
    """Return where the last whole record ends, and whether nothing stands behind it."""
    planner = Planner(files, ConsumeQueues(place.paths.consume_queue), CHUNK_BYTES)
    end, behind = planner.readable_end()
    return end, behind is None


def _require_no_links(place: StorePlace) -> None:
    """Check that nothing would be left out because it is behind a symbolic link.

    Raises:
        BackupError: something would.
    """
    paths = place.paths
    inside = (paths.root / "config", paths.consume_queue, paths.consume_queue_ext, paths.diverged)
    for path in (*inside, paths.commit_log):
        if path.is_symlink():
            raise BackupError(
                told(
                    "{path} is a symbolic link, which a backup does not follow: name the place by "
                    "storePathRootDir or storePathCommitLog.",
                    path=path,
                )
            )


def _log_files(place: StorePlace) -> list[LogFile]:
    try:
        return log_files(place.paths.commit_log)
    except FileNotFoundError:
        return []


def _read(path: Path) -> tuple[bytes, int] | None:
    """Return text and time of a file that is replaced as a whole, None without one."""
    for found in files_below(path.parent, skips=lambda name: name != path.name):
        with os.fdopen(os.dup(found.descriptor), "rb") as file:
            return file.read(), found.status.st_mtime_ns
    return None
