"""Session: the analytics program that keeps Spark warm, and its jobs.

It runs `python -m analytics serve` in a separate process group, started by the first job. It lives
until its Java process dies, a job can't be cancelled in time, or it has been idle for long. One job
at a time; thread-safe.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import threading
from time import monotonic
from typing import TYPE_CHECKING

from django.conf import settings

from broker_core.environment import without_secrets
from console.data.pipeline.lake_status import environment
from console.processes import identity, memory_of_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

LINE_BYTES_MAX = 65_536
CHUNK_BYTES = 65_536
# Cancelled jobs normally end sooner; if not, the session is ended.
GRACE_S = 2.0


class SessionError(Exception):
    """The program can't be started; the text is a sentence."""


class Lines:
    """Splits a byte stream into lines, breaking up lines longer than LINE_BYTES_MAX."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines
        while len(self._rest) > LINE_BYTES_MAX:
            yield self._rest[:LINE_BYTES_MAX]
            self._rest = self._rest[LINE_BYTES_MAX:]

    def end(self) -> Iterator[bytes]:
        if self._rest:
            yield self._rest
        self._rest = b""


class Session:
    """Runs jobs in one process of the analytics program, started on demand.

    Attributes:
        is_busy: whether a job is running.
        is_warm: whether a job has started Spark.
        ended_at: when the last job ended, by the monotonic clock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._selector: selectors.BaseSelector | None = None
        self._lines: dict[int, Lines] = {}
        self._is_ending = False
        self.is_busy = False
        self.is_warm = False
        self.ended_at = monotonic()

    @property
    def pid(self) -> int | None:
        """The program's process ID, or None if it isn't running."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def identity(self) -> dict[str, Any] | None:
        """Return an identity that a later process with the same pid doesn't share."""
        return None if self.pid is None else identity(self.pid)

    def memory(self) -> int:
        """Return the memory in bytes of the program with its Java process and workers."""
        return 0 if self.pid is None else memory_of_session(self.pid)

    @contextlib.contextmanager
    def job(self, command: Sequence[str], words: Sequence[str]) -> Iterator[Session]:
        """Start a job, and the program if needed; the block follows the job to its end.

        If the block raises, the job is cancelled; the program is killed if that takes longer than
        GRACE_S.

        Raises:
            SessionError: the program can't be started.
        """
        with self._lock:
            self.is_busy = True
            try:
                if self.pid is None:
                    self._start(command)
                self._say({"job": list(words)})
                yield self
            except SessionError:
                raise
            except BaseException:
                self._give_up()
                raise
            finally:
                if self._is_ending:
                    # Input for a program that is shutting down would be lost.
                    self.end()
                self.is_busy, self.ended_at = False, monotonic()

    def read(
        self, seconds: float, on_event: Callable[[bytes], None], on_log: Callable[[bytes], None]
    ) -> bool:
        """Handle lines that arrive within some seconds; return whether there were any."""
        process, selector = self._process, self._selector
        assert process is not None
        assert selector is not None
        found = False
        for key, _ in selector.select(timeout=seconds if selector.get_map() else 0):
            data = os.read(key.fd, CHUNK_BYTES)
            lines = self._lines[key.fd]
            take = on_event if key.fileobj is process.stdout else on_log
            for line in lines.feed(data) if data else lines.end():
                self._is_ending |= take is on_event and is_last(line)
                take(line)
            if not data:
                selector.unregister(key.fileobj)
            found |= bool(data)
        return found

    def end(self, *, in_order: bool = False) -> int | None:
        """End the program, which may first write data that speeds up the next start.

        Returns the process group, which ends automatically.
        """
        process, self._process = self._process, None
        self.is_warm = self._is_ending = False
        if process is None:
            return None
        if self._selector is not None:
            self._selector.close()
        if in_order and process.poll() is None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            return process.pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Java can outlive the Python process that started it.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return None

    def _start(self, command: Sequence[str]) -> None:
        self.end()
        try:
            process = subprocess.Popen(
                [*command, "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=settings.BASE_DIR,
                env=without_secrets(environment()),
                start_new_session=True,
            )
        except OSError as error:
            raise SessionError(
                f"The analytics program {command[0]} couldn't be started: {error.strerror}."
            ) from error
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._selector = selectors.DefaultSelector()
        for pipe in (process.stdout, process.stderr):
            self._selector.register(pipe, selectors.EVENT_READ)
            self._lines[pipe.fileno()] = Lines()

    def _say(self, message: dict[str, object]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # If the program has just ended, the code that follows the job notices.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _give_up(self) -> None:
        """Cancel the job and wait for its end; if it doesn't end, end the program."""
        ended: list[bytes] = []

        def on_event(line: bytes) -> None:
            if ends_job(line):
                ended.append(line)

        self._say({"cancel": True})
        give_up = monotonic() + GRACE_S
        while not ended and self.pid is not None and monotonic() < give_up:
            self.read(max(0.0, give_up - monotonic()), on_event, lambda _: None)
        if not ended:
            self.end()


def ends_job(line: bytes) -> bool:
    """Return whether an output line is the last event of a job."""
    return _event(line).get("event") in ("done", "failed")


def is_last(line: bytes) -> bool:
    """Return whether an output line announces the program's end."""
    return _event(line).get("is_last") is True


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


session = Session()
"""The session of this process; the pipeline's worker runs one job at a time."""
