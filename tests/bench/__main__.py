"""What a message costs the broker: beside the real ones, or --against another checkout.

With --against, each round starts a broker of each checkout and loads them in turn, slice by slice,
with prepared frames; what counts is the processor time of the broker's threads, not the client's.
The change is the median over pairs of slices in a row, so that a machine whose pace varies disturbs
it little; still, use a quiet one.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import statistics
import struct
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.bench import cells, compared, contenders
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.raw_remoting import create_topic, frame, pull_fields

TOPIC = "Bench"
SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, PULL_MESSAGE = 310, 320, 11
BATCH = 32
SLICES = 25
WARM_UP_SLICES = 2
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
    Cell(
        "pull 1",
        a_request(PULL_MESSAGE, pull_fields(TOPIC, 0, 0, max_msg_nums=1)),
        1,
        60_000,
        1,
        1,
    ),
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
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


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


class Measured:
    """A running broker of one checkout."""

    def __init__(self, checkout: Path, directory: Path) -> None:
        self._broker = BrokerProcess(directory, mappedFileSizeCommitLog=256 << 20)
        self._broker.checkout = checkout
        self._broker.start()
        create_topic(self._broker.port, TOPIC)

    def measure(self, cell: Cell) -> float:
        """Return the microseconds of processor a message of one slice of a cell's load."""
        before = processor_seconds(self._broker.pid)
        load(self._broker.port, cell)
        used = processor_seconds(self._broker.pid) - before
        return used * 1e6 / (cell.requests * cell.messages)

    def stop(self) -> None:
        self._broker.stop()


def measure(checkouts: list[Path], found: dict[tuple[str, int], list[float]]) -> None:
    """Add the slices of one pair of brokers, by cell and the number of the checkout."""
    with tempfile.TemporaryDirectory() as directory:
        brokers = [
            Measured(checkout, Path(directory) / str(number))
            for number, checkout in enumerate(checkouts)
        ]
        try:
            for cell in CELLS:
                part = cell._replace(requests=cell.requests // SLICES)
                for slice_number in range(-WARM_UP_SLICES, SLICES):
                    # Each first in turn: what runs first finds other caches.
                    order = range(len(brokers)) if slice_number % 2 else range(len(brokers))[::-1]
                    for number in order:
                        cost = brokers[number].measure(part)
                        if slice_number >= 0:
                            found.setdefault((cell.name, number), []).append(cost)
        finally:
            for broker in brokers:
                broker.stop()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=f"{__doc__}\n{compared.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, help="starts of each broker (3; --against: 5)")
    parser.add_argument("--quick", action="store_true", help="four cells, two brokers, one round")
    parser.add_argument("--cells", help="by comma: " + ", ".join(one.key for one in cells.CELLS))
    parser.add_argument("--brokers", help="by comma: " + ", ".join(contenders.NAMES))
    parser.add_argument("--seconds", type=float, help="of a slice (1; --quick: 0.5)")
    parser.add_argument(
        "--store-gib", type=float, default=4.0, help="of the store to start with (4), 0 for none"
    )
    parser.add_argument("--directory", type=Path, help="for the stores: some 30 GB; default: /tmp")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every slice there")
    parser.add_argument(
        "--write", type=Path, metavar="DOCS", help="put the figures into performance.md there"
    )
    return parser.parse_args()


def main() -> int:
    asked = parse()
    return against(asked) if asked.against else compared.main(asked)


def against(asked: argparse.Namespace) -> int:
    """Compare two checkouts."""
    rounds = asked.rounds or 5
    checkouts = [asked.against.resolve(), ROOT]
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        measure(checkouts, found)
    print("µs of processor a message, medians of", rounds, "x", SLICES, "slices")
    for cell in CELLS:
        medians = [statistics.median(found[cell.name, number]) for number in range(len(checkouts))]
        # What disturbs the machine for a while disturbs two slices in a row alike.
        pairs = zip(found[cell.name, 0], found[cell.name, 1], strict=True)
        ratio = statistics.median(after / before for before, after in pairs)
        change = f"  {ratio - 1:+.1%}"
        print(f"{cell.name:<24}", *(f"{median:8.2f}" for median in medians), change)
    return 0


if __name__ == "__main__":
    sys.exit(main())
