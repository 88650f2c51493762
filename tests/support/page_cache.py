"""Drop a closed store's files from the kernel's page cache."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def forget(store: Path) -> None:
    """Remove the files of a store from the page cache."""
    os.sync()
    for path in store.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
