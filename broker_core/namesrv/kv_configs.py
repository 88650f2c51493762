"""Texts by namespace and key, stored in kvConfig.json.

    {
        "configTable":{
                "ORDER_TOPIC_CONFIG":{
                        "orders":"broker-a:4"
                }
        }
    }

Source: namesrv/kvconfig/KVConfigManager.java (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError, StoreError
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.storage import Storage

logger = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: topic -> "brokerA:4;brokerB:4"."""

ENTRIES_MAX = 10_000
TEXT_BYTES_MAX = 8 * 1024
TABLE_BYTES_MAX = 1 << 20
"""Size limit of the table, because each change writes all of it."""


class _File(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]] = {}


class KvConfigs:
    """Reads the file at startup, and writes all of it on each change. Event loop only."""

    def __init__(self, storage: Storage, path: Path) -> None:
        self._storage = storage
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, or its backup if the file is damaged.

        Raises:
            StoreError: both are damaged.
        """
        backup = self._path.with_name(self._path.name + ".bak")
        for path in (self._path, backup):
            try:
                data = self._storage.read(path)
                if data:
                    self._table = java_json.decode_as(data, _File).config_table
                    return
            except (ValueError, OSError) as error:
                if path == backup:
                    raise StoreError(f"neither {self._path} nor {backup} can be read") from error
                logger.warning(
                    "key-value file damaged, using the backup path=%s backup=%s reason=%s",
                    path,
                    backup,
                    error,
                )

    def get(self, namespace: str, key: str) -> str | None:
        """Return the text of a key, or None if the key is unknown."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """Return a namespace as key -> text, empty if it is unknown."""
        return dict(self._table.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a text; it is durable when this returns.

        Raises:
            RequestRefusedError: the entry is too long, the table is full, or the write fails.
        """
        if max(len(namespace.encode()), len(key.encode()), len(value.encode())) > TEXT_BYTES_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"a namespace, key or value has more than {TEXT_BYTES_MAX} bytes",
            )
        texts = self._table.get(namespace, {})
        if key not in texts and sum(map(len, self._table.values())) >= ENTRIES_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the table is full: {ENTRIES_MAX} entries"
            )
        table = {**self._table, namespace: {**texts, key: value}}
        size = sum(
            len(text.encode())
            for name, texts in table.items()
            for text in (name, *texts, *texts.values())
        )
        if size > TABLE_BYTES_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the table is full: it may have {TABLE_BYTES_MAX} bytes"
            )
        self._write(table)

    def delete(self, namespace: str, key: str) -> None:
        """Delete an entry, if it exists.

        Raises:
            RequestRefusedError: the write fails.
        """
        texts = self._table.get(namespace, {})
        if key in texts:
            left = {name: text for name, text in texts.items() if name != key}
            self._write({**self._table, namespace: left})

    def _write(self, table: dict[str, dict[str, str]]) -> None:
        data = java_json.encode_pretty({"configTable": table})
        try:
            self._storage.make_directory(self._path.parent)
            self._storage.write_atomically(self._path, data, keep_backup=True)
        except OSError as error:
            logger.exception("key-value file not written path=%s", self._path)
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the entry cannot be stored: {error.strerror}"
            ) from error
        self._table = table
