"""The whole appliance, as `deploy/up` starts it, with a private data directory and ports."""

from __future__ import annotations

import http.cookiejar
import os
import pwd
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, TYPE_CHECKING

from deploy.brokers.cluster import PORT_STEP
from tests.support.broker_process import COMMIT_LOG_BYTES, ROOT
from tests.support.ports import free_port
from tests.support.quick_java import QUICK_SPARK
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

UP_SECONDS = 600
DOWN_SECONDS = 300
ANSWER_SECONDS_MAX = 120
"""A page that writes to a locked database waits for the lock several times, 20 s each."""
PASSWORD = "a password of the tests"


class Appliance:
    """One `deploy/up` process; `words` holds its output."""

    def __init__(self, directory: Path, **environment: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "data"
        self.checkout = ROOT
        self.web_port = free_port()
        # A second broker or a slave uses ports at a fixed distance.
        self.port = free_port(above=PORT_STEP)
        self.namesrv_port = free_port()
        self.grpc_port = free_port(above=PORT_STEP)
        self.file = directory / "appliance.conf"
        self.set_keys()
        self._environment = {
            **os.environ,
            "TREBUCHET_DATA": str(self.data),
            "TREBUCHET_WEB": f"127.0.0.1:{self.web_port}",
            "TREBUCHET_ADMIN_PASSWORD": PASSWORD,
            # Only the user that runs the tests can enter pytest's directories.
            "TREBUCHET_USER": pwd.getpwuid(os.geteuid()).pw_name,
            **QUICK_SPARK,
            **environment,
        }
        # The appliance must not inherit the suite's start time and settings.
        for name in ("TREBUCHET_STARTED_AT", "DJANGO_SETTINGS_MODULE", "PYTHONPATH"):
            self._environment.pop(name, None)
        self.arguments: list[str] = []
        """Extra arguments for the command."""
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []

    def set_keys(self, **keys: object) -> None:
        """Write the broker's configuration: free ports, small files, and `keys`."""
        table: dict[str, object] = {
            "brokerName": "broker-a",
            "listenPort": self.port,
            "namesrvListenPort": self.namesrv_port,
            "grpcListenPort": self.grpc_port,
            "mappedFileSizeCommitLog": COMMIT_LOG_BYTES,
            **keys,
        }
        self.file.write_text("".join(f"{key}={value}\n" for key, value in table.items()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def words(self) -> str:
        return "".join(self._lines)

    def launch(self) -> None:
        self._process = subprocess.Popen(
            [self.checkout / "deploy" / "up", "-c", self.file, *self.arguments],
            env=self._environment,
            # The command must work outside the checkout.
            cwd=self.file.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        pipe = self._process.stdout
        self._reader = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._reader.start()

    def start(self) -> None:
        self.launch()
        until(
            lambda: not self.is_running or "Trebuchet is up after" in self.words,
            "the appliance to be up",
            seconds=UP_SECONDS,
        )
        assert self.is_running, f"the appliance ended at its start:\n{self.words}"

    def run_to_end(self) -> int:
        """Start an appliance that is expected to refuse; return its exit code."""
        self.launch()
        return self.wait(seconds=UP_SECONDS)

    def wait(self, *, seconds: float = DOWN_SECONDS) -> int:
        assert self._process is not None
        code = self._process.wait(seconds)
        if self._reader is not None:
            # The reader has all output once the pipe is closed.
            self._reader.join(seconds)
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask the appliance to stop; return its exit code."""
        if self._process is None:
            return 0
        if self.is_running:
            self._process.send_signal(number)
        return self.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def pid_of(self, name: str) -> int:
        """Return the pid of a process from the supervisor's log."""
        log = (self.data / "logs" / "supervisord.log").read_text()
        return int(re.findall(rf"spawned: '{name}' with pid (\d+)", log)[-1])

    def in_django(self, code: str) -> str:
        """Run test code in a console process of this appliance; return its output."""
        environment = self._environment | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, self.checkout / "manage.py", "shell", "--no-imports", "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=UP_SECONDS,
        ).stdout

    def pause(self, name: str) -> None:
        """Stop a process with SIGSTOP, as if the machine hung; its port stays open."""
        os.kill(self.pid_of(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.kill(self.pid_of(name), signal.SIGCONT)

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self._lines.append(line)


class Visitor:
    """A console user without a browser."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPCookieProcessor(self._cookies),
        )

    @property
    def cookies(self) -> str:
        """Return the cookies that a browser would send with each request."""
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self._cookies)

    def sign_in(
        self, username: str = "admin", password: str = PASSWORD, *, then: str = "/"
    ) -> None:
        """Sign in and load the page `then`."""
        self.read("/accounts/sign-in/")
        self.post("/accounts/sign-in/", username=username, password=password, next=then)

    def read(self, path: str) -> str:
        with self._opener.open(f"{self._url}{path}", timeout=ANSWER_SECONDS_MAX) as response:
            return str(response.read().decode())

    def post(self, path: str, **fields: str | list[str]) -> str:
        token = next(cookie.value for cookie in self._cookies if "csrf" in cookie.name)
        form = urllib.parse.urlencode({"csrfmiddlewaretoken": token, **fields}, doseq=True).encode()
        request = urllib.request.Request(
            f"{self._url}{path}", data=form, headers={"Referer": f"{self._url}{path}"}
        )
        with self._opener.open(request, timeout=ANSWER_SECONDS_MAX) as response:
            return str(response.read().decode())
