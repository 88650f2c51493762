"""Run a program whose clock tests can step: `python -m tests.support.stepped_clock FILE MODULE …`.

FILE holds how many nanoseconds the program's wall clock is ahead, a signed decimal number, which
is read on every call of the clock. The monotonic clock is the machine's.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

LOOK_EVERY_NS = 10_000_000


class SteppedTime:
    """Wall time plus the offset in a file."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_RDONLY)
        self._wall_ns = time.time_ns
        self._monotonic_ns = time.monotonic_ns
        self._looked_ns = 0
        self._ahead_ns = 0

    def time_ns(self) -> int:
        now_ns = self._monotonic_ns()
        if now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._looked_ns = now_ns
            self._ahead_ns = int(os.pread(self._descriptor, 32, 0) or b"0")
        return self._wall_ns() + self._ahead_ns

    def time(self) -> float:
        return self.time_ns() / 1e9


def step(file: Path, seconds: float) -> None:
    """Set how far the clock is ahead; negative: behind."""
    # A fixed length, so that readers never see a partial number.
    file.write_text(f"{round(seconds * 1e9):+025d}")


def main() -> None:
    stepped = SteppedTime(Path(sys.argv[1]))
    time.time_ns = stepped.time_ns
    setattr(time, "time", stepped.time)  # noqa: B010
    module = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
