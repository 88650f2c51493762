"""Make system calls of a running process fail or hang, with strace."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def injected(pid: int, call: str, fault: str, trace: Path) -> Iterator[None]:
    """Inject a fault (strace syntax) into every such call of a process; `trace` is the log."""
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:{fault}", "-p", str(pid)]
    with subprocess.Popen(command) as strace:
        try:
            until(lambda: _is_traced(pid), "strace to hold every thread")
            yield
        finally:
            strace.terminate()


def _is_traced(pid: int) -> bool:
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return all("TracerPid:\t0\n" not in state for state in states)
