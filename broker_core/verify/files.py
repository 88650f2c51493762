"""Present consecutive files of one size as one range of bytes."""

from __future__ import annotations

import mmap
import os
import re
from typing import TYPE_CHECKING

from broker_core.formats.paths import may_be_offset_file

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.verify.report import Report


class Files:
    """Consecutive files of one size as one range of bytes."""

    def __init__(self, directory: Path, report: Report) -> None:
        self.size = 0
        self.maps: dict[int, mmap.mmap | bytes] = {}
        self.paths: dict[int, Path] = {}
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if not may_be_offset_file(path.name):
                report.ignore(path)
                continue
            if not re.fullmatch(r"[0-9]{20}", path.name) or not path.is_file():
                report.add(path, "is not a file of this directory, but its name resembles one")
                continue
            try:
                opened = path.open("rb")
            except FileNotFoundError:
                continue  # it expired during the check
            with opened as file:
                size = os.fstat(file.fileno()).st_size
                if size == 0:
                    if report.clean_exit:
                        report.add(path, "is empty")
                    continue
                self.size = self.size or size
                if size != self.size:
                    report.add(path, f"has {size} bytes, the other files have {self.size}")
                    continue
                start = int(path.name)
                if self.maps and start != max(self.maps) + size:
                    report.add(path, "the file before this one is missing")
                self.maps[start] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.paths[start] = path

    def at(self, offset: int) -> tuple[mmap.mmap | bytes, int, Path] | None:
        """Return an offset's location: (bytes of the file, position in it, path)."""
        if not self.size or offset < 0:
            return None
        first = min(self.maps)
        start = first + (offset - first) // self.size * self.size
        found = self.maps.get(start)
        return None if found is None else (found, offset - start, self.paths[start])
