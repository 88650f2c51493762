"""Unpack archives of recorded stores on every Python version that the suite supports."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def unpack(archive: Path, directory: Path) -> None:
    """Unpack one of our own archives; Debian 12's Python 3.11.2 has no extraction filters."""
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(directory, filter="data")
        else:
            packed.extractall(directory)
