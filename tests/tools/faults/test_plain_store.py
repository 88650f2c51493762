"""The independent reader accepts a broker's files, and finds errors in them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tools.faults import plain_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "read"
LOG_BYTES = 64 << 10
SENDS = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker's store: several files of log, tags, delayed messages."""
    directory = tmp_path_factory.mktemp("plain")
    broker = BrokerProcess(directory, mappedFileSizeCommitLog=LOG_BYTES)
    broker.start()
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=2)
        with RawClient(broker.port) as client:
            for number in range(SENDS):
                delay = "\x02DELAY\x011" if number % 9 == 0 else ""
                fields = raw_remoting.send_fields(
                    TOPIC, queue_id=number % 2, properties=f"TAGS\x01t{number}{delay}"
                )
                body = b"x" * number * 100
                assert client.ask(raw_remoting.SEND_MESSAGE, fields, body).code == 0
        assert broker.stop() == 0
    finally:
        broker.kill()
    return broker.store


def test_the_brokers_own_files_are_valid(store: Path) -> None:
    assert len(list((store / "commitlog").iterdir())) > 2
    assert plain_store.problems(store) == []


def body_byte(log: bytearray, queue: bytearray) -> None:
    at = log.index(b"x" * 8)
    log[at] ^= 1


def own_offset(log: bytearray, queue: bytearray) -> None:
    struct.pack_into(">Q", log, 28, 1)


def second_size(log: bytearray, queue: bytearray) -> None:
    struct.pack_into(">I", log, 0, struct.unpack_from(">I", log)[0] - 1)


def unit_order(log: bytearray, queue: bytearray) -> None:
    queue[0:20], queue[20:40] = queue[20:40], queue[0:20]


def unit_code(log: bytearray, queue: bytearray) -> None:
    queue[19] ^= 1


def no_last_unit(log: bytearray, queue: bytearray) -> None:
    end = max(at for at in range(0, len(queue), 20) if any(queue[at + 8 : at + 12]))
    queue[end : end + 20] = bytes(20)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (body_byte, "wrong CRC"),
        (own_offset, "wrong offset 1"),
        (second_size, "but its parts have"),
        (unit_order, "points at"),
        (unit_code, "has tags code"),
        (no_last_unit, "has no unit"),
    ],
)
def test_every_error_is_detected(
    store: Path, change: Callable[[bytearray, bytearray], None], words: str
) -> None:
    log = min((store / "commitlog").iterdir())
    queue = min((store / "consumequeue" / TOPIC / "1").iterdir())
    before = {file: file.read_bytes() for file in (log, queue)}
    changed = [bytearray(data) for data in before.values()]
    change(*changed)
    try:
        for file, data in zip(before, changed, strict=True):
            file.write_bytes(data)
        wrong = plain_store.problems(store)
    finally:
        for file, whole in before.items():
            file.write_bytes(whole)

    assert any(words in line for line in wrong), wrong
