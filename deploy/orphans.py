"""The processes that a killed supervisord left behind, until they have ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deploy.programs import Program

BROKER_ENDS_WITHIN_S = 5.0
"""One that ends by itself has less to read when it starts."""
ENDS_WITHIN_S = 2.0
POLL_S = 0.05
UNKNOWN = ""
"""Stands for a program that supervisord started since it was asked last."""


class Orphans:
    """All of one session, which was supervisord's own; one thread only.

    They are asked to end at once. What has not ended soon is killed, as supervisord was: nothing
    acknowledged is lost by it, and a report that it takes along is run again.
    """

    def __init__(self, session: int, programs: Mapping[int, Program]) -> None:
        """`programs` are known by the process that supervisord started, which leads its group."""
        self._session = session
        self._programs = programs
        self._asked_at = time.monotonic()
        for pid, group in self._processes():
            if pid == group:
                _signal(pid, signal.SIGTERM)

    def names(self) -> set[str]:
        """Return the programs of which a process is still there; what is late is killed."""
        waited = time.monotonic() - self._asked_at
        found = set()
        for pid, group in self._processes():
            program = self._programs.get(group)
            may_be_broker = program is None or program.is_broker
            if waited > (BROKER_ENDS_WITHIN_S if may_be_broker else ENDS_WITHIN_S):
                _signal(pid, signal.SIGKILL)
            found.add(UNKNOWN if program is None else program.name)
        return found

    def wait(self) -> None:
        """Wait until all have ended."""
        while self.names():
            time.sleep(POLL_S)

    def _processes(self) -> Iterator[tuple[int, int]]:
        """Yield process and group of what runs on of the session."""
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(place.name)
                # Behind the name, which may have any sign in it.
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                state, _, group, session, *_ = fields
                if int(session) == self._session and state not in "ZX":
                    yield pid, int(group)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
