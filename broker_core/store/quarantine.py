"""The record of damaged ranges of the log, `quarantine.json`.

The file is in the root directory, since a stray file in `commitlog/` would prevent a real broker
from starting. Readers skip the ranges; they are never truncated away.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from broker_core.store.deleted_topics import UNREADABLE
from broker_core.store.results import DamagedRange

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.storage import Storage

logger = logging.getLogger(__name__)


class Quarantine:
    """Event loop only.

    Attributes:
        ranges: disjoint, ordered by offset.
        found_at_start: the ranges first found by this start.
    """

    __slots__ = ("_path", "_storage", "found_at_start", "ranges")

    def __init__(self, path: Path, storage: Storage) -> None:
        self.ranges: list[DamagedRange] = []
        self.found_at_start: list[DamagedRange] = []
        self._path = path
        self._storage = storage

    def load(self) -> None:
        """Read the record; if it can't be read, log that, and recovery recreates it."""
        text = self._storage.read(self._path)
        if text is None:
            return
        try:
            entries = json.loads(text)["ranges"]
            self.ranges = sorted(
                DamagedRange(int(entry["from"]), int(entry["to"]), str(entry["reason"]))
                for entry in entries
            )
        except UNREADABLE as error:
            logger.warning("damaged ranges not read path=%s reason=%s", self._path, error)

    def add(self, found: DamagedRange) -> bool:
        """Add a range; return whether it is new."""
        if any(
            known.offset_from <= found.offset_from and found.offset_to <= known.offset_to
            for known in self.ranges
        ):
            return False
        overlapping = [known for known in self.ranges if self._overlap(known, found)]
        whole = found._replace(
            offset_from=min(known.offset_from for known in [*overlapping, found]),
            offset_to=max(known.offset_to for known in [*overlapping, found]),
        )
        kept = [known for known in self.ranges if known not in overlapping]
        self.ranges = sorted([*kept, whole])
        return True

    def cut_at(self, commit_log_offset: int) -> None:
        """Forget damage after the log's end: the records written there will be new."""
        self.ranges = [
            known._replace(offset_to=min(known.offset_to, commit_log_offset))
            for known in self.ranges
            if known.offset_from < commit_log_offset
        ]

    def contains(self, commit_log_offset: int) -> bool:
        """Return whether an offset is in a damaged range."""
        return any(
            known.offset_from <= commit_log_offset < known.offset_to for known in self.ranges
        )

    def forget_before(self, commit_log_offset: int) -> None:
        """Forget ranges of deleted files."""
        kept = [known for known in self.ranges if known.offset_to > commit_log_offset]
        if len(kept) != len(self.ranges):
            self.ranges = kept
            self.save()

    def save(self) -> None:
        """Durably write the record."""
        entries = [
            {"from": known.offset_from, "to": known.offset_to, "reason": known.reason}
            for known in self.ranges
        ]
        text = json.dumps({"ranges": entries}, indent=2)
        self._storage.write_atomically(self._path, text.encode() + b"\n")

    @staticmethod
    def _overlap(one: DamagedRange, other: DamagedRange) -> bool:
        return one.offset_from < other.offset_to and other.offset_from < one.offset_to
