"""The lock that keeps a second broker, Trebuchet or RocketMQ, out of a store directory.

Source: store/DefaultMessageStore.java start (4.9.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.storage import Storage, StorageFile


def acquire_lock(path: Path, storage: Storage) -> StorageFile:
    """Return the locked file; the lock is held until it is closed.

    Raises:
        StoreError: another process holds it.
    """
    file = storage.open(path, create=True)
    if not file.try_lock():
        file.close()
        raise StoreError(f"the store directory {path.parent} is in use by another process")
    file.pwrite(0, b"lock")
    return file
