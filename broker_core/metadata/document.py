"""A JSON configuration file that survives a power cut, with the generation before it beside it.

`X.json` is written whole: temporary file, fsync, rename, fsync of the directory; the text it
replaces stays as `X.json.bak`. A damaged `X.json` is set aside as `X.json.damaged` and the `.bak`
is read.

Source: common/ConfigManager.java, common/MixAll.java (4.9.7).
Differs: the original neither syncs nor renames over the old file, and can leave an empty one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker_core.errors import StoreError
from broker_core.protocol import java_json

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.storage import Storage

logger = logging.getLogger(__name__)


class Document:
    """One file of `config/`. Event loop only, but for `write`."""

    def __init__(self, storage: Storage, path: Path) -> None:
        self._storage = storage
        self.path = path

    def load(self) -> dict[str, Any] | None:
        """Return what the file says, else what its `.bak` says, else None when neither is there.

        Raises:
            StoreError: a file is there and neither it nor its `.bak` can be read.
        """
        backup = self.path.with_name(f"{self.path.name}.bak")
        try:
            table = self._read(self.path)
        except ValueError as damage:
            try:
                table = self._read(backup)
            except ValueError as worse:
                raise StoreError(
                    f"{self.path} is damaged ({damage}) and so is {backup} ({worse}); "
                    "put a good copy in place, or remove both to begin with an empty one"
                ) from worse
            if table is None:
                raise StoreError(
                    f"{self.path} is damaged ({damage}) and there is no {backup}; "
                    "put a good copy in place, or remove the file to begin with an empty one"
                ) from damage
            # Set aside, or the next write would make the damaged text the .bak.
            aside = self.path.with_name(f"{self.path.name}.damaged")
            self._storage.rename(self.path, aside)
            logger.warning(
                "%s is damaged (%s): using %s, the damaged text is kept as %s",
                self.path,
                damage,
                backup,
                aside,
            )
            self.write(self.text(table), keep_backup=False)
            return table
        return table if table is not None else self._read_backup(backup)

    def save(self, table: dict[Any, Any]) -> None:
        """Write the table; blocks for one fsync of a small file."""
        self.write(self.text(table))

    def text(self, table: dict[Any, Any]) -> bytes:
        """Return the table as the file's text."""
        return java_json.encode_pretty(table)

    def write(self, text: bytes, *, keep_backup: bool = True) -> None:
        """Write a text that `text` made. Any thread, one at a time."""
        self._storage.write_atomically(self.path, text, keep_backup=keep_backup)

    def _read_backup(self, backup: Path) -> dict[str, Any] | None:
        try:
            table = self._read(backup)
        except ValueError as damage:
            raise StoreError(
                f"{self.path} is missing and {backup} is damaged ({damage}); "
                "put a good copy in place, or remove it to begin with an empty one"
            ) from damage
        if table is not None:
            logger.warning("%s is missing: using %s", self.path, backup)
        return table

    def _read(self, path: Path) -> dict[str, Any] | None:
        raw = self._storage.read(path)
        if raw is None:
            return None
        if not raw.strip():
            raise ValueError("it is empty")
        table = java_json.decode(raw)
        if not isinstance(table, dict):
            raise ValueError("it is not a JSON object")
        return table
