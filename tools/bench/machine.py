"""Measure the CPU time of processes, and pin them to processors."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def thread_nanoseconds(pid: int) -> dict[tuple[int, str], int]:
    """Return the CPU time of each thread of a process."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end during the loop.
        with contextlib.suppress(OSError):
            text = (task / "schedstat").read_text()
            found[pid, task.name] = int(text.split()[0])
    return found


def processor_seconds(pid: int) -> float:
    """Return the CPU time of a process's threads."""
    return sum(thread_nanoseconds(pid).values()) / 1e9


def pin(pid: int, processors: Collection[int]) -> None:
    """Pin all current and future threads of a process to these processors."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), processors)
