"""What a measurement ran on: figures mean nothing without it."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.broker_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Collection


def about() -> dict[str, str]:
    """Return the machine, the Python and the commit."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _said("git", "rev-parse", "--short=10", "HEAD") or "unknown",
        "python": f"{platform.python_version()}, {_build()}",
        "java": (_said("java", "-version").splitlines() or ["none"])[0],
        "processor": f"{_model()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB",
        "kernel": platform.release(),
    }


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


def _build() -> str:
    if "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS")):
        return "built with optimization"
    # Distributions optimize in their own ways, which the configuration does not tell.
    is_packaged = sys.base_prefix == "/usr"
    return "the distribution's" if is_packaged else "built without optimization"


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip()
