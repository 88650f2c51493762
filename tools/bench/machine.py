"""Measures the processor time of processes, and pins them to processors."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def thread_nanoseconds(pid: int) -> dict[tuple[int, str], int]:
    """Return the processor time of each thread of a process."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while we look.
        with contextlib.suppress(OSError):
            text = (task / "schedstat").read_text()
            found[pid, task.name] = int(text.split()[0])
    return found


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process's threads."""
    return sum(thread_nanoseconds(pid).values()) / 1e9


def pin(pid: int, processors: Collection[int]) -> None:
    """Have all threads of a process, and those that it will start, run on these processors."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), processors)
