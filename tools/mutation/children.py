"""Children: forked copies of this process that each run one trial, with a time limit."""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tools.mutation.mutants import Mutant

DATA_BYTES_MAX = 3 << 30
FILE_BYTES_MAX = 4 << 30
"""A mutant that allocates or writes without end is stopped before the machine is full."""
MESSAGE_BYTES_MAX = 4096
PASSED, FAILED, BROKEN = 0, 1, 2


class Trial(NamedTuple):
    """A child's task: return None, or the failed test."""

    mutant: Mutant
    run: Callable[[], str | None]
    seconds_max: float
    processor_seconds_max: int


class Ended(NamedTuple):
    """How a child ended; `outcome` is killed, survived, timeout or broken."""

    mutant: Mutant
    outcome: str
    message: str
    seconds: float


@dataclass
class _Child:
    trial: Trial
    pid: int
    pipe: int
    directory: str
    began: float = field(default_factory=time.monotonic)


def run_all(trials: Iterable[Trial], together: int) -> Iterator[Ended]:
    """Run `jobs` trials at a time; yield them as they end."""
    waiting = iter(trials)
    running: list[_Child] = []
    exhausted = False
    try:
        while running or not exhausted:
            while not exhausted and len(running) < together:
                trial = next(waiting, None)
                if trial is None:
                    exhausted = True
                else:
                    running.append(_start(trial))
            for child in _ended(running):
                running.remove(child)
                yield _end(child)
    finally:
        for child in running:
            _end(child)


def _start(trial: Trial) -> _Child:
    directory = tempfile.mkdtemp(prefix="mutant-")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _be_a_child(directory, trial.processor_seconds_max)
            failed = trial.run()
            os.write(writing, (failed or "").encode()[:MESSAGE_BYTES_MAX])
            os._exit(PASSED if failed is None else FAILED)
        except BaseException as error:  # noqa: BLE001 - the parent's stack must not continue here
            os.write(writing, repr(error).encode()[:MESSAGE_BYTES_MAX])
            os._exit(BROKEN)
    os.close(writing)
    return _Child(trial, pid, reading, directory)


def _be_a_child(directory: str, processor_seconds_max: int) -> None:
    """Leave the parent's process group, output and temporary files."""
    os.setsid()
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(quiet, stream)
    tempfile.tempdir = directory
    # pytest creates its folders there.
    os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = directory
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds_max, processor_seconds_max + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))


def _ended(running: list[_Child]) -> list[_Child]:
    """Wait until a child has reported its outcome or timed out; return these children."""
    if not running:
        return []
    now = time.monotonic()
    first = min(child.began + child.trial.seconds_max for child in running)
    with selectors.DefaultSelector() as selector:
        for child in running:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        ended = [key.data for key, _ in selector.select(max(0.0, first - now))]
    now = time.monotonic()
    late = [child for child in running if now >= child.began + child.trial.seconds_max]
    return ended + [child for child in late if child not in ended]


def _end(child: _Child) -> Ended:
    seconds = time.monotonic() - child.began
    is_late = seconds >= child.trial.seconds_max
    message = b"" if is_late else os.read(child.pipe, MESSAGE_BYTES_MAX)
    # Kill its descendants, too.
    if is_late or _is_alive(child.pid):
        _kill_group(child.pid)
    _, status = os.waitpid(child.pid, 0)
    _kill_group(child.pid)
    os.close(child.pipe)
    shutil.rmtree(Path(child.directory), ignore_errors=True)
    return Ended(child.trial.mutant, _outcome(status, is_late=is_late), message.decode(), seconds)


def _is_alive(pid: int) -> bool:
    """Wait a moment for a child that has reported its outcome."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            return False
        time.sleep(0.005)
    return True


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _outcome(status: int, *, is_late: bool) -> str:
    if is_late:
        return "timeout"
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGXCPU else "killed"
    match os.waitstatus_to_exitcode(status):
        case 0:
            return "survived"
        case 1:
            return "killed"
        case _:
            return "broken"
