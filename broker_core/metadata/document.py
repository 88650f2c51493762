"""A JSON configuration file that survives a power cut, with the previous version next to it.

A write replaces `X.json` as a whole (temporary file, fsync, rename, fsync of the directory) and
keeps the old text as `X.json.bak`. `load` renames a damaged `X.json` to `X.json.damaged` and reads
the `.bak`.

Source: common/ConfigManager.java, common/MixAll.java (4.9.7).
Differs: RocketMQ neither syncs nor renames over the old file, and can leave an empty one.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from broker_core import allocator
from broker_core.errors import StoreError
from broker_core.protocol import java_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from broker_core.storage import Storage

logger = logging.getLogger(__name__)

TRIMMED_BYTES_MIN = 1 << 20
"""After writing a text of this size, return freed memory to the system: several times the text."""


class Document:
    """One file of `config/`. Event loop only, except `write` and the functions of `writing`."""

    def __init__(self, storage: Storage, path: Path) -> None:
        self._storage = storage
        self.path = path
        self._one_at_a_time = threading.Lock()
        self._last_snapshot = 0
        self._written_snapshot = 0

    def load(self) -> dict[str, Any] | None:
        """Return the table from the file, or from its `.bak`; None if neither file exists.

        Raises:
            StoreError: a file exists, but neither it nor its `.bak` can be read.
        """
        backup = self.path.with_name(f"{self.path.name}.bak")
        try:
            table = self._read(self.path)
        except ValueError as damage:
            try:
                table = self._read(backup)
            except ValueError as worse:
                raise StoreError(
                    f"{self.path} is damaged ({damage}) and so is {backup} ({worse}); restore a "
                    "good copy, or delete both to start with an empty file"
                ) from worse
            if table is None:
                raise StoreError(
                    f"{self.path} is damaged ({damage}) and there is no {backup}; restore a "
                    "good copy, or delete the file to start with an empty one"
                ) from damage
            # Otherwise the next write would turn the damaged text into the .bak.
            aside = self.path.with_name(f"{self.path.name}.damaged")
            self._storage.rename(self.path, aside)
            logger.warning(
                "metadata file damaged, using the backup path=%s reason=%s backup=%s saved_as=%s",
                self.path,
                damage,
                backup,
                aside,
            )
            self.write(self.text(table), keep_backup=False)
            return table
        return table if table is not None else self._read_backup(backup)

    def save(self, table: dict[Any, Any]) -> None:
        """Write the table; blocks until it is encoded and synced."""
        self.writing(lambda: table)()

    def writing(self, table: Callable[[], dict[Any, Any]]) -> Callable[[], None]:
        """Return a function that writes the result of `table`; any thread may call it.

        It writes nothing if the table of a later `writing` is already in the file. `table` runs in
        the calling thread, so it must not read anything that the event loop changes.
        """
        self._last_snapshot += 1
        snapshot = self._last_snapshot

        def write() -> None:
            with self._one_at_a_time:
                if snapshot > self._written_snapshot:
                    size = self._write_text_of(table())
                    self._written_snapshot = snapshot
                    if size >= TRIMMED_BYTES_MIN:
                        allocator.release_free_memory()

        return write

    def _write_text_of(self, table: dict[Any, Any]) -> int:
        """Write a table without keeping its text; return its size."""
        text = self.text(table)
        self.write(text)
        return len(text)

    def text(self, table: dict[Any, Any]) -> bytes:
        """Return the file's text for a table."""
        return java_json.encode_pretty(table)

    def write(self, text: bytes, *, keep_backup: bool = True) -> None:
        """Write a result of `text`. Any thread, one at a time."""
        self._storage.write_atomically(self.path, text, keep_backup=keep_backup)

    def _read_backup(self, backup: Path) -> dict[str, Any] | None:
        try:
            table = self._read(backup)
        except ValueError as damage:
            raise StoreError(
                f"{self.path} is missing and {backup} is damaged ({damage}); restore a good "
                f"copy, or delete {backup} to start with an empty file"
            ) from damage
        if table is not None:
            logger.warning(
                "metadata file missing, using the backup path=%s backup=%s", self.path, backup
            )
        return table

    def _read(self, path: Path) -> dict[str, Any] | None:
        raw = self._storage.read(path)
        if raw is None:
            return None
        if not raw.strip():
            raise ValueError("the file is empty")
        table = java_json.decode(raw)
        if not isinstance(table, dict):
            raise ValueError("the text is not a JSON object")
        return table
