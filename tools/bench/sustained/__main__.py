"""Measure the broker under a steady load: memory, latencies, and rolls to a new file.

    python -m tools.bench.sustained [--minutes 10] [--part 0.7] [--rate SENDS] [--broker NAME]

Finds the maximum rate of sends on one connection and the disk's steady write rate, then sends at
70 % of the lower one for ten minutes, on a fixed schedule whether or not the previous send is
answered; a latency is measured from the scheduled time. Targets: no memory growth after the first
minute, p99.9 under 5 ms outside of rolls of the log's files, and at most 20 ms at a roll. Files
expire as soon as they are full and flushed, so that retention, which starts after a minute, limits
the log to that first minute's size; the program prints the required disk space at the start. It
needs processors without other load: `waited` is for how many milliseconds of a second the loop's
thread was runnable without a processor.

Another --broker shows the machine's limits: the real ones, or `floor`, which only receives, stores
and answers (`tools/bench/floor.c`). Rolls of other brokers aren't detected, and count as other
sends.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import re
import selectors
import shutil
import statistics
import sys
import tempfile
import time
from array import array
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.formats.cq_unit import UNIT_SIZE
from tests.support.log_end import log_end
from tools.bench import loads
from tools.bench.cells import ASYNC, FIRST_OPAQUE, GIB, KIB, ONE_KIB, QUEUES, Cell, a_send
from tools.bench.contenders import FLOOR, OURS, REAL, Running, running
from tools.results import documents, pages
from tools.results.documents import Spread, SteadyLoad
from tools.results.machine import about, provenance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from numpy.typing import NDArray

WINDOW = Cell("window", "", ONE_KIB, window=256)
WARM_UP_SECONDS = 6.0
MOST_SECONDS = 5.0
DISK_BYTES, DISK_PIECE = 6 * GIB, 128 << 20
"""Amount written to measure the disk's rate: more than its cache can hold."""
UNCLEANED_SECONDS = 100.0
"""Time of unexpired log: retention starts after a minute, and deletes every ten seconds."""
SLICE_SECONDS = 10.0
SETTLED_SLICES = 6
"""One-time allocations are done after a minute."""
SENT_AT_ONCE = 64
ROLL_SECONDS = 0.25
"""A roll, and catching up after it, takes less than this."""
P999_MS, ROLL_MS = 5.0, 20.0
GROWTH_MAX = 1.02
RECORD_MORE = 200
"""Maximum size of a record, its unit and its share of an index, excluding the body."""
MESSAGE_ID = re.compile(rb'"msgId":"([0-9A-Fa-f]+)"')


class Slice(NamedTuple):
    """Ten seconds: sends per second, their latencies in milliseconds, and private memory in MB.

    Attributes:
        p999: of the sends that aren't near a roll.
        roll: the highest latency near a roll, 0 without a roll.
        waited: milliseconds of a second that the loop's thread waited for a processor.
    """

    rate: float
    p50: float
    p99: float
    p999: float
    roll: float
    megabytes: float
    waited: float

    @classmethod
    def of(cls, answers: Answers, seconds: float, own_bytes: int, waited_ns: int) -> Slice:
        """Compute a slice's figures from its answers."""
        near, others = answers.split_at_rolls()
        count = len(near) + len(others)
        roll = int(near.max(initial=0)) / 1e6
        places = [int((len(others) - 1) * part) for part in (0.5, 0.99, 0.999)]
        # Sorted only as far as needed, because other threads run meanwhile.
        p50, p99, p999 = (np.partition(others, places)[places] / 1e6).tolist()
        waited = waited_ns / 1e6 / seconds
        return cls(count / seconds, p50, p99, p999, roll, own_bytes / 1e6, waited)


