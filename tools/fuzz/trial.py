"""Trial: run inputs in a target, one after another, and keep statistics.

An uncaught error ends the trial. A run that takes more than 100 ms of CPU time is recorded as slow;
a separate process checks whether it's slow without the fuzzer's instrumentation. A run that takes
seconds is interrupted, and ends the trial.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import signal
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tools.fuzz.mutation import grown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tools.fuzz.target import Target

STALL_S = 0.1
ENDLESS_S = 10.0
TICK_S = 1.0
GROWN_EVERY = 500
"""One in this many inputs is run a second time, grown."""
SLOW_KEPT = 8
REPORT_EVERY_S = 2.0
FIRST_SHARE = 0.1
"""After this share of the runs all one-time allocations are done, and memory must stay level."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class EndlessRunError(BaseException):
    """A run took ENDLESS_S of CPU time; not an Exception, so that no handler stops it."""


class TrialOverError(BaseException):
    """All runs are done, or one failed."""


class Trial:
    """The runs of one target in this process.

    Attributes:
        done: the number of runs.
        wrong: the traceback of the failed run, or None.
        slow: seconds and input of the slowest runs above STALL_S.
    """

    def __init__(
        self,
        target: Target,
        found: Path,
        report: Path | None = None,
        *,
        runs: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self.done = 0
        self.wrong: str | None = None
        self.wrong_input: Path | None = None
        self.slow: list[tuple[float, Path]] = []
        self.worst_s = 0.0
        self._target = target
        self._found = found
        self._report = report
        self._runs = runs
        self._began = time.monotonic()
        self._until = None if seconds is None else self._began + seconds
        self._reported = self._began
        self._first_bytes = 0
        self._run_began = 0.0

    def give(self, data: bytes) -> None:
        """Run the target with an input, sometimes also with a longer one made from it.

        Raises:
            TrialOverError: this was the last one.
        """
        self._run(data)
        if self.done % GROWN_EVERY == 0:
            self._run(grown(data, self._target.grown_bytes))
        now = time.monotonic()
        share = 0.0 if self._runs is None else self.done / self._runs
        if self._until is not None:
            passed = (now - self._began) / (self._until - self._began)
            share = max(share, passed)
        if not self._first_bytes and share >= FIRST_SHARE:
            self._first_bytes = resident_bytes()
        if share >= 1:
            self._write_report(is_over=True)
            raise TrialOverError
        if now - self._reported > REPORT_EVERY_S:
            self._reported = now
            self._write_report()

    def _run(self, data: bytes) -> None:
        self.done += 1
        began = self._run_began = time.process_time()
        try:
            self._target.run(data)
        except (Exception, EndlessRunError):  # noqa: BLE001  any error is a finding
            self._run_began = 0.0
            self.wrong = traceback.format_exc()
            self.wrong_input = save_input(self._found / self._target.name, data)
            self._write_report(is_over=True)
            raise TrialOverError from None
        took = time.process_time() - began
        self._run_began = 0.0
        self.worst_s = max(self.worst_s, took)
        if took > STALL_S:
            self._note_slow(took, data)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Interrupt an endless run."""
        before = signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def _tick(self, _: int, __: FrameType | None) -> None:
        began = self._run_began
        if began and time.process_time() - began > ENDLESS_S:
            raise EndlessRunError(f"it was still running after {ENDLESS_S:g} s of CPU time")

    def _note_slow(self, took: float, data: bytes) -> None:
        if len(self.slow) < SLOW_KEPT or took > self.slow[-1][0]:
            self.slow.append((took, save_input(self._found / self._target.name, data)))
            self.slow.sort(reverse=True)
            for _, path in self.slow[SLOW_KEPT:]:
                path.unlink(missing_ok=True)
            del self.slow[SLOW_KEPT:]

    def _write_report(self, *, is_over: bool = False) -> None:
        if self._report is None:
            return
        if is_over:
            gc.collect()
        content = {
            "done": self.done,
            "seconds": time.monotonic() - self._began,
            "worst_s": self.worst_s,
            "first_bytes": self._first_bytes,
            "bytes": resident_bytes(),
            "wrong": self.wrong,
            "wrong_input": None if self.wrong_input is None else str(self.wrong_input),
            "slow": [[took, str(path)] for took, path in self.slow],
            "is_over": is_over,
        }
        fresh = self._report.with_suffix(".fresh")
        fresh.write_text(json.dumps(content))
        fresh.rename(self._report)


def save_input(directory: Path, data: bytes) -> Path:
    """Save an input in a file named after its content; return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / hashlib.sha1(data, usedforsecurity=False).hexdigest()[:16]
    path.write_bytes(data)
    return path


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
