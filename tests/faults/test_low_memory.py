"""A broker that gets no more memory rejects requests, loses nothing, and recovers."""

from __future__ import annotations

import resource
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import checker
from tools.faults.clients import Book, Reader, Sender, Server, as_stored
from tools.faults.operations import Sent, Status

if TYPE_CHECKING:
    import random

    from tools.faults.clients import Client
    from tools.faults.operations import Operation, Stored

TOPIC, GROUP = "scarce", "readers"
QUEUES = 2
AGAIN = 20
LOG_BYTES = 8 << 20
SIZES = (100, 1_000, 100_000, 1_000_000, 3_000_000)
SPARE_BYTES_MAX = 4 << 20
LACK_SECONDS = 3.0
WAIT_SECONDS_MAX = 120.0
JOIN_SECONDS = 60.0
HALF_FRAMES = 10
SYSTEM_ERROR, SYSTEM_BUSY, FLUSH_DISK_TIMEOUT, SERVICE_NOT_AVAILABLE = 1, 2, 10, 14
LACKING = {SYSTEM_ERROR, SYSTEM_BUSY, FLUSH_DISK_TIMEOUT, SERVICE_NOT_AVAILABLE}
UNTIL_A_START = ("refusing writes until a restart",)
"""After an interrupted put or flush, puts are rejected, and the log says so."""


class BigSender(Sender):
    """Sends bodies of all sizes."""

    def __init__(self, *arguments: object, dice: random.Random) -> None:
        super().__init__(*arguments, window=2)
        self._dice = dice
        self._count = 0

    def _next(self) -> bytes:
        self._count += 1
        return f"{self.name}-{self._count}".encode().ljust(self._dice.choice(SIZES), b".")


class HalfFrames(threading.Thread):
    """Makes the broker buffer the beginnings of large frames that never end."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.is_over = False
        self._port = port

    def run(self) -> None:
        frame = raw_remoting.request(
            raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), bytes(SIZES[-1])
        )
        while not self.is_over:
            with ExitStack() as stack, suppress(OSError):
                for _ in range(HALF_FRAMES):
                    one = socket.create_connection(("127.0.0.1", self._port), JOIN_SECONDS)
                    stack.enter_context(one).sendall(frame[:-1])
                time.sleep(0.1)


def address_space(pid: int) -> int:
    pages = int((Path("/proc") / str(pid) / "statm").read_text().split()[0])
    return pages * resource.getpagesize()


def is_unanswered(one: Operation) -> bool:
    """Whether a send was rejected, or its connection ended."""
    return isinstance(one, Sent) and one.status is not Status.OK


def stored(port: int) -> list[Stored]:
    return [
        one
        for queue_id in range(QUEUES)
        for one in as_stored(raw_remoting.read_queue(port, TOPIC, queue_id), TOPIC, queue_id)
    ]


@pytest.mark.fault
@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_without_memory_a_broker_rejects_loses_nothing_and_recovers_automatically(
    tmp_path: Path, rng: random.Random, flush_disk_type: str
) -> None:
    broker = BrokerProcess(
        tmp_path,
        flushDiskType=flush_disk_type,
        mappedFileSizeCommitLog=LOG_BYTES,
        maxHashSlotNum=1_000,
        maxIndexNum=4_000,
    )
    broker.start()
    book = Book()
    place = Server("", "127.0.0.1", broker.port)
    senders = [
        BigSender(lambda: place, f"s{n}", book, (TOPIC, n % QUEUES), dice=rng) for n in range(4)
    ]
    readers = [Reader(lambda: place, f"c{q}", book, (TOPIC, q), group=GROUP) for q in range(QUEUES)]
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=QUEUES)
        clients: list[Client] = [*senders, *readers]
        for one in clients:
            one.start()
        # Early enough that lazily started parts, such as threads, haven't started.
        until(lambda: book.codes[0] > 0, "a send to be acknowledged", every_s=0.001)
        half_frames = HalfFrames(broker.port)
        pid = broker.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        scarce = address_space(pid) + rng.randrange(SPARE_BYTES_MAX)
        resource.prlimit(pid, resource.RLIMIT_AS, (scarce, hard))
        half_frames.start()
        time.sleep(LACK_SECONDS)
        until(lambda: any(map(is_unanswered, book.history)), "memory to run out")
        half_frames.is_over = True
        resource.prlimit(pid, resource.RLIMIT_AS, (hard, hard))
        before = book.codes[0]
        until(
            lambda: (
                book.codes[0] > before + AGAIN
                or any(map(broker.words().__contains__, UNTIL_A_START))
            ),
            "messages to be accepted again",
            seconds=WAIT_SECONDS_MAX,
        )
        for sender in senders:
            sender.stop()
        for thread in (half_frames, *senders):
            thread.join(JOIN_SECONDS)
        assert broker.is_running
        assert broker.pid == pid
        for reader in readers:
            reader.stop()
            reader.join(JOIN_SECONDS)
        assert broker.stop() == 0
        broker.start()
        with RawClient(broker.port) as client:
            for reader in readers:
                while reader.read(client):
                    pass
        report = checker.check([*book.history, *stored(broker.port)])
        assert report.findings == [], str(report)
        assert broker.stop() == 0
    finally:
        for one in (*senders, *readers):
            one.stop()
        broker.kill()
    assert "task stopped" not in broker.words()
    assert {code for code in book.codes if code} <= LACKING
