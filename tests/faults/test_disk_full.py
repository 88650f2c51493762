"""A small file system under a running broker fills up, and is emptied again."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "full"
SIZE_MIB = 64
FILLER_BYTES = 40 << 20
SERVICE_NOT_AVAILABLE = 14
SENDS_MAX = 100_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a file system can be mounted by root only")
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(place)]
    subprocess.run(command, check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def send_until_refused(port: int) -> tuple[int, raw_remoting.Answer]:
    fields = raw_remoting.send_fields(TOPIC)
    with RawClient(port) as client:
        for number in range(SENDS_MAX):
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, b"x" * 8_000)
            if answer.code != raw_remoting.SUCCESS:
                return number, answer
    raise AssertionError("the disk did not fill up")


def takes_messages(port: int) -> bool:
    with RawClient(port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), b"again")
    return answer.code == raw_remoting.SUCCESS


@pytest.mark.fault
def test_a_full_disk_rejects_sends_until_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, FILLER_BYTES)
    broker = BrokerProcess(
        small_disk / "broker",
        mappedFileSizeCommitLog=4 << 20,
        mappedFileSizeConsumeQueue=20_000,
        maxHashSlotNum=1_000,
        maxIndexNum=4_000,
    )
    broker.start()
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=1)

        sent, refusal = send_until_refused(broker.port)

        assert refusal.code == SERVICE_NOT_AVAILABLE
        assert sent > 100
        assert len(raw_remoting.read_queue(broker.port, TOPIC, 0)) == sent
        assert broker.is_running
        filler.unlink()
        until(lambda: takes_messages(broker.port), "sends to be accepted again", seconds=30)
        assert len(raw_remoting.read_queue(broker.port, TOPIC, 0)) > sent
        assert broker.stop() == 0
    finally:
        broker.kill()
