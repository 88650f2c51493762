"""The gate's steps: commands that run alone or in parallel, with a time limit.

A single step writes to the terminal; each line of parallel steps begins with the step's name. A
step that takes too long is interrupted, so that pytest stops its processes, and killed with its
process group if that isn't enough.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from deploy.install.virtualenv import ROOT
from deploy.terminal.output import labelled, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NO_TESTS_COLLECTED = 5
TOOK_TOO_LONG = 124
"""The exit code of a step that took too long, as in timeout(1)."""
PARALLEL_MAX = 5
"""Steps that keep two cores busy and leave tests enough time for what they wait for."""
INTERRUPTED_SECONDS_MAX = 60
"""How long a step may take to end after an interrupt."""
COPIED_SECONDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the gate; a pytest run leaves a report."""

    name: str
    command: Sequence[str]
    report: Path | None = None
    seconds_max: float = 900


def run(steps: Sequence[Step]) -> dict[str, int]:
    """Run steps in parallel, at most PARALLEL_MAX; return the exit codes of failed ones, by name.

    They start in their order, each as soon as there is room. Main thread only: a shell that starts
    us in the background ignores SIGINT, and so would all our processes.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _run(steps)
    finally:
        signal.signal(signal.SIGINT, before)


def _run(steps: Sequence[Step]) -> dict[str, int]:
    running = [Running(step, is_labelled=len(steps) > 1) for step in steps]
    with ThreadPoolExecutor(PARALLEL_MAX) as pool:
        try:
            codes = list(pool.map(Running.run, running))
        except BaseException:
            # Only this thread receives Ctrl-C and SIGTERM.
            for one in running:
                one.interrupt()
            for one in running:
                one.end()
            raise
    return {step.name: code for step, code in zip(steps, codes, strict=True) if code}


class Running:
    """A step and its process, in its own process group."""

    def __init__(self, step: Step, *, is_labelled: bool) -> None:
        self._step = step
        self._is_labelled = is_labelled
        self._process: subprocess.Popen[str] | None = None
        self._is_given_up = False

    def run(self) -> int:
        """Run the step to its end, print how it ended, and return its exit code."""
        step = self._step
        say(f"\n--- {step.name}: {shlex.join(step.command)}")
        if step.report is not None:
            step.report.parent.mkdir(exist_ok=True)
            step.report.unlink(missing_ok=True)
        began = time.monotonic()
        code = self._exit_code()
        if code == NO_TESTS_COLLECTED and step.report is not None:
            say(f"{step.name} failed because no test was collected")
        words = "passed" if code == 0 else f"FAILED (exit code {code})"
        say(f"--- {step.name}: {words} in {time.monotonic() - began:.1f} s")
        return code

    def interrupt(self) -> None:
        """Ask the process to end, as Ctrl-C does."""
        self._is_given_up = True
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Interrupt the process, and kill its whole group if that isn't enough."""
        self.interrupt()
        process = self._process
        if process is None:
            return
        try:
            process.wait(INTERRUPTED_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _exit_code(self) -> int:
        process = self._process = subprocess.Popen(
            self._step.command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._is_labelled else None,
            stderr=subprocess.STDOUT if self._is_labelled else None,
            text=True,
            errors="replace",
            process_group=0,
        )
        if self._is_given_up:
            self.interrupt()
        # A daemon, because a remaining process may hold the pipe open forever.
        copier = threading.Thread(target=self._copy, args=(process.stdout,), daemon=True)
        copier.start()
        try:
            code = process.wait(self._step.seconds_max)
        except subprocess.TimeoutExpired:
            say(f"{self._step.name} interrupted: it took more than {self._step.seconds_max:g} s")
            self.end()
            code = TOOK_TOO_LONG
        copier.join(COPIED_SECONDS_MAX)
        return code

    def _copy(self, output: IO[str] | None) -> None:
        if output is None:
            return
        with output:
            for line in output:
                labelled(self._step.name, line.rstrip("\n"))
