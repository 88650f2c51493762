"""Debian's Prometheus with a test's configuration, and the queries of our dashboards."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.broker_process import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

FOLDER = ROOT / "deploy" / "grafana"
RULES = FOLDER / "alerts.yml"
DASHBOARDS = sorted(FOLDER.glob("*.json"))
METRIC = re.compile(r"\b(?:rocketmq|trebuchet|process)_\w+\b")
ANSWER_SECONDS = 30.0
END_SECONDS = 30.0


def require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not here: apt-get install prometheus")
    return found


def dashboard(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def queries(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its queries."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


class Prometheus:
    """One server on a free loopback port while the block runs."""

    def __init__(self, directory: Path, configuration: str) -> None:
        self.port = free_port()
        self._directory = directory
        self._file = directory / "prometheus.yml"
        self._file.write_text(configuration)
        self._log = directory / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    require("prometheus"),
                    f"--config.file={self._file}",
                    f"--storage.tsdb.path={self._directory / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until(self._is_ready, "Prometheus to be ready")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression; fail if it doesn't parse."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        return data

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            url = f"http://127.0.0.1:{self.port}/-/ready"
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS):
                return True
        except OSError:
            return False
