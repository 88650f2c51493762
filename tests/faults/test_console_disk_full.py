"""The disk with the console's data is full: pages report it, messages continue, all recovers."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest

from deploy.machine import redis_server
from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.collector_state import sampled_at
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "goes-on"
SIZE_MIB = 512
SECONDS = 300.0
FULL = "disk that holds the console&#x27;s database is full"
DATABASES = ("console.sqlite3", "history.sqlite3")

pytestmark = pytest.mark.fault


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a file system can be mounted by root only")
    place = tmp_path / "appliance" / "data"
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0700", "tmpfs", str(place)]
    subprocess.run(command, check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def appliance(small_disk: Path, tmp_path: Path) -> Iterator[Appliance]:
    """An appliance whose broker has its store on another disk."""
    if redis_server.find() is None:
        pytest.skip("redis-server is missing")
    made = Appliance(small_disk.parent, TREBUCHET_LAKE="true")
    made.set_keys(storePathRootDir=tmp_path / "store")
    made.start()
    yield made
    code = made.stop()
    assert code == 0, made.words


def fill(filler: Path) -> None:
    """Fill a disk to its last page."""
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4_096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def send(port: int) -> None:
    with RawClient(port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), b"on")
    assert answer.code == raw_remoting.SUCCESS, answer


def refusal(visitor: Visitor) -> str:
    """Request a report; return the page's reason for not starting it, or ""."""
    try:
        visitor.post("/reports/start/", report="queues", **{"queues-hours": "1"})
    except HTTPError as error:
        return error.read().decode()
    return ""


def test_a_full_console_disk_stops_no_message_and_everything_recovers(
    appliance: Appliance, small_disk: Path
) -> None:
    visitor = Visitor(appliance.url)
    visitor.sign_in()
    raw_remoting.create_topic(appliance.port, TOPIC, queues=1)
    until(lambda: sampled_at(small_disk) > 0, "a first sample", seconds=SECONDS)
    filler = small_disk / "filler"

    def is_refused() -> bool:
        # Space freed meanwhile, by log rotation, is filled as well.
        fill(filler)
        send(appliance.port)
        return FULL in refusal(visitor)

    until(is_refused, "the page to say that the disk is full", seconds=SECONDS, every_s=1.0)
    assert TOPIC in visitor.read("/topics/")
    # For the time of a sample or two.
    for _ in range(15):
        fill(filler)
        send(appliance.port)
        time.sleep(1)

    filler.unlink()
    freed_ms = time.time_ns() // 1_000_000
    until(lambda: sampled_at(small_disk) > freed_ms, "the next sample", seconds=SECONDS)
    until(lambda: not refusal(visitor), "a report to be started", seconds=SECONDS)
    until(lambda: is_done(small_disk), "the report", seconds=SECONDS)
    for name in DATABASES:
        with closing(sqlite3.connect(small_disk / name)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert len(raw_remoting.read_queue(appliance.port, TOPIC, 0)) > 15


def is_done(data: Path) -> bool:
    uri = f"{(data / 'console.sqlite3').as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        states = database.execute("SELECT state FROM reports_reportrun ORDER BY id").fetchall()
    return ("done",) in states
