"""What the live trace costs a message: each level and kind of watch, beside none.

    python -m tests.bench.tracing [--instructions] [--against OTHER_CHECKOUT] [--slices 20]

One broker is loaded slice by slice, each with another level in force, in turn; the change is the
median over pairs of slices in a row. What counts is processor time of the broker, or with
--instructions what valgrind counts, which no other process disturbs. With --against a broker of
another checkout, such as one from before a change, is what the others are compared with. Last it
says how many sends a second a broker takes that tells everything to one watcher, and whether the
watcher's counts are right.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.__main__ import LENGTHS, SEND_MESSAGE_V2, a_request, processor_seconds
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.raw_remoting import PULL_MESSAGE, create_topic, pull_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE_WATCH, TRACE_UNWATCH, TRACE_LEVEL = 30001, 30002, 30021
TOPIC = "Bench"
KEYS = 512
"""Messages with keys of their own, sent again and again."""
STAGE = re.compile(rb'"stage":"(\w+)"')
SETTLED_SECONDS = 2.0
START_SECONDS = 900.0
"""valgrind takes long to start."""
OFF, RECORDER, SAMPLED, WATCHED, FULL, OTHER = (
    "off",
    "recorder",
    "watched 1/100",
    "watched",
    "full",
    "the other",
)


class Cell(NamedTuple):
    """A load: frames sent in turn, `window` of them unanswered."""

    name: str
    frames: list[bytes]
    requests: int
    messages: int
    window: int


def a_send(number: int) -> bytes:
    values = ["bench", TOPIC, "TBW102", "4", "0", "0", "1700000000000", "0"]
    fields = dict(zip("abcdefgh", values, strict=True))
    key = f"7F0000010000{number:020X}"
    properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    fields |= {"i": properties, "j": "0", "k": "false", "m": "false"}
    return a_request(SEND_MESSAGE_V2, fields, bytes(100))


def a_pull(queue_offset: int, count: int) -> bytes:
    """Return a pull that acknowledges what came before, as those of clients do."""
    fields = pull_fields(TOPIC, 0, queue_offset) | {
        "maxMsgNums": str(count),
        "sysFlag": "5",
        "commitOffset": str(queue_offset),
    }
    return a_request(PULL_MESSAGE, fields)


def cells(scale: int) -> list[Cell]:
    sends = [a_send(number) for number in range(KEYS)]
    pulls = [a_pull(32 * number, 32) for number in range(KEYS // 32)]
    single = [a_pull(number, 1) for number in range(KEYS)]
    return [
        Cell("send, window 64", sends, 3_000 * scale, 1, 64),
        Cell("send, window 1", sends, 500 * scale, 1, 1),
        Cell("pull of 32, acknowledged", pulls, 200 * scale, 32, 1),
        Cell("pull of 1, acknowledged", single, 500 * scale, 1, 1),
    ]


def load(port: int, cell: Cell) -> None:
    """Send a cell's frames until all are answered."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as peer:
        sent, answered, received = 0, 0, bytearray()
        while answered < cell.requests:
            count = min(cell.window - (sent - answered), cell.requests - sent)
            if count:
                at = sent % len(cell.frames)
                frames = (cell.frames * (2 + cell.window // len(cell.frames)))[at : at + count]
                peer.sendall(b"".join(frames))
                sent += count
            data = peer.recv(1 << 20)
            assert data, "the broker closed the connection"
            received += data
            while len(received) >= LENGTHS.size:
                length, header = LENGTHS.unpack_from(received)
                if len(received) < 4 + length:
                    break
                assert b'"code":0' in received[8 : 8 + header], bytes(received[8:400])
                del received[: 4 + length]
                answered += 1


class Watch:
    """Reads what a watcher is sent, in a thread, and counts it."""

    def __init__(self, port: int, wanted: dict[str, object]) -> None:
        self.come: Counter[str] = Counter()
        self.last: dict[str, Any] = {}
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(a_request(TRACE_WATCH, {}, json.dumps(wanted).encode()))
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._begun.wait(60)

    def lacking(self) -> int:
        """Return how many events the broker says are lost, or are still to come."""
        offered = sum(map(int, self.last["offered"].values())) if self.last else 0
        return offered - self.come.total()

    def close(self) -> None:
        """Stop watching; a watch that only loses its connection would be kept for a while."""
        self._socket.sendall(a_request(TRACE_UNWATCH, {}))
        self._socket.shutdown(socket.SHUT_WR)
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        received = bytearray()
        while data := self._socket.recv(1 << 20):
            received += data
            while len(received) >= LENGTHS.size:
                length, header = LENGTHS.unpack_from(received)
                if len(received) < 4 + length:
                    break
                body = bytes(received[8 + header : 4 + length])
                del received[: 4 + length]
                if body:
                    self.come.update(stage.decode() for stage in STAGE.findall(body))
                    self.last = json.loads(body[: body.index(b',"events":')] + b"}")
                self._begun.set()


class Measured:
    """A running broker."""

    def __init__(self, checkout: Path, directory: Path, *, is_counted: bool) -> None:
        self.broker = BrokerProcess(directory, mappedFileSizeCommitLog=256 << 20)
        self.broker.checkout = checkout
        self._counts = directory / "callgrind"
        if is_counted:
            self.broker.prefix = [
                "valgrind",
                "--tool=callgrind",
                f"--callgrind-out-file={self._counts}",
            ]
        self._is_counted = is_counted
        self._dumps = 0
        self.broker.launch()
        until(lambda: self.broker.is_listening, "the broker to listen", seconds=START_SECONDS)
        create_topic(self.broker.port, TOPIC)

    def measure(self, cell: Cell) -> float:
        """Return nanoseconds or instructions a message of one slice."""
        if self._is_counted:
            self._control("-z")
            load(self.broker.port, cell)
            self._control("-d")
            self._dumps += 1
            text = Path(f"{self._counts}.{self._dumps}").read_text()
            used = float(text.rpartition("totals: ")[2].split()[0])
        else:
            before = processor_seconds(self.broker.pid)
            load(self.broker.port, cell)
            used = (processor_seconds(self.broker.pid) - before) * 1e9
        return used / (cell.requests * cell.messages)

    def _control(self, what: str) -> None:
        subprocess.run(
            ["callgrind_control", what, str(self.broker.pid)], check=True, capture_output=True
        )

    def set_level(self, level: str, **more: object) -> None:
        body = json.dumps({"level": level, **more}).encode()
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.broker.port))) as peer:
            peer.sendall(a_request(TRACE_LEVEL, {}, body))
            assert b'"code":0' in peer.recv(1 << 16)

    @contextlib.contextmanager
    def in_force(self, mode: str) -> Iterator[None]:
        """Trace as this mode says."""
        watch = None
        if mode == FULL:
            self.set_level("full", minutes=10)
        elif mode != OTHER:
            self.set_level("off" if mode == OFF else "recorder")
        if mode == SAMPLED:
            watch = Watch(self.broker.port, {"sample": 100})
        elif mode == WATCHED:
            watch = Watch(self.broker.port, {})
        try:
            yield
        finally:
            if watch is not None:
                watch.close()


