"""The pipeline's program, `python -m analytics serve`, measured while it runs jobs.

All its processes (Python, Java, Python workers) are in one session of the operating system. The
program is pinned to one processor, as in an appliance, so its CPU time is the duration of a job on
an otherwise idle machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from analytics.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
CHECK_SECONDS = 0.2
# Fields of /proc/PID/stat, counted from the state.
_SESSION, _TICKS = 3, slice(11, 15)


@dataclass(frozen=True, slots=True)
class Done:
    """A job: its last event, its wall time and CPU time."""

    event: dict[str, Any]
    seconds: float
    processor_seconds: float


class Served:
    """A running program; the end of the block ends all its processes.

    Attributes:
        memory_max: the peak memory of all its processes together, counting shared pages once.
    """

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self.memory_max = 0
        self._began = time.perf_counter()
        self._used = 0.0
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "analytics", "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        threading.Thread(target=self._watch_memory, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()

    def job(self, *words: object) -> Done:
        """Run a job; CPU time since the previous job's end, or the start, is included.

        Raises:
            ReportError: the job failed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        begun = self._began or time.perf_counter()
        self._process.stdin.write(json.dumps({"job": [*map(str, words)]}).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] in ("done", "failed"):
                break
        else:
            raise ReportError(f"the pipeline ended during {words[:2]}")
        if event["event"] == "failed":
            raise ReportError(f"{words[:2]} failed: {event['message']}")
        seconds, used = time.perf_counter() - begun, self._processor_seconds()
        self._began, self._used, before = 0.0, used, self._used
        return Done(event, seconds, used - before)

    def end_in_order(self) -> None:
        """Let an idle program exit on its own, which makes the next start faster."""
        assert self._process.stdin is not None
        time.sleep(CHECK_SECONDS)  # a job's last event comes before its end
        self._process.stdin.close()
        self._process.wait()

    def _processor_seconds(self) -> float:
        ticks = sum(sum(map(int, fields[_TICKS])) for _, fields in self._processes())
        return ticks / TICKS_A_SECOND

    def _processes(self) -> list[tuple[Path, list[str]]]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if int(fields[_SESSION]) == self._process.pid:
                    found.append((path, fields))
        return found

    def _watch_memory(self) -> None:
        while self._process.poll() is None:
            self.memory_max = max(self.memory_max, sum(pss(path) for path, _ in self._processes()))
            time.sleep(CHECK_SECONDS)


def pids_of(word: str) -> set[int]:
    """Return the processes with a word in their command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (path / "cmdline").read_bytes():
                found.add(int(path.name))
    return found


def processor_seconds_below(roots: set[int]) -> dict[int, float]:
    """Return the CPU time of each process, including its children."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            pid = int(path.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[_TICKS]))
    found = dict.fromkeys(roots, 0.0)
    for pid, used in ticks.items():
        above = pid
        while above in parents and above not in found:
            above = parents[above]
        if above in found:
            found[above] += used / TICKS_A_SECOND
    return found


def pss(process: Path) -> int:
    """Return the memory of a process in bytes, with its share of shared pages (PSS)."""
    with suppress(OSError, StopIteration):
        lines = (process / "smaps_rollup").read_text().splitlines()
        line = next(line for line in lines if line.startswith("Pss:"))
        return int(line.split()[1]) * 1024
    return 0
