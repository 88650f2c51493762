"""What a message costs the broker: processor time, of one checkout or of two alternately.

    python -m tests.bench [--against OTHER_CHECKOUT] [--rounds 5]

Each round starts a broker of each checkout, loads it with prepared frames, and reads how much
processor time its process has used. The client's own time does not count, and a machine that is
busy with other things disturbs the figures less than it disturbs a rate; still, use a quiet one.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import struct
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.raw_remoting import create_topic, frame, pull_fields

TOPIC = "Bench"
SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, PULL_MESSAGE = 310, 320, 11
BATCH = 32
TICKS = os.sysconf("SC_CLK_TCK")
SUCCESS = b'"code":0'
LENGTHS = struct.Struct(">ii")


class Cell(NamedTuple):
    """One kind of load: `messages` in a request, `window` requests unanswered a connection."""

    name: str
    request: bytes
    messages: int
    requests: int
    connections: int
    window: int


def a_request(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1}
    header |= {"serializeTypeCurrentRPC": "JSON", "version": 407}
    return frame(json.dumps(header, separators=(",", ":")).encode(), body)


def a_send(code: int, body: bytes) -> bytes:
    values = ["bench", TOPIC, "TBW102", "4", "0", "0", "1700000000000", "0", "", "0", "false"]
    fields = dict(zip("abcdefghijk", values, strict=True))
    return a_request(code, fields | {"m": str(code == SEND_BATCH_MESSAGE).lower()}, body)


def a_batch(size: int) -> bytes:
    item = struct.pack(">iiiii", 22 + size, 0, 0, 0, size) + bytes(size) + b"\0\0"
    return item * BATCH


CELLS = (
    Cell("send 1 KiB, window 64", a_send(SEND_MESSAGE_V2, bytes(1024)), 1, 150_000, 1, 64),
    Cell("send 100 B, 4 x 64", a_send(SEND_MESSAGE_V2, bytes(100)), 1, 300_000, 4, 64),
    Cell("batch 32 x 100 B", a_send(SEND_BATCH_MESSAGE, a_batch(100)), BATCH, 20_000, 1, 8),
    Cell("pull 32", a_request(PULL_MESSAGE, pull_fields(TOPIC, 0, 0)), BATCH, 40_000, 1, 1),
)


class Loader:
    """One connection that keeps its window full until all its requests are answered."""

    def __init__(self, port: int, cell: Cell) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self._cell = cell
        self._unsent = cell.requests // cell.connections
        self.unanswered = self._unsent
        self._received = bytearray()
        self._send(cell.window)

    def read(self) -> None:
        """Take the answers that are there, send as many requests."""
        data = self.socket.recv(1 << 20)
        assert data, "the broker closed the connection"
        self._received += data
        answers = 0
        while len(self._received) >= LENGTHS.size:
            length, header = LENGTHS.unpack_from(self._received)
            if len(self._received) < 4 + length:
                break
            assert SUCCESS in self._received[8 : 8 + header], bytes(self._received[8:400])
            del self._received[: 4 + length]
            answers += 1
        self.unanswered -= answers
        self._send(answers)

    def _send(self, count: int) -> None:
        count = min(count, self._unsent)
        self._unsent -= count
        self.socket.sendall(self._cell.request * count)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def load(port: int, cell: Cell) -> None:
    with selectors.DefaultSelector() as selector:
        loaders = [Loader(port, cell) for _ in range(cell.connections)]
        for loader in loaders:
            selector.register(loader.socket, selectors.EVENT_READ, loader)
        while any(loader.unanswered for loader in loaders):
            for key, _ in selector.select(10):
                key.data.read()
        for loader in loaders:
            loader.socket.close()


def measure(checkout: Path) -> dict[str, float]:
    """Return the microseconds of processor a message, by cell."""
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory), mappedFileSizeCommitLog=256 << 20)
        broker.checkout = checkout
        broker.start()
        try:
            create_topic(broker.port, TOPIC)
            for cell in CELLS:
                load(broker.port, cell._replace(requests=cell.requests // 20))
                before = processor_seconds(broker.pid)
                load(broker.port, cell)
                used = processor_seconds(broker.pid) - before
                found[cell.name] = used * 1e6 / (cell.requests * cell.messages)
        finally:
            broker.stop()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    checkouts = [*([asked.against.resolve()] if asked.against else []), ROOT]
    rounds: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    for number in range(asked.rounds):
        # Each first in turn: what runs first finds other caches.
        for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
            rounds[checkout].append(measure(checkout))
    print("µs of processor a message, medians of", asked.rounds, "rounds")
    for cell in CELLS:
        medians = [
            statistics.median(one[cell.name] for one in rounds[checkout]) for checkout in checkouts
        ]
        change = f"  {medians[-1] / medians[0] - 1:+.1%}" if asked.against else ""
        print(f"{cell.name:<24}", *(f"{median:8.2f}" for median in medians), change)
    return 0


if __name__ == "__main__":
    sys.exit(main())
