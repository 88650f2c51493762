"""Real clients send and consume through a promotion without a restart."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_set import BrokerSet, promote
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

TOPIC, GROUP = "through", "through-group"
SEND_OK = "SEND_OK"
ENOUGH = 20
SECONDS = 180.0
KEYS: dict[str, object] = {
    "brokerRole": "SYNC_MASTER",
    "haAckMode": "flushed",
    "mappedFileSizeCommitLog": 4 << 20,
    "haSendHeartbeatInterval": 500,
    "slaveTimeout": 1_000,
}


class Program:
    """A running client program and its output lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[list[str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._reader.join()
        with self.process:
            pass  # Close the pipes and wait for the process.

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.split())

    def say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def acknowledged(self) -> set[str]:
        return {line[1] for line in self.lines if line[0] == "sent" and line[2] == SEND_OK}

    def received(self) -> set[str]:
        return {line[1] for line in self.lines if line[0] == "received"}


@pytest.fixture(params=["java", "go"])
def client(request: pytest.FixtureRequest, tmp_path: Path, pair: BrokerSet) -> Iterator[Program]:
    where = (pair.namesrv_address, TOPIC, GROUP)
    if request.param == "java":
        java: JavaClients = request.getfixturevalue("java_4")
        process = java.start("ThroughPromotion", *where, stdin=subprocess.PIPE)
    else:
        program: Path = request.getfixturevalue("program")
        process = subprocess.Popen(
            [str(program), "through", *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    with Program(process) as running:
        yield running


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[BrokerSet]:
    with BrokerSet(tmp_path / "set", KEYS) as made:
        raw_remoting.create_topic(made.brokers[0].port, TOPIC, queues=4)
        slave = made.brokers[1]
        topics = slave.store / "config/topics.json"
        until(
            lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text(),
            "the slave to copy the topic",
            seconds=SECONDS,
        )
        yield made


def test_clients_continue_through_a_promotion(pair: BrokerSet, client: Program) -> None:
    old, new = pair.brokers
    until(
        lambda: len(client.acknowledged()) >= ENOUGH and len(client.received()) >= ENOUGH,
        "messages under the first master",
        seconds=SECONDS,
    )

    old.kill()
    code, words = promote(new)
    assert code == 0, words
    before = client.acknowledged()
    old.start()
    pair.until_role(old, "SLAVE")

    until(
        lambda: len(client.acknowledged() - before) >= ENOUGH,
        "messages under the second master",
        seconds=SECONDS,
    )
    client.say()
    until(
        lambda: client.acknowledged() <= client.received(),
        "the acknowledged messages to be consumed",
        seconds=SECONDS,
    )
    client.say()
    assert client.process.wait(60) == 0
