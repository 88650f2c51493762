"""Compaction: chooses which files of a day to merge, so that each day has only a few files.

Files grow in tiers, each sixteen times as large as the one below. The files of a tier are merged
when together they make a file of the next tier, so a row is rewritten at most three or four times
on its way from a batch of some kilobytes to a file of FILE_BYTES. A file of at least half of
FILE_BYTES isn't merged.

Pure: this module decides, and `maintenance` merges.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from analytics.lake.rewriting import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FILE_BYTES = 256 * 1024 * 1024
TIER_RATIO = 16
TIERS = 3
# More files than this are merged however small they are.
FILES_A_TIER_MAX = 64

File = TypeVar("File", bound=StoredFile)


def groups_due(
    files: Iterable[File], *, is_closed: bool, file_bytes: int = FILE_BYTES
) -> list[list[File]]:
    """Return groups of files of one day to merge into one each; neighbours in the log go together.

    On a closed day, all small files are merged.
    """
    small = [file for file in files if file.size < file_bytes // 2]
    if is_closed:
        return _groups(small, file_bytes, least=2)
    tiers: dict[int, list[File]] = defaultdict(list)
    for file in small:
        tiers[_tier(file.size, file_bytes)].append(file)
    due = []
    for tier, members in sorted(tiers.items()):
        enough = file_bytes // TIER_RATIO ** (TIERS - 1 - tier)
        size = sum(file.size for file in members)
        if len(members) > 1 and (size >= enough or len(members) > FILES_A_TIER_MAX):
            due += _groups(members, file_bytes, least=2)
    return due


def _tier(size: int, file_bytes: int) -> int:
    """Return 0 for the smallest files; the last tier ends at FILE_BYTES."""
    bounds = [file_bytes // TIER_RATIO ** (TIERS - 1 - tier) for tier in range(TIERS - 1)]
    return sum(size >= bound for bound in bounds)


def _groups(files: Sequence[File], file_bytes: int, *, least: int) -> list[list[File]]:
    """Return the files in groups of about FILE_BYTES, without groups of fewer than `least`."""
    groups: list[list[File]] = [[]]
    size = 0
    for file in sorted(files, key=lambda one: one.order):
        if groups[-1] and size + file.size > file_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [group for group in groups if len(group) >= least]
