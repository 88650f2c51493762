"""The supervised processes: supervisord's configuration, start and requests.

supervisord restarts processes that end (after 1, 2, 3 … seconds if they end early) and rotates the
logs. We control the order: each process is started and stopped by request, when the previous one is
ready.
"""

from __future__ import annotations

import http.client
import os
import resource
import shlex
import subprocess
import sys
import time
import xmlrpc.client
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from supervisor.xmlrpc import SupervisorTransport  # type: ignore[import-untyped]

from deploy.install.virtualenv import ROOT
from deploy.processes import privileges
from deploy.processes.orphans import Orphans
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deploy.processes.programs import Program

LOG_BYTES_MAX = 10 << 20
LOG_BACKUPS = 5
START_SECONDS = 3
"""A process that ends before this counts as not started; retries slow down."""
START_RETRIES = 4
OPEN_FILES_TARGET = 65_536
ANSWER_WITHIN_S = 15.0
ENDS_WITHIN_S = 5.0
POLL_S = 0.05


class SupervisorError(Exception):
    """supervisord didn't start, or no longer responds."""


class State(Enum):
    """supervisord's own states of a process."""

    STOPPED = 0
    STARTING = 10
    RUNNING = 20
    BACKOFF = 30
    STOPPING = 40
    EXITED = 100
    FATAL = 200
    UNKNOWN = 1000

    @property
    def is_over(self) -> bool:
        return self in (State.STOPPED, State.EXITED, State.FATAL, State.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """supervisord's information on one process."""

    state: State
    pid: int


class Supervisor:
    """Our own supervisord. Use from one thread.

    It stops everything, in the right order, if this process dies unexpectedly.
    """

    def __init__(self, run_directory: Path, logs: Path, programs: Sequence[Program]) -> None:
        self._socket = run_directory / "supervisor.sock"
        self._configuration = run_directory / "supervisord.conf"
        self._run_directory = run_directory
        self._logs = logs
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._proxy: Any = None
        self._pids: dict[str, int] = {}

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def start(self, environment: Mapping[str, str]) -> None:
        """Start supervisord, without starting its processes.

        Raises:
            SupervisorError: supervisord doesn't respond.
        """
        self._socket.unlink(missing_ok=True)
        self._configuration.write_text(self._configuration_text())
        with (self._logs / "supervisord.out").open("wb") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "supervisor.supervisord",
                    "-n",
                    "-c",
                    str(self._configuration),
                ],
                env=dict(environment),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A separate session: Ctrl-C reaches only this process, which stops the others.
                start_new_session=True,
                preexec_fn=privileges.end_with_parent,
            )
        transport = SupervisorTransport(None, None, f"unix://{self._socket}")
        self._proxy = xmlrpc.client.ServerProxy("http://localhost", transport=transport)
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while True:
            try:
                self._proxy.supervisor.getState()
                return
            except (OSError, http.client.HTTPException, xmlrpc.client.Error):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = self._logs / "supervisord.out"
                    sentence = translated("supervisord didn't start; see its log {log}.", log=log)
                    raise SupervisorError(sentence) from None
                # Otherwise the transport would reuse its failed connection forever.
                self._proxy("close")()
                time.sleep(POLL_S)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def has_ended(self) -> bool:
        """Return whether supervisord is gone; if it doesn't respond, it may just be ending."""
        if self._process is None:
            return True
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def start_process(self, name: str) -> None:
        self._ask("startProcess", name, False)

    def stop_process(self, name: str) -> None:
        """Begin to stop a process, if it is running."""
        try:
            self._ask("stopProcess", name, False)
        except xmlrpc.client.Fault:
            return

    def processes(self) -> dict[str, ProcessInfo]:
        """Return the state of each process, by name.

        Raises:
            SupervisorError: supervisord is gone.
        """
        answer = self._ask("getAllProcessInfo")
        table = {one["name"]: ProcessInfo(State(one["state"]), one["pid"]) for one in answer}
        self._pids = {name: info.pid for name, info in table.items() if info.pid}
        return table

    def shutdown(self) -> None:
        """Stop supervisord and the processes that it still runs."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(sum(program.stop_seconds for program in self._programs) + 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def orphans(self) -> Orphans:
        """Ask the processes of a killed supervisord to end; return them."""
        assert self._process is not None
        programs = {one.name: one for one in self._programs}
        known = {pid: programs[name] for name, pid in self._pids.items()}
        return Orphans(self._process.pid, known)

    def _ask(self, method: str, *arguments: object) -> Any:
        try:
            return getattr(self._proxy.supervisor, method)(*arguments)
        except (OSError, http.client.HTTPException) as error:
            self._proxy("close")()
            sentence = translated("supervisord doesn't respond: {why}.", why=error)
            raise SupervisorError(sentence) from error

    def _configuration_text(self) -> str:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = (
            OPEN_FILES_TARGET if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_TARGET)
        )
        head: dict[str, dict[str, object]] = {
            "unix_http_server": {"file": self._socket, "chmod": "0700"},
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            "supervisord": {
                "logfile": self._logs / "supervisord.log",
                "logfile_maxbytes": LOG_BYTES_MAX,
                "logfile_backups": 1,
                "pidfile": self._run_directory / "supervisord.pid",
                "childlogdir": self._logs,
                "umask": "077",
                "minfds": files,
                **({"user": "root"} if os.geteuid() == 0 else {}),
            },
        }
        sections = {**head, **{f"program:{one.name}": self._section(one) for one in self._programs}}
        return "\n".join(
            f"[{name}]\n" + "".join(f"{key}={_escaped(value)}\n" for key, value in values.items())
            for name, values in sections.items()
        )

    def _section(self, program: Program) -> dict[str, object]:
        log = self.log_of(program.name)
        return {
            "command": shlex.join(program.command),
            "environment": ",".join(f'{name}="{one}"' for name, one in program.variables.items()),
            "directory": ROOT,
            "priority": program.priority,
            "autostart": "false",
            "autorestart": "true",
            "startsecs": START_SECONDS,
            "startretries": START_RETRIES,
            "stopsignal": "TERM",
            "stopwaitsecs": program.stop_seconds,
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": log,
            "stdout_logfile_maxbytes": LOG_BYTES_MAX,
            "stdout_logfile_backups": LOG_BACKUPS,
        }


def _escaped(value: object) -> str:
    # supervisord expands %(name)s everywhere.
    return str(value).replace("%", "%%")
