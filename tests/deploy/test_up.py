"""The appliance that deploy/up starts: how it stops, and which failures it survives."""

from __future__ import annotations

import os
import re
import signal
import stat
from pathlib import Path

import pytest

from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.ports import accepts, free_port
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

pytestmark = pytest.mark.fault

TOPIC = "appliance"


def send(appliance: Appliance, body: bytes) -> None:
    with RawClient(appliance.port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), body)
    assert answer.code == raw_remoting.SUCCESS, answer


def bodies(appliance: Appliance) -> list[bytes]:
    return [record.body for record in raw_remoting.read_queue(appliance.port, TOPIC, 0)]


def test_two_appliances_run_side_by_side_and_stop_in_order(tmp_path: Path) -> None:
    one, two = Appliance(tmp_path / "one"), Appliance(tmp_path / "two")
    try:
        one.start()
        two.start()
        for each in (one, two):
            send(each, str(each.data).encode())
        for each in (one, two):
            assert bodies(each) == [str(each.data).encode()]
            Visitor(each.url).sign_in()
        second = Appliance(tmp_path / "one")

        assert second.run_to_end() == 2
        assert str(one.data) in second.words
        assert len(second.words.strip().splitlines()) == 1

        assert one.stop(signal.SIGINT) == 0
        assert two.stop(signal.SIGTERM) == 0
    finally:
        one.stop()
        two.stop()
    for each in (one, two):
        log = (each.data / "logs" / "supervisord.log").read_text()
        stopped = re.findall(r"(?:stopped|exited): (\w+)", log)
        assert stopped == ["beat", "worker", "pipeline", "collector", "web", "broker", "redis"]
        assert "Stopped." in each.words
        assert not accepts(each.port)


def test_all_written_files_are_private_to_their_user(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, TREBUCHET_ADMIN_PASSWORD="")
    appliance.start()
    try:
        found = re.search(r"Administrator admin, password (\S+)", appliance.words)
        assert found is not None
        password = found[1]
        Visitor(appliance.url).sign_in(password=password)
    finally:
        assert appliance.stop() == 0

    assert stat.S_IMODE(appliance.data.stat().st_mode) == 0o700
    for directory, _, files in os.walk(appliance.data):
        if "static" in Path(directory).relative_to(appliance.data).parts:
            # Assets of the source tree, which every visitor of a page gets.
            continue
        for path in [directory, *(os.path.join(directory, name) for name in files)]:  # noqa: PTH118
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            assert mode & 0o077 == 0, f"{path} has mode {mode:o}"
    logs = "".join(file.read_text() for file in (appliance.data / "logs").glob("*.log"))
    assert password not in logs


def test_every_log_line_names_its_process(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    appliance.start()
    assert appliance.stop() == 0

    labels = set(re.findall(r"^(\w+) +\| ", appliance.words, re.MULTILINE))
    assert labels == {"redis", "broker", "web", "collector", "pipeline", "worker", "beat"}
    # Without a reader, a warning at every start would hide the important one.
    assert "superuser privileges" not in appliance.words
    assert "Warning" not in appliance.words


def test_a_killed_broker_is_restarted_with_its_messages(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    appliance.start()
    try:
        send(appliance, b"before")
        pid = appliance.pid_of("broker")
        os.kill(pid, signal.SIGKILL)
        until(lambda: appliance.pid_of("broker") != pid, "the broker's new process")
        until(lambda: accepts(appliance.port), "the broker to listen again")
        send(appliance, b"after")

        assert bodies(appliance) == [b"before", b"after"]
        until(
            lambda: "broker ended and was restarted" in appliance.words, "the words that tell of it"
        )
    finally:
        assert appliance.stop() == 0


def test_a_broker_that_cannot_run_ends_the_appliance_with_1(tmp_path: Path) -> None:
    appliance, other = Appliance(tmp_path / "one"), Appliance(tmp_path / "other")
    # The store belongs to an outside process: a port or a value would have been rejected before.
    store = tmp_path / "store"
    appliance.set_keys(storePathRootDir=store)
    appliance.start()
    try:
        other.set_keys(storePathRootDir=store)

        assert other.run_to_end() == 1
        assert "The broker process keeps ending" in other.words
        assert str(other.data / "logs" / "broker.log") in other.words
        assert not accepts(other.web_port)
    finally:
        assert appliance.stop() == 0


def test_the_processes_end_with_their_parent(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    appliance.start()
    assert appliance.stop(signal.SIGKILL) == -signal.SIGKILL
    until(
        lambda: not any(map(accepts, (appliance.port, appliance.namesrv_port, appliance.web_port))),
        "the processes to end",
        seconds=60,
    )
    until(lambda: not (appliance.data / "run" / "supervisord.pid").exists(), "supervisord to end")
    again = Appliance(tmp_path)

    again.start()

    assert again.stop() == 0


def test_without_redis_the_broker_and_the_pages_continue(tmp_path: Path) -> None:
    port = free_port()
    appliance = Appliance(tmp_path, TREBUCHET_REDIS_URL=f"redis://127.0.0.1:{port}/0")
    appliance.launch()
    try:
        until(lambda: accepts(appliance.port), "the broker to listen", seconds=120)
        until(lambda: accepts(appliance.web_port), "the pages to be served", seconds=120)
        send(appliance, b"stored")
        visitor = Visitor(appliance.url)
        visitor.sign_in()

        assert TOPIC in visitor.read("/topics/")
        reports = visitor.read("/reports/")
        assert f"Redis at 127.0.0.1:{port} isn&#x27;t responding" in reports
        assert "Redis" in visitor.post(
            "/reports/start/", report="traffic", **{"traffic-hours": "1"}
        )
        assert bodies(appliance) == [b"stored"]
        assert appliance.is_running
    finally:
        assert appliance.stop() == 0


def test_without_java_only_the_reports_are_missing(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, JAVA_HOME=str(tmp_path / "no-java"))
    appliance.start()
    try:
        assert "Java 17 or newer" in appliance.words
        assert "apt-get install --no-install-recommends openjdk-17-jre-headless" in appliance.words
        send(appliance, b"stored")
        visitor = Visitor(appliance.url)
        visitor.sign_in()
        reports = visitor.read("/reports/")
        assert "Java" in reports
        assert "openjdk-17-jre-headless" in reports
        assert TOPIC in visitor.read("/topics/")
    finally:
        assert appliance.stop() == 0
