"""The resources of an appliance's processes that a soak measures, and its criterion for level.

A quantity of a process is checked over its longest life between two restarts, in fifths. It's
level when the median of the last fifth exceeds that of the second one by at most LEVEL_PART or the
slack of its kind; the first fifth is warm-up. The disk is checked over the whole run, as bytes per
acknowledged message.

A broker holds a descriptor of each file of its log and index until the file expires, as RocketMQ
does, and of queue files. So one descriptor for each file in the store is counted separately: their
number grows with the disk. A second one of the same file, or one of a deleted file, counts as an
ordinary descriptor.
"""

from __future__ import annotations

import os
import statistics
import urllib.request
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support import processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEVEL_PART = 0.05
MEMORY, DESCRIPTORS, THREADS, TASKS, DISK = "memory", "descriptors", "threads", "tasks", "disk"
STORE_FILES = "store files"
MIB = 1 << 20
SLACKS = {MEMORY: 4.0 * MIB, DESCRIPTORS: 4.0, THREADS: 2.0, TASKS: 4.0}
"""A rise that isn't a trend: one more connection, a page of an allocator."""
FIFTHS = 5
POINTS_MIN = 10
DISK_SLACK_BYTES = 16.0 * MIB
"""Files are allocated whole; a smaller rise of a fifth of a run isn't a trend."""
METRIC = "trebuchet_tasks"
ANSWER_SECONDS = 10.0
BLOCK_BYTES = 512
"""The kernel's unit for block counts, regardless of the disk's block size."""


class Point(NamedTuple):
    """A value at a time, in seconds since the start."""

    at: float
    value: float


@dataclass
class Life:
    """A process from its start to its end: the program's `name`, and the measurements."""

    name: str
    pid: int
    series: defaultdict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))

    @property
    def seconds(self) -> float:
        ends = [points[-1].at - points[0].at for points in self.series.values()]
        return max(ends, default=0.0)


class Verdict(NamedTuple):
    """The verdict on a quantity of a program."""

    name: str
    what: str
    second: float
    last: float
    seconds: float
    is_level: bool

    def __str__(self) -> str:
        word = "level" if self.is_level else "NOT LEVEL"
        shown = [_shown(self.what, value) for value in (self.second, self.last)]
        return (
            f"{self.name} {self.what}: {shown[0]} in the second fifth, {shown[1]} in the last, "
            f"of {self.seconds / 60:.1f} min: {word}"
        )


def _shown(what: str, value: float) -> str:
    match what:
        case "memory":
            return f"{value / MIB:.1f} MiB"
        case "disk":
            return f"{value:,.0f} bytes a message"
        case _:
            return f"{value:,.0f}"


class Lives:
    """All processes of a run by program, the newest last. `store`: the store's directory."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.by_name: defaultdict[str, list[Life]] = defaultdict(list)

    def note(
        self, at: float, pids: Mapping[str, Sequence[int]], tasks: float | None
    ) -> dict[str, float]:
        """Measure each program's processes, its main one first; return the measurements.

        `tasks` are those of the broker's loop, or None if it doesn't answer.
        """
        found = {}
        for name, (pid, *below) in pids.items():
            lives = self.by_name[name]
            if not lives or lives[-1].pid != pid:
                lives.append(Life(name, pid))
            seen = process_usage(self._store, pid, *below)
            if name == "broker" and tasks is not None:
                seen[TASKS] = tasks
            for what, value in seen.items():
                lives[-1].series[what].append(Point(at, value))
                found[f"{name} {what}"] = value
        return found

    def verdicts(self) -> list[Verdict]:
        """Return the verdict on each quantity of each program, over its longest life."""
        found = []
        for name, lives in sorted(self.by_name.items()):
            longest = max(lives, key=lambda one: one.seconds)
            for what, points in sorted(longest.series.items()):
                if what in SLACKS:
                    found += verdict_of(name, what, points)
        return found


def verdict_of(name: str, what: str, points: Sequence[Point]) -> list[Verdict]:
    """Return the verdict on a series, or None if it's too short."""
    if len(points) < POINTS_MIN:
        return []
    second, last = (statistics.median(one.value for one in fifth(points, n)) for n in (1, 4))
    is_level = last - second <= max(SLACKS[what], LEVEL_PART * second)
    return [Verdict(name, what, second, last, points[-1].at - points[0].at, is_level)]


def fifth(points: Sequence[Point], number: int) -> Sequence[Point]:
    """Return a fifth of a series by time, from 0; the nearest point if it's empty."""
    began, ended = points[0].at, points[-1].at
    low = began + (ended - began) * number / FIFTHS
    high = began + (ended - began) * (number + 1) / FIFTHS
    inside = [one for one in points if low <= one.at <= high]
    return inside or [min(points, key=lambda one: abs(one.at - low))]


def disk_verdict(used: Sequence[Point], acknowledged: Sequence[Point]) -> list[Verdict]:
    """Return whether a message takes as much disk late in a run as early in it."""
    if len(used) < POINTS_MIN:
        return []
    parts = []
    rises = []
    for number in (1, 4):
        rise = _rise(fifth(used, number))
        messages = _rise(fifth(acknowledged, number))
        rises.append(rise)
        parts.append(rise / messages if messages else 0.0)
    second, last = parts
    is_level = last <= second * (1 + LEVEL_PART) or rises[1] - rises[0] <= DISK_SLACK_BYTES
    return [Verdict("appliance", DISK, second, last, used[-1].at - used[0].at, is_level)]


def _rise(points: Sequence[Point]) -> float:
    return points[-1].value - points[0].value


def process_usage(store: Path, *pids: int) -> dict[str, float]:
    """Return the total private memory, descriptors and threads of processes.

    One descriptor per process and file below `store` counts as STORE_FILES.
    """
    memory = descriptors = store_files = threads = 0
    for each in pids:
        status = processes.status_of(each)
        if "RssAnon" not in status:
            continue
        memory += int(status["RssAnon"].split()[0]) * 1024
        threads += int(status["Threads"])
        with suppress(OSError):
            targets = processes.open_descriptors(each)
            files = {one for one in targets if one.is_relative_to(store) and one.is_file()}
            store_files += len(files)
            descriptors += len(targets) - len(files)
    if not memory:
        return {}
    return {
        MEMORY: memory,
        DESCRIPTORS: descriptors,
        STORE_FILES: store_files,
        THREADS: threads,
    }


def tasks_of(port: int) -> float | None:
    """Return the number of tasks of the broker's loop, by its metrics; None if it's down."""
    with suppress(OSError):
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(METRIC):
                    return float(line.split()[-1])
    return None


def disk_of(directory: Path) -> dict[str, int]:
    """Return the bytes that each entry of a directory occupies on the disk."""
    return {each.name: _occupied(each) for each in sorted(directory.iterdir())}


def _occupied(place: Path) -> int:
    total = 0
    # Files and folders may disappear; those are left out.
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                total += os.lstat(Path(folder) / name).st_blocks * BLOCK_BYTES
    with suppress(OSError):
        total += os.lstat(place).st_blocks * BLOCK_BYTES
    return total
