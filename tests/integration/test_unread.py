"""Peers that don't read answers, or send only half a frame, can't exhaust the broker's memory."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from broker_core.listening.memory import HELD_BYTES_MAX
from broker_core.protocol.codes import RequestCode as Code
from tests.support.broker_process import BrokerProcess
from tests.support.costly_requests import compact
from tests.support.long_timeouts import PATIENCE_S
from tests.support.raw_remoting import (
    RawClient,
    create_topic,
    pull_fields,
    request,
    send_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "Unread"
LARGE = 4_000_000
CONNECTIONS = 30
QUIET_S = 1.0
"""When nothing can be sent for this long, the broker stops reading."""
PIECE = 256 * 1024
FRAME = 15 << 20
MB = 1_000_000
UNREAD_MB_MAX = 200
"""Each connection may get one answer of 4 MB, the largest there is; the rest is slack."""
HELD_MB_MAX = HELD_BYTES_MAX * 7 // 4 // MB
"""A growing buffer has slack, and the allocator keeps freed memory."""


class Stored(NamedTuple):
    """A running broker with stored messages."""

    broker: BrokerProcess
    large: str
    """The log offset of a message of LARGE bytes."""


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        create_topic(broker.port, TOPIC)
        with RawClient(broker.port) as client:
            for _ in range(64):
                client.send_request(Code.SEND_MESSAGE, send_fields(TOPIC), bytes(250_000))
            client.read_successes(64)
            answer = client.ask(Code.SEND_MESSAGE, send_fields(TOPIC), bytes(LARGE))
        yield Stored(broker, str(int(answer.fields["msgId"][-16:], 16)))
    finally:
        broker.kill()


def memory_mb(broker: BrokerProcess) -> float:
    """Return the memory of the broker's process in MB, without mapped files."""
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / MB
    raise AssertionError("/proc/PID/status has no RssAnon")


def parked(queue_id: int, frame: Callable[[int, dict[str, str]], bytes]) -> bytes:
    wait = {"sysFlag": "6", "suspendTimeoutMillis": "30000"}
    return frame(Code.PULL_MESSAGE, {**pull_fields(TOPIC, queue_id, 0), **wait}) * 1_000


def wake(broker: BrokerProcess, queue_id: int) -> None:
    with RawClient(broker.port) as client:
        fields = send_fields(TOPIC, queue_id=queue_id)
        assert client.ask(Code.SEND_MESSAGE, fields, bytes(LARGE)).code == 0


def peak_mb(broker: BrokerProcess, frames: bytes, then: Callable[[], None] | None = None) -> float:
    """Return the memory growth in MB while peers sent frames without reading.

    `then` is called when the broker has stopped reading from them.
    """
    before = peak = memory_mb(broker)
    rest: dict[socket.socket, memoryview] = {}
    with selectors.DefaultSelector() as selector:
        for _ in range(CONNECTIONS):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.connect(("127.0.0.1", broker.port))
            peer.setblocking(False)
            rest[peer] = memoryview(frames)
            selector.register(peer, selectors.EVENT_WRITE, peer)
        deadline = time.monotonic() + PATIENCE_S
        moved_at = time.monotonic()
        while time.monotonic() < deadline:
            for key, _ in selector.select(0.05):
                peer = key.data
                try:
                    rest[peer] = rest[peer][peer.send(rest[peer][:PIECE]) :]
                except OSError:
                    rest[peer] = memoryview(b"")
                if not rest[peer]:
                    selector.unregister(peer)
                moved_at = time.monotonic()
            peak = max(peak, memory_mb(broker))
            if time.monotonic() - moved_at > QUIET_S:
                if then is None:
                    break
                then()
                then, moved_at = None, time.monotonic()
        for peer in rest:
            peer.close()
    return peak - before


def test_unread_answers_use_little_memory(stored: Stored) -> None:
    grown = {
        "pulls": peak_mb(
            stored.broker, compact(Code.PULL_MESSAGE, pull_fields(TOPIC, 0, 0)) * 5_000
        ),
        "large messages": peak_mb(
            stored.broker, compact(Code.VIEW_MESSAGE_BY_ID, {"offset": stored.large}) * 1_000
        ),
    }
    assert {name: mb for name, mb in grown.items() if mb > UNREAD_MB_MAX} == {}


@pytest.mark.parametrize("frame", [compact, request], ids=["plain", "python"])
def test_waiting_pulls_with_unread_answers_use_little_memory(
    stored: Stored, frame: Callable[[int, dict[str, str]], bytes]
) -> None:
    broker = stored.broker

    assert peak_mb(broker, parked(3, frame), lambda: wake(broker, 3)) < UNREAD_MB_MAX


def test_halves_of_frames_use_little_more_than_the_budget(stored: Stored) -> None:
    announced = struct.pack(">ii", (16 << 20) - 4, 100)
    header = b'{"code":310,"extFields":{}}'.ljust(100)

    grown = peak_mb(stored.broker, announced + header + bytes(FRAME))

    assert grown < HELD_MB_MAX
    assert "connections hold" in stored.broker.words()
    with RawClient(stored.broker.port) as client:
        fields = send_fields(TOPIC)
        assert client.ask(Code.SEND_MESSAGE, fields, b"served").code == 0
