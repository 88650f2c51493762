"""Thousands of connections, most of them idle, some hostile, and a normal client."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient, pull_fields, request, send_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.interop

TOPIC = "crowded"
IDLE = 5_000
CONNECTS_A_SECOND = 1_000
SECONDS = 5.0
SLOW = 50
P99_MS = 50.0
LOOSER = 5
"""The limit is for a faster machine than two shared cores: this test only checks for hangs."""
BIG_BODY = b"x" * 100_000


class Normal:
    """A client that sends, waits for the answer, and repeats; it records the latencies."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []

    def send_for(self, client: RawClient, seconds: float) -> None:
        fields = send_fields(TOPIC)
        until_time = time.monotonic() + seconds
        while (now := time.monotonic()) < until_time:
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, b"normal")
            assert answer.code == raw_remoting.SUCCESS, answer
            self.took_ms.append((time.monotonic() - now) * 1000)
            time.sleep(0.002)

    @property
    def p99_ms(self) -> float:
        return sorted(self.took_ms)[int(len(self.took_ms) * 0.99)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 1_000:
        pytest.skip(f"{IDLE} connections need as many descriptors; ulimit -Hn is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = BrokerProcess(tmp_path)
    process.start()
    raw_remoting.create_topic(process.port, TOPIC, queues=1)
    yield process
    process.stop()


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run something in a thread while the block runs; its errors fail the test."""
    over = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(over)
        except BaseException as error:  # noqa: BLE001  handed to the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def measured(broker: BrokerProcess) -> Normal:
    normal = Normal()
    with RawClient(broker.port) as client:
        normal.send_for(client, SECONDS)
    assert len(normal.took_ms) > 100
    assert normal.p99_ms < P99_MS * LOOSER, f"p99 was {normal.p99_ms:.1f} ms"
    return normal


def test_five_thousand_idle_connections_disturb_no_one(broker: BrokerProcess) -> None:
    idle = [socket.create_connection(("127.0.0.1", broker.port), 30) for _ in range(IDLE)]
    try:
        # Each sent one request, as a client does, and is then silent.
        for one in idle:
            one.sendall(request(raw_remoting.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}))
        for one in idle:
            assert one.recv(4096)

        measured(broker)

        for one in idle[:: IDLE // 50]:
            one.sendall(request(raw_remoting.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}))
            assert one.recv(4096)
    finally:
        for one in idle:
            one.close()


def test_a_thousand_connects_per_second_disturb_no_one(broker: BrokerProcess) -> None:
    made = 0
    head = request(raw_remoting.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})

    def connect(over: threading.Event) -> None:
        nonlocal made
        begun = time.monotonic()
        while not over.is_set():
            with socket.create_connection(("127.0.0.1", broker.port), 30) as one:
                one.sendall(head)
                assert one.recv(4096)
            made += 1
            ahead_s = made / CONNECTS_A_SECOND - (time.monotonic() - begun)
            if ahead_s > 0:
                time.sleep(ahead_s)

    with beside(connect):
        measured(broker)

    assert made > CONNECTS_A_SECOND * SECONDS / LOOSER


def test_slow_readers_and_slow_writers_disturb_no_one(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        for _ in range(40):
            answer = client.ask(raw_remoting.SEND_MESSAGE, send_fields(TOPIC), BIG_BODY)
            assert answer.code == raw_remoting.SUCCESS
    peers = [socket.create_connection(("127.0.0.1", broker.port), 30) for _ in range(2 * SLOW)]
    readers, writers = peers[:SLOW], peers[SLOW:]
    pull = request(raw_remoting.PULL_MESSAGE, pull_fields(TOPIC, 0, 0))
    slow_frame = request(raw_remoting.SEND_MESSAGE, send_fields(TOPIC), BIG_BODY)

    def be_slow(over: threading.Event) -> None:
        with selectors.DefaultSelector() as selector:
            for one in readers:
                one.setblocking(False)
                selector.register(one, selectors.EVENT_WRITE)
            sent = [0] * len(writers)
            while not over.wait(0.05):
                # Readers request 200 KB repeatedly, and don't read the answers.
                for key, _ in selector.select(0):
                    with contextlib.suppress(BlockingIOError, ConnectionError):
                        key.fileobj.send(pull)  # type: ignore[union-attr]
                # Writers send a big frame byte by byte.
                for index, one in enumerate(writers):
                    one.sendall(slow_frame[sent[index] : sent[index] + 1])
                    sent[index] += 1

    try:
        with beside(be_slow):
            measured(broker)
        assert broker.is_running
        memory_kib = int(
            next(
                line.split()[1]
                for line in _status(broker).splitlines()
                if line.startswith("VmRSS:")
            )
        )
        # Pending answers to fifty peers that don't read are bounded.
        assert memory_kib < 600 * 1024
    finally:
        for one in peers:
            one.close()
    until(lambda: broker.is_listening, "the broker to go on")


def _status(broker: BrokerProcess) -> str:
    return Path(f"/proc/{broker.pid}/status").read_text(encoding="ascii")
