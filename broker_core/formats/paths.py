"""Names of files and directories in a store.

::

    <root>/commitlog/00000000000000000000          or storePathCommitLog
           consumequeue/<topic>/<queue id>/00000000000000000000
           consumequeue_ext/<topic>/<queue id>/00000000000000000000    enableConsumeQueueExt
           index/20261121084457391                 local time of creation
           checkpoint  abort  lock  config/*.json
           quarantine.json                         Trebuchet: damaged ranges of the log
           deletedTopics.json                      Trebuchet: log offsets where deleted topics ended
           epoch.json                              Trebuchet: the masters that wrote the log
           diverged/<from>-<to>-<digest>/          Trebuchet: data cut from a former master's log

Source: store/config/StorePathConfigHelper.java, common/UtilAll.java offset2FileName (4.9.8).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

OFFSET_DIGITS = 20
INDEX_NAME_DIGITS = 17
SYSTEM_ENTRIES = frozenset({"lost+found", ".DS_Store", ".snapshot", ".zfs"})
SYSTEM_PREFIXES = (".nfs", "._", ".fuse_hidden", ".Trash")
_OFFSET = re.compile(rf"[0-9]{{{OFFSET_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of a store's files."""

    root: Path
    commit_log: Path

    @classmethod
    def of(cls, root: str, commit_log: str) -> StorePaths:
        """Return the paths; an empty commit_log means commitlog/ under root."""
        return cls(Path(root), Path(commit_log) if commit_log else Path(root) / "commitlog")

    @property
    def consume_queue(self) -> Path:
        return self.root / "consumequeue"

    @property
    def consume_queue_ext(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def deleted_topics(self) -> Path:
        return self.root / "deletedTopics.json"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine.json"

    @property
    def epoch(self) -> Path:
        return self.root / "epoch.json"

    @property
    def diverged(self) -> Path:
        return self.root / "diverged"


def offset_file_name(offset: int) -> str:
    """Return the name of the file that begins at offset."""
    return f"{offset:0{OFFSET_DIGITS}d}"


def parse_offset_file_name(name: str) -> int | None:
    """Return the offset in a file's name, or None if the name isn't an offset."""
    return int(name) if len(name) == OFFSET_DIGITS and name.isascii() and name.isdigit() else None


def is_system_entry(name: str) -> bool:
    """Return whether the operating system, never a store, creates entries with this name.

    Examples are `lost+found` of a mounted file system, NFS's `.nfs...`, macOS's `.DS_Store` and
    `._...`.
    """
    return name in SYSTEM_ENTRIES or name.startswith(SYSTEM_PREFIXES)


def may_be_offset_file(name: str) -> bool:
    """Return whether this may be the damaged name of a file that is named by its offset.

    Examples are `00000000001073741824.bak` or a number with too few digits. Any other name in a
    directory of these files was never such a file.
    """
    if is_system_entry(name):
        return False
    return (name.isascii() and name.isdigit()) or _OFFSET.search(name) is not None


def index_file_name(now_ms: int) -> str:
    """Return the name of an index file created at this time: local, yyyyMMddHHmmssSSS."""
    local = datetime.fromtimestamp(now_ms // 1000, tz=UTC).astimezone()
    return f"{local:%Y%m%d%H%M%S}{now_ms % 1000:03d}"


def is_index_file_name(name: str) -> bool:
    """Return whether a file in the index directory is an index file."""
    return len(name) == INDEX_NAME_DIGITS and name.isascii() and name.isdigit()
