"""The kernel's statistics of this process: threads, disk reads, memory.

A major fault reads a mapped page that wasn't resident, so a thread waited for the disk. The kernel
counts major faults anyway; reads cost nothing extra. Source: proc(5).
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_core.storage import Storage

TASKS = Path("/proc/self/task")
IO, STATUS, MEMINFO = Path("/proc/self/io"), Path("/proc/self/status"), Path("/proc/meminfo")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
THREADS_MAX = 500
# Fields of a thread's stat, counted from the state.
STATE, MAJOR_FAULTS, USER_TICKS, SYSTEM_TICKS = 0, 9, 11, 12
NUMBER = re.compile(r"^(\w+):\s+(\d+)(?: kB)?$", re.MULTILINE)


def threads(files: Storage) -> list[dict[str, Any]]:
    """Return this process's threads by CPU time, busiest first."""
    names = {each.native_id: each.name for each in threading.enumerate()}
    found = []
    for text in files.list_directory(TASKS)[:THREADS_MAX]:
        stat = _read(files, TASKS / text / "stat")
        if stat is None:
            continue
        comm, _bracket, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
        found.append(
            {
                "id": int(text),
                # The kernel shows Python's threads under the program's name.
                "name": names.get(int(text), comm),
                "state": fields[STATE],
                "cpuMs": ticks * 1000 // TICKS_A_SECOND,
                "majorFaults": int(fields[MAJOR_FAULTS]),
            }
        )
    return sorted(found, key=lambda each: (-each["cpuMs"], each["id"]))


def reads_and_memory(files: Storage) -> dict[str, int | None]:
    """Return disk reads since the start, and how much of the files is in memory."""
    io, status, machine = (_numbers(files, path) for path in (IO, STATUS, MEMINFO))
    return {
        "diskReadBytes": io.get("read_bytes"),
        "mappedResidentBytes": _bytes(status.get("RssFile")),
        "pageCacheBytes": _bytes(machine.get("Cached")),
        "memoryBytes": _bytes(machine.get("MemTotal")),
        "availableBytes": _bytes(machine.get("MemAvailable")),
    }


def _numbers(files: Storage, path: Path) -> dict[str, int]:
    return {name: int(number) for name, number in NUMBER.findall(_read(files, path) or "")}


def _bytes(kib: int | None) -> int | None:
    return None if kib is None else kib * 1024


def _read(files: Storage, path: Path) -> str | None:
    try:
        found = files.read(path)
    except OSError:  # the thread has ended, or the kernel withholds the file
        return None
    return None if found is None else found.decode(errors="replace")
