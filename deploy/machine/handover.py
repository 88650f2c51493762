"""Hands root's data directory over to the user that the appliance runs as.

The owner of a directory may replace its entries at any time. So each file is opened without
following symbolic links, and the open file is checked and handed over. A file with a hard link
elsewhere, which may belong to anybody, isn't. Standard library only.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.formats.paths import is_system_entry
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT_USER = 0
APPLIANCE_NAMES = frozenset({"appliance.lock", "broker.conf", "console.sqlite3", "store"})
"""An appliance's data directory has at least one of these names."""
OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class HandoverError(Exception):
    """The directory isn't handed over; the text is one sentence."""


def require_ours(directory: Path, uid: int) -> None:
    """Check that a directory is an appliance's, or new, and belongs to root or the user.

    Raises:
        HandoverError: it must not be handed over.
    """
    try:
        owner = directory.lstat().st_uid
        names = {name for name in os.listdir(directory) if not is_system_entry(name)}  # noqa: PTH208  names are enough
    except FileNotFoundError:
        return
    except OSError as error:
        raise HandoverError(
            translated(
                "Can't read the data directory {data}: {why}.",
                data=directory,
                why=error.strerror,
            )
        ) from error
    if owner not in (ROOT_USER, uid):
        raise HandoverError(
            translated(
                "The data directory {data} belongs to the user {owner}. Set TREBUCHET_USER to "
                "this name, or change the directory's owner yourself.",
                data=directory,
                owner=owner,
            )
        )
    if owner == ROOT_USER and names and names.isdisjoint(APPLIANCE_NAMES):
        raise HandoverError(
            translated(
                "The directory {data} belongs to root and contains files other than an "
                "appliance's data. Choose a separate directory with --data.",
                data=directory,
            )
        )


def hand_over(directory: Path, uid: int, gid: int) -> list[Path]:
    """Make the user the owner of root's files and directories; return the symbolic links, which
    stay.

    Raises:
        HandoverError: a file has hard links outside the directory; nothing is changed then.
    """
    names = _count_links(directory)
    links = []
    for path, descriptor, name in _entries(directory):
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            links.append(path)
        elif status.st_uid == ROOT_USER:
            _change_owner(path, name, descriptor, uid, gid, names)
    opened = os.open(directory, OPENED | os.O_DIRECTORY)
    try:
        if os.fstat(opened).st_uid == ROOT_USER:
            os.fchown(opened, uid, gid)
    finally:
        os.close(opened)
    return links


def _change_owner(
    path: Path, name: str, descriptor: int, uid: int, gid: int, names: Mapping[tuple[int, int], int]
) -> None:
    mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
    if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
        os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return
    opened = os.open(name, OPENED, dir_fd=descriptor)
    try:
        status = os.fstat(opened)
        if stat.S_ISREG(status.st_mode):
            _require_known(path, status, names)
        elif not stat.S_ISDIR(status.st_mode):
            return
        if status.st_uid == ROOT_USER:
            os.fchown(opened, uid, gid)
    finally:
        os.close(opened)


def _count_links(directory: Path) -> Counter[tuple[int, int]]:
    """Count root's hard links inside the directory; reject files with links outside."""
    found: Counter[tuple[int, int]] = Counter()
    seen: dict[tuple[int, int], tuple[Path, os.stat_result]] = {}
    for path, descriptor, name in _entries(directory):
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_uid == ROOT_USER and status.st_nlink > 1:
            key = (status.st_dev, status.st_ino)
            found[key] += 1
            seen[key] = (path, status)
    for path, status in seen.values():
        _require_known(path, status, found)
    return found


def _require_known(
    path: Path, status: os.stat_result, names: Mapping[tuple[int, int], int]
) -> None:
    if status.st_nlink > max(1, names.get((status.st_dev, status.st_ino), 0)):
        raise HandoverError(
            translated(
                "{path} has a hard link outside the data directory. Replace it with a copy, "
                "or change its owner yourself.",
                path=path,
            )
        )


def _entries(directory: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield path, directory descriptor and name of all entries below, deepest first."""
    for where, directories, files, descriptor in os.fwalk(directory, topdown=False):
        if any(map(is_system_entry, Path(where).relative_to(directory).parts)):
            continue
        for name in (*files, *directories):
            if not is_system_entry(name):
                yield Path(where, name), descriptor, name
