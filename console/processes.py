"""Identity and resource usage of processes; the start time distinguishes reused PIDs."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal

APPLIANCE = {
    "broker": "broker_core",
    "web": "console.serving",
    "collector": "collect",
    "pipeline": "console.data.pipeline",
    "worker": "worker",
    "beat": "beat",
}
"""The supervisor's processes, by the prefix of a word in their command line, in addition to Redis.
"""
WITH_CHILDREN = "pipeline"
"""The usage of this process includes its own child processes, such as Spark's."""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Indexes of fields in /proc/PID/stat, counted from the state.
SESSION_FIELD, RESIDENT_FIELD = 3, 21


def identity(pid: int) -> dict[str, Any] | None:
    """Return values that distinguish a process from a later one with its PID, or None if it has
    ended.
    """
    started = start_ticks(pid)
    return None if started is None else {"host": socket.gethostname(), "pid": pid, "ticks": started}


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot, or None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may contain spaces; the state and, as 20th, the start time follow it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_running(process: dict[str, Any] | None) -> bool:
    """Return whether the process with this `identity` is still running on this host."""
    if not process or process.get("host") != socket.gethostname():
        return False
    ticks: int = process.get("ticks", -1)
    return start_ticks(int(process.get("pid", 0))) == ticks


def signal_group(process: dict[str, Any] | None, number: signal.Signals) -> None:
    """Send a signal to the process group that this process leads, if it is still running."""
    if process and is_running(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(process["pid"]), number)


def memory_of_session(session: int) -> int:
    """Return the resident bytes of all processes in a session; shared memory counts for each."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[SESSION_FIELD]) == session:
            pages += int(fields[RESIDENT_FIELD])
    return pages * PAGE_BYTES


def used_by_appliance() -> dict[str, dict[str, int]]:
    """Return the usage of the appliance's processes by name: cpu_ms, rss in bytes, start ticks.

    They are the children of the supervisor that started this process. Without a supervisor, only
    this process is included.
    """
    parent = os.getppid()
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return {}
    found = {}
    for pid in children:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue
        name = next(
            (
                name
                for name, word in APPLIANCE.items()
                if any(each == word or each.startswith(f"{word}.") for each in arguments)
            ),
            None,
        )
        if name is None and Path(arguments[0]).name.startswith("redis"):
            name = "redis"
        if name is not None:
            found[name] = {
                "cpu_ms": (int(fields[11]) + int(fields[12])) * 1000 // TICKS_A_SECOND,
                "rss": int(fields[21]) * PAGE_BYTES,
                "ticks": int(fields[19]),
            }
        if name == WITH_CHILDREN:
            found[name]["rss"] += sum(map(memory_of_session, children_of(int(pid))))
    return found


def children_of(pid: int) -> list[int]:
    """Return the running child processes of a process."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found
