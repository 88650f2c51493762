"""Follows the end of a log file as it grows and rotates."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING

from broker_core.log_lines import escape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ_BYTES_MAX = 1 << 20
LINE_BYTES_MAX = 1 << 16


class LogFollower:
    """Yields complete lines written since it was created. Use from one thread.

    Not all processes that write them are ours: lines are escaped, tabs become spaces.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = self._open()
        self._partial = b""
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def lines(self) -> Iterator[str]:
        """Yield the lines completed since the last call."""
        if self._file is None:
            self._file = self._open()
            if self._file is None:
                return
        yield from self._read(self._file)
        if self._was_rotated(self._file):
            # The old file may have lines written between the read above and its renaming.
            yield from self._read(self._file)
            self._file.close()
            self._file = self._open()
            if self._file is not None:
                yield from self._read(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes] | None:
        try:
            return self._path.open("rb")
        except OSError:
            return None  # missing or unreadable; try again later

    def _read(self, file: IO[bytes]) -> Iterator[str]:
        while data := file.read(READ_BYTES_MAX):
            *whole, self._partial = (self._partial + data).split(b"\n")
            for line in whole:
                yield _shown(line.rstrip(b"\r"))
            if len(self._partial) > LINE_BYTES_MAX:
                yield _shown(self._partial)
                self._partial = b""

    def _was_rotated(self, file: IO[bytes]) -> bool:
        try:
            current = self._path.stat()
        except FileNotFoundError:
            return True
        opened = os.fstat(file.fileno())
        return (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino)


def _shown(line: bytes) -> str:
    return escape(line.decode(errors="replace").expandtabs())