class Answers:
    """The answers of one slice: scheduled times, latencies and rolls."""

    def __init__(self) -> None:
        self.due = array("q")
        self.latencies = array("q")
        self.rolls: list[int] = []

    def split_at_rolls(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the latencies near a roll, and the others."""
        reach = int(ROLL_SECONDS * 1e9)
        due = np.frombuffer(self.due, np.int64)
        latencies = np.frombuffer(self.latencies, np.int64)
        is_near = np.zeros(len(due), np.bool_)
        for roll in self.rolls:
            first, last = np.searchsorted(due, (roll - reach, roll + reach + 1))
            is_near[first:last] = True
        return latencies[is_near], latencies[~is_near]


class SteadySender(loads.Connection):
    """Sends at a fixed rate, regardless of unanswered sends."""

    def __init__(self, port: int, rate: float, file_bytes: int) -> None:
        super().__init__(port)
        self._frames = [a_send(KIB).frame(FIRST_OPAQUE, queue) for queue in range(QUEUES)]
        self._rate = rate
        self._file_bytes = file_bytes
        self._file = -1
        self._due: deque[int] = deque()
        self._began = time.perf_counter_ns()
        self._sent = 0

    def run(self, seconds: float) -> Answers:
        """Continue for some seconds; return the answers of that time."""
        found = Answers()
        until = time.perf_counter_ns() + int(seconds * 1e9)
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            while (now := time.perf_counter_ns()) < until:
                self._send(now)
                if selector.select(max(0.0, (self._due_at(self._sent) - now) / 1e9)):
                    self._read(found)
        return found

    def _due_at(self, number: int) -> int:
        return self._began + int(number * 1e9 / self._rate)

    def _send(self, now: int) -> None:
        count = min(SENT_AT_ONCE, 1 + int((now - self._due_at(self._sent)) * self._rate / 1e9))
        if count > 0 and now >= self._due_at(self._sent):
            numbers = range(self._sent, self._sent + count)
            self._due.extend(map(self._due_at, numbers))
            self._sent += count
            self.socket.sendall(b"".join(self._frames[number % QUEUES] for number in numbers))

    def _read(self, found: Answers) -> None:
        now = 0
        header = b""
        for header, _ in self.frames():
            now = now or time.perf_counter_ns()
            assert loads.SUCCESS.search(header), header[:400]
            # Answers on one connection arrive in the order of its sends.
            due = self._due.popleft()
            found.due.append(due)
            found.latencies.append(now - due)
        message_id = MESSAGE_ID.search(header)
        if message_id is not None:
            file = int(message_id[1][-16:], 16) // self._file_bytes
            if file != self._file and self._file >= 0:
                found.rolls.append(now)
            self._file = file


def most(one: Running) -> tuple[float, float]:
    """Return the maximum rate of answered sends, and the log bytes of each."""
    loads.run(one.ports, WINDOW, WARM_UP_SECONDS)
    before = log_end(one.ports[0])
    messages = loads.run(one.ports, WINDOW, MOST_SECONDS).messages
    return messages / MOST_SECONDS, (log_end(one.ports[0]) - before) / messages


def disk_rate(directory: Path) -> float:
    """Return the disk's steady write rate in bytes per second, flushed like the log."""
    piece = os.urandom(1 << 20) * (DISK_PIECE >> 20)
    path = directory / "rate"
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(DISK_BYTES // DISK_PIECE):
            file.write(piece)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - began
    path.unlink()
    return DISK_BYTES / seconds


def verdicts(slices: list[Slice]) -> list[tuple[str, bool]]:
    """Return the sentences about the slices, each with whether it meets its target."""
    settled = settled_of(slices)
    p999 = max(each.p999 for each in settled)
    roll = max(each.roll for each in settled)
    first, last = memory_of(settled)
    return [
        (f"p99.9 at most {p999:.2f} ms, target {P999_MS:g}", p999 <= P999_MS),
        (f"latest send at a roll {roll:.2f} ms, target {ROLL_MS:g}", roll <= ROLL_MS),
        (
            f"own memory {first:.1f} MB in the first half, {last:.1f} MB in the second",
            last <= first * GROWTH_MAX,
        ),
    ]


def settled_of(slices: list[Slice]) -> list[Slice]:
    """Return the slices after the warm-up, which has the one-time allocations."""
    return slices[SETTLED_SLICES:] or slices


def memory_of(slices: list[Slice]) -> tuple[float, float]:
    """Return the median memory in MB of the first and the second half."""
    half = len(slices) // 2
    first, last = (
        statistics.median(each.megabytes for each in part)
        for part in (slices[: half or 1], slices[half:])
    )
    return first, last


def row_of(
    slices: list[Slice], broker: str, rate: float, minutes: float, source: Mapping[str, str]
) -> SteadyLoad:
    """Return the figures in the form of docs/results/steady_load.json."""
    settled = settled_of(slices)
    first, last = memory_of(settled)
    # A slice in which no file filled up has no roll.
    rolls = [each.roll for each in settled if each.roll]
    return SteadyLoad(
        **source,
        broker=broker,
        rate=round(rate),
        minutes=minutes,
        p50_ms=round(statistics.median(each.p50 for each in settled), 2),
        p99_ms=_spread(each.p99 for each in settled),
        p999_ms=_spread(each.p999 for each in settled),
        roll_ms=_spread(rolls) if rolls else None,
        memory_mb=(round(first, 1), round(last, 1)),
    )


def _spread(values: Iterable[float]) -> Spread:
    found = sorted(round(value, 2) for value in values)
    return found[0], round(statistics.median(found), 2), found[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.sustained",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="default: %(default)s")
    parser.add_argument(
        "--part", type=float, default=0.7, help="fraction of the maximum rate (%(default)s)"
    )
    parser.add_argument(
        "--rate", type=float, help="sends per second, instead of a fraction of the maximum"
    )
    parser.add_argument(
        "--broker", choices=(OURS, *REAL, FLOOR), default=OURS, help="default: %(default)s"
    )
    parser.add_argument("--log-file-mib", type=int, default=1024, help="default: %(default)s")
    parser.add_argument("--directory", type=Path, help="directory for the store (/tmp)")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write the results to DOCS/results and update its pages",
    )
    arguments = parser.parse_args()
    if arguments.broker == FLOOR and not arguments.rate:
        parser.error("the floor doesn't report its log size; add --rate")
    gc.disable()
    print(", ".join(f"{key} {value}" for key, value in about().items()))
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        file_bytes = arguments.log_file_mib << 20
        disk_bytes = 0.0 if arguments.rate else disk_rate(Path(directory))
        with running(
            arguments.broker, ASYNC, Path(directory, "broker"), keys=keys_of(file_bytes)
        ) as one:
            rate = arguments.rate or arguments.part * at_most(one, disk_bytes)
            slices = sustained(one, arguments.minutes * 60, rate, file_bytes, Path(directory))
    if not slices:
        return 2
    if arguments.write:
        source = provenance("tools.bench.sustained")
        row = row_of(slices, arguments.broker, rate, arguments.minutes, source)
        documents.record(arguments.write, "steady_load", [row])
        pages.render(arguments.write)
    is_reached = True
    for verdict, is_good in verdicts(slices):
        print(f"{verdict}: {'reached' if is_good else 'NOT reached'}")
        is_reached &= is_good
    return 0 if is_reached else 1


def keys_of(file_bytes: int) -> dict[str, object]:
    """Return the broker's configuration: full files expire, and are deleted at any hour."""
    return {
        "mappedFileSizeCommitLog": file_bytes,
        "fileReservedTime": 0,
        "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    }


def at_most(one: Running, disk_bytes: float) -> float:
    """Return the maximum send rate of broker and disk; print both."""
    answered, size = most(one)
    written = disk_bytes / (size + UNIT_SIZE)
    print(
        f"the broker answered at most {answered:,.0f} sends per second; the disk writes "
        f"{disk_bytes / 1e6:,.0f} MB/s, which is {written:,.0f} sends of {size:,.0f} bytes"
    )
    return min(answered, written)


def sustained(
    one: Running, seconds: float, rate: float, file_bytes: int, directory: Path
) -> list[Slice]:
    """Load a broker, and print each slice; do nothing if there isn't enough disk space."""
    needed = rate * min(seconds, UNCLEANED_SECONDS) * (KIB + RECORD_MORE) + 2 * file_bytes
    free = shutil.disk_usage(directory).free
    print(f"{rate:,.0f} sends per second, {needed / GIB:.0f} GiB of {free / GIB:.0f} available")
    if needed > free:
        print("Not enough disk space; choose a lower --rate or another --directory.")
        return []
    print(
        f"{'s':>6}{'sends/s':>10}{'p50 ms':>9}{'p99':>9}{'p99.9':>9}{'at rolls':>10}{'MB':>8}"
        f"{'waited':>8}"
    )
    sender = SteadySender(one.ports[0], rate, file_bytes)
    counting: deque[Future[Slice]] = deque()
    found: list[Slice] = []
    before = log_end(one.ports[0])
    slices = math.ceil(seconds / SLICE_SECONDS)
    waited = waited_nanoseconds(one.pids[0])
    with ThreadPoolExecutor(1, "figures") as thread:
        for _ in range(slices):
            answers = sender.run(SLICE_SECONDS)
            # The next send is due, and time spent here would count as the broker's.
            before_ns, waited = waited, waited_nanoseconds(one.pids[0])
            figures = (answers, SLICE_SECONDS, one.own_bytes(), waited - before_ns)
            counting.append(thread.submit(Slice.of, *figures))
            while counting and counting[0].done():
                found.append(counting.popleft().result())
                say(found)
        for last in counting:
            found.append(last.result())
            say(found)
    sender.socket.close()
    print(f"{(log_end(one.ports[0]) - before) / GIB:.1f} GiB of log")
    return found


def waited_nanoseconds(pid: int) -> int:
    """Return how long a process's first thread, our loop's, was runnable without running."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1])


def say(found: list[Slice]) -> None:
    """Print the last slice."""
    each = found[-1]
    print(
        f"{len(found) * SLICE_SECONDS:6.0f}{each.rate:10,.0f}{each.p50:9.2f}{each.p99:9.2f}"
        f"{each.p999:9.2f}{each.roll:10.2f}{each.megabytes:8.1f}{each.waited:8.0f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
