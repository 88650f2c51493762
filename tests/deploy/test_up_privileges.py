"""Privileges and secrets of deploy/up's processes: no new privileges, secrets only in files."""

from __future__ import annotations

import re
import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.java import require_java
from deploy.machine import redis_server
from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.ports import accepts, free_port
from tests.support.processes import command_of, environment_of, limits_of, status_of, tree
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS = {
    "TREBUCHET_ADMIN_PASSWORD": "s3cret password of the administrator",
    "TREBUCHET_BROKER_ACCESS_KEY": "s3cret-access-key",
    "TREBUCHET_BROKER_SECRET_KEY": "s3cret-broker-key",
    "TREBUCHET_SECRET_KEY": "s3cret-session-key-" + 50 * "x",
    "TREBUCHET_SECRET_KEY_FALLBACKS": "s3cret-older-key-" + 50 * "y",
    "A_TOKEN_OF_SOMETHING_ELSE": "s3cret-token",
    "https_proxy": "http://somebody:s3cret-proxy@127.0.0.1:9",
}
MARK = "s3cret"
PYTHON_OF_SPARK = "pyspark"
PROCESSES = {
    *("deploy.commands.up", "supervisord", "broker_core", "console.serving", "worker", "beat"),
    *("-m analytics", "org.apache.spark.deploy.SparkSubmit"),
}


@contextmanager
def redis_with_a_password(directory: Path, password: str) -> Iterator[str]:
    """Run a separate Redis; yield its URL."""
    binary = redis_server.find()
    assert binary is not None
    port = free_port()
    process = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--requirepass", password],
        cwd=directory,
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: accepts(port), "Redis to listen")
        yield f"redis://:{password}@127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.fault
@pytest.mark.spark
def test_no_process_has_new_privileges_or_a_secret_in_its_environment(tmp_path: Path) -> None:
    require_java()
    (tmp_path / "key").write_text(SECRETS["TREBUCHET_BROKER_SECRET_KEY"])
    given = SECRETS | {
        "TREBUCHET_BROKER_SECRET_KEY": "",
        "TREBUCHET_BROKER_SECRET_KEY_FILE": str(tmp_path / "key"),
        # SQLite ignores user and password, which only have to be present.
        "DATABASE_URL": f"sqlite://user:{MARK}@host/{tmp_path / 'console.sqlite3'}",
        # So that the session ends soon after the report, as this test expects.
        "TREBUCHET_SPARK_IDLE": "5",
    }
    with redis_with_a_password(tmp_path, f"{MARK}-redis") as url:
        appliance = Appliance(tmp_path / "appliance", TREBUCHET_REDIS_URL=url, **given)
        appliance.start()
        try:
            visitor = Visitor(appliance.url)
            visitor.sign_in(password=SECRETS["TREBUCHET_ADMIN_PASSWORD"])
            with RawClient(appliance.port) as client:
                fields = raw_remoting.send_fields("appliance")
                assert client.ask(raw_remoting.SEND_MESSAGE, fields, b"counted").code == 0
            # This request can only arrive through Redis, with its password.
            visitor.post("/reports/start/", report="traffic", **{"traffic-hours": "1"})
            seen: set[str] = set()
            until(lambda: look_until_a_report_ends(appliance, seen), "the report", seconds=450)
            for name in PROCESSES:
                assert any(name in command for command in seen), (name, seen)
            until(lambda: "Done" in visitor.read("/reports/"), "the report's result", seconds=120)
            # Next to the sockets, which are elsewhere if the data directory's path is long.
            named = environment_of(appliance.pid_of("web"))
            assert "MALLOC_ARENA_MAX=1" in named.splitlines()
            directory = Path(
                re.findall("^TREBUCHET_SECRET_KEY_FILE=(.*)$", named, re.MULTILINE)[0]
            ).parent
            files = list(directory.iterdir())
            assert {file.name for file in files} == {
                "database_url",
                "trebuchet_broker_access_key",
                "trebuchet_broker_secret_key",
                "trebuchet_redis_url",
                "trebuchet_secret_key",
                "trebuchet_secret_key_fallbacks",
            }
            for file in (files[0].parent, *files):
                assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
            assert all(MARK in file.read_text() for file in files)
        finally:
            assert appliance.stop() == 0
    assert not directory.exists()
    assert MARK not in appliance.words


def look_at(pid: int) -> None:
    """Check one process, unless it has ended meanwhile."""
    command = command_of(pid)
    assert MARK not in command
    assert MARK not in environment_of(pid), command
    assert status_of(pid).get("NoNewPrivs", "1") == "1", command
    limits = limits_of(pid)
    assert not limits or re.search(r"Max core file size +0 +0 ", limits), command


def look_until_a_report_ends(appliance: Appliance, seen: set[str]) -> bool:
    """Check all processes; return True once the report's were among them and are gone."""
    running = {pid: command_of(pid) for pid in tree(appliance.pid)}
    for pid in running:
        look_at(pid)
    seen.update(running.values())
    return any(PYTHON_OF_SPARK in command for command in seen) and not any(
        "analytics" in command for command in running.values()
    )
