"""Measure the live trace's cost per message: each level and kind of watch, compared with none.

    python -m tools.bench.tracing [--against OTHER_CHECKOUT] [--slices 20]
    python -m tools.bench.tracing --rates
    python -m tools.bench.tracing --instructions

Two brokers are loaded alternately, for some hundredths of a second each, because a machine's speed
changes every second and must affect both. One of them traces in the first mode, the other in
another, and they swap with the next slice. The change is the median over pairs of slices, with its
95% confidence interval. The brokers have a processor to themselves, if there are two; the load
generator and the watcher use the others. The figures are the CPU time of the broker's loop, which
does all the tracing, and of all threads together, until sent messages are flushed and reported.
Each slice then pulls its messages at the same level. With --against, a broker of another checkout,
such as an earlier one, is compared with ours in each mode. Last it offers OFFERED_RATE sends a
second to a broker that reports every message to one watcher, and prints how many it handles, how
many more it could, and whether the watcher's counts are correct; --rates does only that.
--instructions counts within one process under valgrind, undisturbed by other processes: see
`instructions.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.raw_remoting import PULL_MESSAGE, create_topic, pull_fields
from tests.support.waiting import until
from tools.bench.cells import SEND_MESSAGE_V2, framed
from tools.bench.comparison import median_between
from tools.bench.loads import LENGTHS
from tools.bench.machine import pin, thread_nanoseconds
from tools.bench.tracing import instructions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

TRACE_WATCH, TRACE_UNWATCH, TRACE_LEVEL = 30001, 30002, 30021
TOPIC = "Bench"
BODY_SIZE = 100
KEYS = 500
"""Distinct keys of messages, sent repeatedly; a sample picks its share of them."""
STAGE = re.compile(rb'"stage":"(\w+)"')
SETTLED_SECONDS = 30.0
"""Pending data has arrived by then, even on a busy machine."""
FLUSHED_SECONDS = 0.7
"""Until sent messages are flushed and reported."""
PUSHED_SECONDS = 0.2
"""Until pulled messages are reported."""
OFFERED_RATE, OFFERED_SECONDS, OFFERS_A_SECOND = 20_000, 5.0, 200
GRACE_SECONDS = 0.1
"""Answers within this time count as on time."""
OFF, RECORDER, SAMPLED, RECORDED, WATCHED, FULL = (
    "off",
    "recorder",
    "watched 1/100",
    "and recorder",
    "watched",
    "full",
)
MODES = (OFF, RECORDER, SAMPLED, RECORDED, WATCHED, FULL)
LEVELS = {OFF: "off", RECORDER: "recorder", RECORDED: "recorder"}
"""Other modes are watched alone."""
WANTED: dict[str, dict[str, object]] = {
    SAMPLED: {"sample": instructions.SAMPLE},
    RECORDED: {"sample": instructions.SAMPLE},
    WATCHED: {},
}
"""The watch's parameters, in modes with a watcher."""


