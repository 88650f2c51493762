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

    from deploy.processes.programs import Program

BROKER_ENDS_WITHIN_S = 5.0
"""A broker that exits cleanly has less to recover at the next start."""
ENDS_WITHIN_S = 2.0
POLL_S = 0.05
UNKNOWN = ""
"""Represents a program that supervisord started since its last report."""


class Orphans:
    """All processes of supervisord's session. Use from one thread.

    They are asked to end at once, and killed if they are late, as supervisord was. That loses no
    acknowledged message, and interrupted reports run again.
    """

    def __init__(self, session: int, programs: Mapping[int, Program]) -> None:
        """`programs` maps the process that supervisord started, a group leader, to its program."""
        self._session = session
        self._programs = programs
        self._asked_at = time.monotonic()
        for pid, group in self._processes():
            if pid == group:
                _signal(pid, signal.SIGTERM)

    def names(self) -> set[str]:
        """Return the programs that still have a process; kill late ones."""
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
        """Yield process and group of the session's running processes."""
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(place.name)
                # After the name, which may contain any character.
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                state, _, group, session, *_ = fields
                if int(session) == self._session and state not in "ZX":
                    yield pid, int(group)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
