"""Kill the process at the n-th system call of a kind, or fail the call, for every n.

SQLite tests I/O errors this way: n grows until a run ends without meeting the fault.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.faults.kill import ROOT, Findings as Killed, check
from tools.faults.writer import LOG_FILE_SIZE_OF_BOUNDED, POOLED

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = 12
RUN_SECONDS = 60
FAULTS = (
    ("fdatasync", "signal=SIGKILL"),
    ("fallocate", "signal=SIGKILL"),
    ("rename", "signal=SIGKILL"),
    ("unlink", "signal=SIGKILL"),
    ("fsync", "signal=SIGKILL"),
    ("fdatasync", "error=EIO"),
    ("fallocate", "error=ENOSPC"),
    ("fallocate", "error=EIO"),
    ("fsync", "error=EIO"),
    ("pwrite64", "signal=SIGKILL"),
)
MODES = {"pwrite64": POOLED}
"""SYNC_FLUSH for other calls; only buffers are written with this one."""


@dataclass
class Findings:
    """The results of all points."""

    points: int = 0
    completed: list[str] = field(default_factory=list)
    """Faults whose every n was tried."""
    wrong: list[str] = field(default_factory=list)


def missing() -> str:
    """Return the missing prerequisites for failing system calls, or an empty string."""
    if shutil.which("strace") is None:
        return "strace (apt-get install strace)"
    trial = subprocess.run(["strace", "-qq", "true"], capture_output=True, check=False)
    return "" if trial.returncode == 0 else "permission to trace processes"


def run(directory: Path, points_max: int | None) -> Findings:
    """Try all faults, at most points_max points of each."""
    findings = Findings()
    for call, effect in FAULTS:
        nth = 0
        while points_max is None or nth < points_max:
            nth += 1
            if _is_through(directory / f"{call}-{nth}", call, effect, nth, findings):
                findings.completed.append(f"{call} {effect}: {nth - 1}")
                break
            findings.points += 1
    return findings


def _is_through(directory: Path, call: str, effect: str, nth: int, findings: Findings) -> bool:
    """Run once and verify the store; return whether the run ended before its fault."""
    directory.mkdir()
    trace = directory / "trace"
    store = directory / "store"
    mode = MODES.get(call, "SYNC_FLUSH")
    finished = subprocess.run(
        [
            *("strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}"),
            *("-e", f"inject={call}:{effect}:when={nth}"),
            *(sys.executable, "-m", "tools.faults.writer", str(store), mode, "0"),
            str(GROUPS),
        ],
        cwd=ROOT,
        capture_output=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    what = f"{call} {effect} {nth}"
    lines = finished.stdout.decode().split("\n")[:-1]
    if any(line.startswith("acknowledged") for line in lines):
        findings.wrong.append(f"{what}: acknowledged after a failed flush")
    promised = {
        (int(line.split()[1]), int(line.split()[2])): int(line.split()[0])
        for line in lines
        if line[:1].isdigit()
    }
    met = finished.returncode == -signal.SIGKILL or "INJECTED" in trace.read_text()
    if store.exists():
        seen = Killed()
        check(store, mode, promised, seen, LOG_FILE_SIZE_OF_BOUNDED)
        findings.wrong += [f"{what}: {one}" for one in seen.wrong]
    if not met and lines[-1:] != ["done"]:
        findings.wrong.append(f"{what}: exited unexpectedly: {finished.stderr.decode()[-500:]}")
    shutil.rmtree(directory)
    return not met
