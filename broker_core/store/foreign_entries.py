"""Entries of a store's directories that no store made: the broker ignores them, with a warning.

A file system mounted at `commitlog/` has a `lost+found`, NFS leaves `.nfs...`, macOS `.DS_Store`,
and people leave notes. Only what may be a file of the store with a damaged name stops a start.

Differs: such an entry in a directory of offset files ends the start of the original (4.9.7).
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
    """Return the offsets that files of a directory are named by, in order.

    Raises:
        StoreError: an entry may be one of the files with a damaged name.
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
    """Log in one line that entries of a directory are ignored, if there are any."""
    if names:
        logger.warning(
            "unexpected entries in the store ignored directory=%s count=%d names=%s",
            directory,
            len(names),
            ",".join(names[:NAMES_LOGGED]),
        )