def a_request(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """Return a request with complete fields."""
    return framed(code, fields, 1, body)


class Cell(NamedTuple):
    """A load: requests in turn, `window` of them unanswered."""

    name: str
    requests: int
    window: int
    pulled: int = 0
    """How many messages each pulls and acknowledges; 0: it sends one."""


def a_send(number: int, body_size: int = BODY_SIZE) -> bytes:
    values = ["bench", TOPIC, "TBW102", "4", "0", "0", "1700000000000", "0"]
    fields = dict(zip("abcdefgh", values, strict=True))
    key = instructions.a_key(number, is_wanted=number % instructions.SAMPLE == 0)
    properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    fields |= {"i": properties, "j": "0", "k": "false", "m": "false"}
    return a_request(SEND_MESSAGE_V2, fields, bytes(body_size))


def a_pull(queue_offset: int, count: int) -> bytes:
    """Return a pull that acknowledges the previous messages, as clients' pulls do."""
    fields = pull_fields(TOPIC, 0, queue_offset) | {
        "maxMsgNums": str(count),
        "sysFlag": "5",
        "commitOffset": str(queue_offset),
    }
    return a_request(PULL_MESSAGE, fields)


SENDS = [a_send(number) for number in range(KEYS)]
SEND_64, SEND_1 = Cell("send, window 64", 96_000, 64), Cell("send, window 1", 20_000, 1)
PULL_32 = Cell("pull of 32, acknowledged", 3_000, 1, 32)
PULL_1 = Cell("pull of 1, acknowledged", 20_000, 1, 1)
WAYS = {
    "end to end, many at a time": (SEND_64, PULL_32),
    "end to end, one by one": (SEND_1, PULL_1),
}
"""The cost of a message from its send to its acknowledgement: cells one after the other.

In each slice of sends there is a flush, two a second, after which each page of the log costs a
fault: of 60,000 sends at once some had one, and cost a tenth more. No more are sent than the turn
notes of the sample.
"""
CELLS = tuple(cell for cells in WAYS.values() for cell in cells)
TURNS = 8
"""Number of turns per slice: a turn of sends takes as long as the interval between two pushes."""
WARM_UP_SLICES = 2
LOOP, ALL = "the loop", "all threads"


def load(port: int, frames: Sequence[bytes], requests: int, window: int) -> None:
    """Send frames in turn until all requests are answered.

    It polls for answers instead of waiting, so that the broker needn't wake a process, which on a
    virtual machine can take as long as serving several requests, or no time at all.
    """
    many = [*frames] * (2 + window // len(frames))
    with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as peer:
        peer.setblocking(False)
        sent, answers = 0, Answers()
        while answers.count < requests:
            count = min(window - (sent - answers.count), requests - sent)
            if count:
                at = sent % len(frames)
                peer.sendall(b"".join(many[at : at + count]))
                sent += count
            with contextlib.suppress(BlockingIOError):
                data = peer.recv(1 << 20)
                assert data, "the broker closed the connection"
                answers.take(data)


class Answers:
    """Counts the answers in a stream; each must be a success."""

    def __init__(self) -> None:
        self.count = 0
        self._received = bytearray()

    def take(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= LENGTHS.size:
            length, header = LENGTHS.unpack_from(received, at)
            if len(received) - at < 4 + length:
                break
            answer = bytes(received[at + 8 : at + 8 + header])
            assert b'"code":0' in answer, answer
            at += 4 + length
            self.count += 1
        del received[:at]


def offer(port: int, frames: Sequence[bytes]) -> tuple[int, int]:
    """Send at OFFERED_RATE regardless of answers; return the sends, and how many were on time."""
    answers, kept = Answers(), 0
    at_once = OFFERED_RATE // OFFERS_A_SECOND
    offered = round(OFFERED_SECONDS * OFFERS_A_SECOND) * at_once
    with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as peer:
        began = time.monotonic()
        ending = began + OFFERED_SECONDS + GRACE_SECONDS

        def read() -> None:
            nonlocal kept
            while answers.count < offered and (data := peer.recv(1 << 20)):
                answers.take(data)
                if time.monotonic() < ending:
                    kept = answers.count

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        for number in range(offered // at_once):
            time.sleep(max(0.0, began + number / OFFERS_A_SECOND - time.monotonic()))
            at = number * at_once % (len(frames) - at_once)
            peer.sendall(b"".join(frames[at : at + at_once]))
        reader.join()
    return offered, kept


class Watch:
    """Stores a watcher's data, in a thread, and counts it on request.

    Counting meanwhile would disturb the load generator.

    Attributes:
        come: how many events arrived, by stage, at the last call of `waiting`.
        last: the broker's counts of events at that time.
    """

    def __init__(self, port: int, filter_fields: dict[str, object]) -> None:
        self.come: Counter[str] = Counter()
        self.last: dict[str, Any] = {}
        self._received: deque[bytes] = deque()
        self._kept = bytearray()
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(a_request(TRACE_WATCH, {}, json.dumps(filter_fields).encode()))
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._begun.wait(60)

    def waiting(self) -> int:
        """Return how many events have neither arrived nor been counted as dropped."""
        self._count()
        last = self.last
        if not last:
            return 0
        return sum(map(int, last["offered"].values())) - int(last["dropped"]) - self.come.total()

    def close(self) -> None:
        """Stop watching; a watch that only loses its connection would be kept for a while."""
        self._socket.sendall(a_request(TRACE_UNWATCH, {}))
        self._socket.shutdown(socket.SHUT_WR)
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while data := self._socket.recv(1 << 20):
            self._received.append(data)
            self._begun.set()

    def _count(self) -> None:
        kept = self._kept
        while self._received:
            kept += self._received.popleft()
        while len(kept) >= LENGTHS.size:
            length, header = LENGTHS.unpack_from(kept)
            if len(kept) < 4 + length:
                break
            body = bytes(kept[8 + header : 4 + length])
            del kept[: 4 + length]
            if body:
                self.come.update(stage.decode() for stage in STAGE.findall(body))
                self.last = json.loads(body[: body.index(b',"events":')] + b"}")


class Measured:
    """A running broker."""

    def __init__(
        self, checkout: Path, directory: Path, body_size: int, processors: Collection[int]
    ) -> None:
        self._sends = [a_send(number, body_size) for number in range(KEYS)]
        self.broker = BrokerProcess(directory, mappedFileSizeCommitLog=256 << 20)
        self.broker.checkout = checkout
        self.broker.launch()
        until(lambda: self.broker.is_listening, "the broker to listen", seconds=60)
        pin(self.broker.pid, processors)
        create_topic(self.broker.port, TOPIC)
        self._stored = 0
        self._watch: Watch | None = None
        self._watched = ""

    def begin(self) -> None:
        """Begin a slice."""
        self._before = self._nanoseconds()
        self._end = self._stored

    def load(self, cell: Cell, turn: int) -> None:
        """Load the broker in a turn; pulled messages were sent just before."""
        requests = cell.requests // TURNS
        if cell.pulled:
            count = requests * cell.pulled
            first = self._end - count * (TURNS - turn)
            frames = [a_pull(at, cell.pulled) for at in range(first, first + count, cell.pulled)]
            load(self.broker.port, frames, requests, cell.window)
        else:
            load(self.broker.port, self._sends, requests, cell.window)
            self._stored += requests

    def end(self, cell: Cell) -> dict[str, float]:
        """Return the cost of the slice, in nanoseconds per message."""
        messages = cell.requests // TURNS * TURNS * (cell.pulled or 1)
        return {
            name: (after - self._before[name]) / messages
            for name, after in self._nanoseconds().items()
        }

    def _nanoseconds(self) -> dict[str, int]:
        pid = self.broker.pid
        threads = thread_nanoseconds(pid)
        return {LOOP: threads[pid, str(pid)], ALL: sum(threads.values())}

    def set_level(self, level: str, **more: object) -> None:
        body = json.dumps({"level": level, **more}).encode()
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.broker.port))) as peer:
            peer.sendall(a_request(TRACE_LEVEL, {}, body))
            assert b'"code":0' in peer.recv(1 << 16)

    def trace(self, mode: str) -> None:
        """Trace in this mode.

        A watcher stays while tracing is off: its buffers are full after some slices, like those of
        a long-running watch, so that no memory is allocated later.
        """
        if mode != OFF and mode != self._watched:
            self.unwatch()
        if mode == FULL:
            self.set_level("full", minutes=10)
        else:
            self.set_level(LEVELS.get(mode, "watched"))
        if mode in WANTED and self._watch is None:
            self._watch, self._watched = Watch(self.broker.port, WANTED[mode]), mode

    def unwatch(self) -> None:
        """Remove the watcher."""
        if self._watch is not None:
            self._watch.close()
        self._watch, self._watched = None, ""


Found = dict[tuple[str, str], list[tuple[float, float]]]
"""The cost of a message on both sides, by cell or way and by thread group."""


def measure(
    brokers: tuple[Measured, Measured], modes: tuple[str, str], slices: int, *, are_alike: bool
) -> Found:
    """Return the cost of a message, slice by slice; identical brokers swap sides with each."""
    found: Found = {}
    for way, cells in WAYS.items():
        for number in range(-WARM_UP_SLICES, slices):
            sides = brokers[::-1] if are_alike and number % 2 else brokers
            for broker, mode in zip(sides, modes, strict=True):
                broker.trace(mode)
            costs = [a_slice(sides, cell, number // 2) for cell in cells]
            if number < 0:
                continue
            for whose in (LOOP, ALL):
                for cell, cost in zip(cells, costs, strict=True):
                    found.setdefault((cell.name, whose), []).append(cost[whose])
                one, other = (sum(cost[whose][side] for cost in costs) for side in (0, 1))
                found.setdefault((way, whose), []).append((one, other))
    return found


def a_slice(
    sides: tuple[Measured, Measured], cell: Cell, number: int
) -> dict[str, tuple[float, float]]:
    """Return the cost of a message of a slice on both sides, by thread group."""
    for broker in sides:
        broker.begin()
    for turn in range(TURNS):
        # Alternate the order, because each leaves different caches to its successor.
        for broker in sides if (turn + number) % 2 else sides[::-1]:
            broker.load(cell, turn)
    # A broker reports flushes after they are done.
    time.sleep(PUSHED_SECONDS if cell.pulled else FLUSHED_SECONDS)
    one, other = (broker.end(cell) for broker in sides)
    return {whose: (one[whose], other[whose]) for whose in (LOOP, ALL)}


def rates(measured: Measured) -> None:
    """Print how much of OFFERED_RATE is handled, and the maximum rate with everything reported."""
    port = measured.broker.port
    with watched(measured) as watch:
        offered, kept = offer(port, SENDS)
        print(
            f"handled of {OFFERED_RATE} sends per second, all events watched: {kept / offered:.1%}"
        )
        say_counts(watch, offered)
    requests = 10 * 3_000
    found: dict[str, list[float]] = {OFF: [], WATCHED: []}
    for _ in range(3):
        measured.set_level("off")
        began = time.monotonic()
        load(port, SENDS, requests, 64)
        found[OFF].append(requests / (time.monotonic() - began))
        with watched(measured) as watch:
            began = time.monotonic()
            load(port, SENDS, requests, 64)
            found[WATCHED].append(requests / (time.monotonic() - began))
            say_counts(watch, requests)
    plain, traced = (statistics.median(found[mode]) for mode in (OFF, WATCHED))
    print(f"at most {plain:.0f} sends per second untraced, {traced:.0f} with all events watched")


@contextlib.contextmanager
def watched(measured: Measured) -> Iterator[Watch]:
    """Report everything to one watcher."""
    measured.set_level("watched")
    watch = Watch(measured.broker.port, {})
    try:
        yield watch
    finally:
        watch.close()


def say_counts(watch: Watch, sent: int) -> None:
    """Print how many events arrived, and whether the rest is counted as dropped."""
    time.sleep(FLUSHED_SECONDS)
    ending = time.monotonic() + SETTLED_SECONDS
    while watch.waiting() and time.monotonic() < ending:
        time.sleep(0.1)
    dropped, lacking = int(watch.last["dropped"]), watch.waiting()
    stored = int(watch.last["offered"]["stored"])
    is_right = stored == sent and not lacking
    print(
        f"sent {sent}, reported {watch.come['stored']} as stored, dropped {dropped} events:",
        "all events are accounted for"
        if is_right
        else f"MISSING {sent - stored} stored, {lacking} events",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.tracing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions with valgrind"
    )
    parser.add_argument("--rates", action="store_true", help="only measure the sustained rates")
    parser.add_argument("--slices", type=int, default=20)
    parser.add_argument(
        "--body-size", type=int, default=BODY_SIZE, help="body size of each message in bytes"
    )
    parser.add_argument(
        "--modes",
        nargs="+",
        choices=MODES,
        default=MODES,
        help="modes to compare; the first is the baseline",
    )
    arguments = parser.parse_args()
    if arguments.instructions:
        print("instructions per message")
        for line in instructions.table(instructions.measure()):
            print(line)
        return 0
    *own, brokers_own = sorted(os.sched_getaffinity(0))
    pin(os.getpid(), own or [brokers_own])
    checkouts = (ROOT, (arguments.against or ROOT).resolve())
    with tempfile.TemporaryDirectory() as directory:
        one, other = (
            Measured(checkout, Path(directory) / str(number), arguments.body_size, [brokers_own])
            for number, checkout in enumerate(checkouts)
        )
        try:
            if not arguments.rates:
                compare(
                    one,
                    other,
                    arguments.modes,
                    arguments.slices,
                    are_alike=arguments.against is None,
                )
            rates(one)
        finally:
            for each in (one, other):
                each.broker.stop()
    return 0


def compare(
    one: Measured, other: Measured, modes: Sequence[str], slices: int, *, are_alike: bool
) -> None:
    """Print the cost of each mode compared with the first, or with another checkout."""
    print("a message: ns of CPU time, the change, and where it lies in 95 of 100 cases")
    first, *others = modes
    compared = [(first, mode) for mode in others] if are_alike else [(each, each) for each in modes]
    for sides in compared:
        found = measure((other, one), sides, slices, are_alike=are_alike)
        for each in (one, other):
            each.unwatch()
        for (name, whose), costs in found.items():
            before, after = (statistics.median(side) for side in zip(*costs, strict=True))
            changes = [math.log(cost / base) for base, cost in costs]
            pairs = sorted(sum(pair) / 2 for pair in zip(changes[::2], changes[1::2], strict=False))
            middle, least, most = (
                math.expm1(each) for each in (statistics.median(pairs), *median_between(pairs))
            )
            print(
                f"{name:<26}{whose:<12}{sides[0]:<14}{before:8.0f}  {sides[1]:<14}{after:8.0f}  "
                f"{middle:+.1%} ({least:+.1%} to {most:+.1%})"
            )


if __name__ == "__main__":
    sys.exit(main())
