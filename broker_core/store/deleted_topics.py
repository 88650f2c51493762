"""The record of deleted topics: the log offset up to which their messages are deleted.

The log keeps the messages of a deleted topic until they expire. After an unclean exit recovery must
neither restore them nor mix them up with messages of a later topic of the same name, whose queue
offsets begin at 0 again.

Differs: RocketMQ keeps no such record.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from broker_core.storage import Storage

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors from parsing an invalid record: JSON allows infinite numbers and any nesting depth."""


class DeletedTopics:
    """Event loop only."""

    def __init__(self, path: Path, storage: Storage) -> None:
        self._path = path
        self._storage = storage
        self._deleted: dict[str, int] = {}

    def load(self) -> None:
        """Read the record; if it can't be read, log that and start with an empty one."""
        text = self._storage.read(self._path)
        if text is None:
            return
        try:
            entries = json.loads(text)["deletedBefore"]
            self._deleted = {str(topic): int(offset) for topic, offset in entries.items()}
        except UNREADABLE as error:
            logger.warning("deleted topics not read path=%s reason=%s", self._path, error)

    def deleted_before(self, topic: str) -> int:
        """Return the commit_log_offset before which a topic's messages are deleted; usually 0."""
        return self._deleted.get(topic, 0)

    def all(self) -> dict[str, int]:
        """Return all deletions."""
        return dict(self._deleted)

    def add(self, deleted_before: Mapping[str, int]) -> None:
        """Durably record deletions; an existing offset never moves back."""
        for topic, commit_log_offset in deleted_before.items():
            self._deleted[topic] = max(commit_log_offset, self.deleted_before(topic))
        self._save()

    def clamp(self, max_commit_log_offset: int) -> None:
        """Move deletions back to the log's end, which a power cut may have moved before them."""
        if any(offset > max_commit_log_offset for offset in self._deleted.values()):
            self._deleted = {
                topic: min(offset, max_commit_log_offset) for topic, offset in self._deleted.items()
            }
            self._save()

    def forget_before(self, commit_log_offset: int) -> None:
        """Forget deletions whose messages have expired."""
        kept = {
            topic: offset for topic, offset in self._deleted.items() if offset > commit_log_offset
        }
        if len(kept) != len(self._deleted):
            self._deleted = kept
            self._save()

    def _save(self) -> None:
        text = json.dumps({"deletedBefore": self._deleted}, indent=2)
        self._storage.write_atomically(self._path, text.encode() + b"\n")
