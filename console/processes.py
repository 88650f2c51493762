"""The identity of a process: its pid with its start time, since pids are used again."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal


def identity(pid: int) -> dict[str, Any] | None:
    """Return what tells this process from a later one with the same pid, None when it has ended."""
    started = start_ticks(pid)
    return None if started is None else {"host": socket.gethostname(), "pid": pid, "ticks": started}


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold blanks; after it come the state and, 20th, the start time.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_running(process: dict[str, Any] | None) -> bool:
    """Whether the process that `identity` described still runs, here."""
    if not process or process.get("host") != socket.gethostname():
        return False
    ticks: int = process.get("ticks", -1)
    return start_ticks(int(process.get("pid", 0))) == ticks


def signal_group(process: dict[str, Any] | None, number: signal.Signals) -> None:
    """Send a signal to the process group that this process leads, if it still runs."""
    if process and is_running(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(process["pid"]), number)
