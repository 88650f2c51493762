"""A broker as operators run it: `python -m broker_core -c FILE`, on free loopback ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.long_timeouts import PATIENT
from tests.support.ports import accepts, free_port
from tests.support.waiting import SECONDS, until

ROOT = Path(__file__).resolve().parent.parent.parent
COMMIT_LOG_BYTES = 64 << 20
"""Small, because CommitLog files are allocated whole and large ones slow tests down."""


class BrokerProcess:
    """One broker on one store directory; it can be killed and restarted on the same store."""

    def __init__(self, directory: Path, **keys: object) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.store = directory / "store"
        self.log = directory / "broker.log"
        self.file = directory / "broker.conf"
        self.port = free_port()
        self.namesrv_port = free_port()
        table: dict[str, object] = {
            "brokerName": "broker-a",
            "listenPort": self.port,
            "namesrvListenPort": self.namesrv_port,
            "storePathRootDir": self.store,
            "mappedFileSizeCommitLog": COMMIT_LOG_BYTES,
            **PATIENT,
            **keys,
        }
        self.file.write_text("".join(f"{key}={value}\n" for key, value in table.items()))
        self.module = ["broker_core"]
        """The module that `python -m` runs, with arguments; -c and the file follow."""
        self.prefix: list[str] = []
        """A command prefix such as `ip netns exec NAME`."""
        self.checkout = ROOT
        """The checkout whose code runs."""
        self.environment: dict[str, str] = {}
        """Extra environment variables."""
        self._has_namesrv = "namesrvAddr" not in keys
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def command(self) -> list[str]:
        """Return the command line without its configuration file."""
        return [sys.executable, "-m", *self.module]

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting; its output is appended to `log`."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.prefix, *self.command, "-c", str(self.file)],
                cwd=self.checkout,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self._process

    def start(self) -> None:
        process = self.launch()
        try:
            until(
                lambda: process.poll() is not None or self.is_listening,
                "the broker to listen",
            )
        except AssertionError:
            self.kill()
            raise
        assert process.poll() is None, f"the broker ended at its start:\n{self.words()}"

    @property
    def is_listening(self) -> bool:
        return accepts(self.port) and (not self._has_namesrv or accepts(self.namesrv_port))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait(self, *, seconds: float = SECONDS) -> int:
        """Wait for the process to end by itself; return its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask the process to stop; return its exit code."""
        return self._end(signal.SIGTERM)

    def words(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(SECONDS)
