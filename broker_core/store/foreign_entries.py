"""Unrelated entries in the store's directories: the broker ignores them with a warning.

A file system mounted at `commitlog/` has a `lost+found`, NFS creates `.nfs...`, macOS `.DS_Store`,
and people leave notes. Only an entry that may be a store file with a damaged name prevents a start.

Differs: such an entry in a directory of offset files stops RocketMQ's start (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.errors import StoreError
from broker_core.formats.paths import may_be_offset_file, parse_offset_file_name

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.storage import Storage

logger = logging.getLogger(__name__)

NAMES_LOGGED = 10


def offset_files(storage: Storage, directory: Path) -> list[int]:
    """Return the offsets in the file names of a directory, in ascending order.

    Raises:
        StoreError: an entry may be a store file with a damaged name.
    """
    offsets, foreign = [], []
    for name in storage.list_directory(directory):
        path = directory / name
        offset = parse_offset_file_name(name)
        if offset is None and not may_be_offset_file(name):
            foreign.append(name)
            continue
        if offset is None:
            raise StoreError(
                f"{path} may be a renamed file of the store; give it back its name of 20 digits, "
                "or move it elsewhere, then start again"
            )
        if storage.is_directory(path):
            raise StoreError(
                f"{path} is a directory where a file of the store belongs; move it elsewhere, then "
                "start again"
            )
        offsets.append(offset)
    warn_of_foreign(directory, foreign)
    return offsets


def warn_of_foreign(directory: Path, names: list[str]) -> None:
    """Log one line with the ignored entries of a directory, if there are any."""
    if names:
        logger.warning(
            "unexpected entries in the store ignored directory=%s count=%d names=%s",
            directory,
            len(names),
            ",".join(names[:NAMES_LOGGED]),
        )
