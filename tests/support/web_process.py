"""The console's web server as the appliance starts it, without a broker."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from tests.support.appliance import PASSWORD
from tests.support.broker_process import ROOT
from tests.support.ports import accepts, free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_SECONDS = 30.0
_PREPARED: list[str] = []
"""An unused data directory, shared because creating its tables takes seconds."""


class WebProcess:
    """One web server on a private data directory; its administrator is `admin`."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.port = free_port()
        self.log = directory / "web.log"
        self.data = directory / "data"
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "TREBUCHET_ADMIN_PASSWORD": PASSWORD,
            "TREBUCHET_DATA": str(self.data),
            "TREBUCHET_NAMESRV": "127.0.0.1:9",
            "TREBUCHET_WEB": f"127.0.0.1:{self.port}",
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def run(self, *module: str) -> str:
        """Run one of our modules to its end in the console's environment; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", *module],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        """Start on a data directory made by `deploy.commands.prepare`, once for all tests."""
        if not _PREPARED:
            self.run("deploy.commands.prepare")
            kept = tempfile.mkdtemp(prefix="trebuchet-web-")
            atexit.register(shutil.rmtree, kept, ignore_errors=True)
            _PREPARED.append(shutil.copytree(self.data, kept, dirs_exist_ok=True))
        else:
            shutil.copytree(_PREPARED[0], self.data)
        self.launch()

    def launch(self) -> None:
        """Start the server on the data directory as it is."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "console.serving", "--port", str(self.port)],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until(lambda: accepts(self.port), "the web server to listen")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def kill(self) -> None:
        """Kill the server as in a crash; `launch` starts another one in its place."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Open a connection from one of this machine's loopback addresses."""
        return socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS, (source, 0))

    def ask(self, request: bytes, source: str = "127.0.0.1") -> bytes:
        """Send bytes on a new connection; return everything that comes back."""
        with self.connect(source) as peer:
            peer.sendall(request)
            return read_to_end(peer)


def read_to_end(peer: socket.socket) -> bytes:
    """Read until the peer closes; return the bytes."""
    parts = []
    try:
        while part := peer.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