def measure(
    brokers: dict[str, Measured], scale: int, slices: int, found: dict[tuple[str, str], list[float]]
) -> None:
    """Add what a message costs in each mode, by cell and mode."""
    modes = list(brokers)
    for cell in cells(scale):
        for slice_number in range(-1, slices):
            # Each first in turn: what runs first finds other caches.
            for mode in modes if slice_number % 2 else reversed(modes):
                with brokers[mode].in_force(mode):
                    cost = brokers[mode].measure(cell)
                if slice_number >= 0:
                    found.setdefault((cell.name, mode), []).append(cost)


def rates(measured: Measured) -> None:
    """Print how many sends a second are taken, untraced and all told to one watcher, in turn."""
    cell = cells(10)[0]
    found: dict[str, list[float]] = {OFF: [], WATCHED: []}
    lacking = 0
    for _ in range(3):
        for mode, taken in found.items():
            measured.set_level("off" if mode == OFF else "recorder")
            watch = Watch(measured.broker.port, {}) if mode == WATCHED else None
            began = time.monotonic()
            load(measured.broker.port, cell)
            taken.append(cell.requests / (time.monotonic() - began))
            if watch is not None:
                time.sleep(SETTLED_SECONDS)
                dropped = int(watch.last["dropped"])
                lacking += watch.lacking() - dropped
                print(f"come {watch.come['stored']}, dropped {dropped}, sent {cell.requests}")
                watch.close()
    plain, traced = (statistics.median(found[mode]) for mode in (OFF, WATCHED))
    print(f"sends a second: {plain:.0f} untraced, {traced:.0f} all told ({traced / plain:.0%})")
    print("each event has come or is counted as dropped" if not lacking else f"LACKING {lacking}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tracing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--instructions", action="store_true", help="count by valgrind")
    parser.add_argument("--slices", type=int, default=20)
    asked = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        ours = Measured(ROOT, Path(directory) / "ours", is_counted=asked.instructions)
        brokers = dict.fromkeys((OFF, RECORDER, SAMPLED, WATCHED, FULL), ours)
        if asked.against:
            other = Measured(
                asked.against.resolve(), Path(directory) / "other", is_counted=asked.instructions
            )
            brokers = {OTHER: other, **brokers}
        try:
            measure(brokers, 1 if asked.instructions else 4, asked.slices, found)
            if not asked.instructions:
                rates(ours)
        finally:
            for each in {*brokers.values()}:
                each.broker.stop()
    first = next(iter(brokers))
    print("a message:", "instructions" if asked.instructions else "ns of processor")
    for cell in cells(1):
        for mode in brokers:
            costs = found[cell.name, mode]
            pairs = zip(found[cell.name, first], costs, strict=True)
            ratio = statistics.median(after / before for before, after in pairs)
            cost = statistics.median(costs)
            print(f"{cell.name:<26}{mode:<15}{cost:12.0f}  {ratio - 1:+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
