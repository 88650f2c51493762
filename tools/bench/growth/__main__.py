"""Measure the cost per message for growing queues, consumers, connections, log, cold reads.

    python -m tools.bench.growth [--only queues,log] [--slices 5] [--seconds 3] [--broker NAME]

For each size a small and a large broker run and are loaded alternately for some hundredths of a
second, so that changes in machine speed affect both. The figure is the median over slices of some
seconds, with its 95% confidence interval; the brokers have a processor to themselves, if there are
two. Targets: a message costs at most a tenth more than in the small one, and a consumer far
behind, which reads 50 MB/s from disk, slows sends by at most a fifth. A consumer that reads at
full speed is measured, too, but has no target: if generator, reader and broker share two
processors, it takes a share of them. Everything takes about ten minutes, 15 GB of disk, and
processors without other load.

Queues, consumers and connections of another --broker show the machine's limits: the real ones, or
queues of `floor`, which only receives, writes an entry for each queue in turn, and answers.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker_core.formats.record import encode_blank
from tests.support.log_end import log_end
from tests.support.page_cache import forget
from tests.support.raw_remoting import create_topic
from tests.support.waiting import until
from tools.bench import loads
from tools.bench.cells import ASYNC, GIB, KIB, ONE_KIB, SETTLE, TOPIC, Cell, a_send
from tools.bench.comparison import median_between
from tools.bench.contenders import FLOOR, LOG_FILE_BYTES, OURS, REAL, running
from tools.bench.machine import pin
from tools.bench.peer_comparison import FILLING, slice_of
from tools.results import documents, pages
from tools.results.documents import Growth
from tools.results.machine import about, provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tools.bench.cells import Request
    from tools.bench.contenders import Running
    from tools.bench.loads import Loaded

QUEUES_A_TOPIC = 100
QUEUE_WINDOW = 16
IN_USE = 64
"""The number of open connections that send."""
COST_MAX = 1.1
COLD_RATE_MIN = 0.8
COLD_GIB = 4
COLD_BYTES_A_SECOND = (50_000_000, 0)
"""Of the reader; 0 means full speed."""
COLD_SECONDS = 0.5
"""Length of a slice; short, because data is in memory once it has been read."""
DESCRIPTORS_MORE = 512
TURN_SECONDS = 0.04
WARM_UP_SECONDS = 2.0
TOPIC_SECONDS = 0.2
WINDOW = Cell("window", "", ONE_KIB, window=64)


class Grown(NamedTuple):
    """The result for one size: medians of the small and the large broker, and of their ratios."""

    subject: str
    size: str
    small: float
    grown: float
    ratio: float
    between: tuple[float, float]
    """The 95% confidence interval of the median ratio."""
    unit: str
    is_reached: bool | None
    """None without a target."""

    @classmethod
    def of(
        cls,
        subject: str,
        size: str,
        pairs: Sequence[tuple[float, float]],
        unit: str,
        is_reached: Callable[[float], bool | None],
    ) -> Grown:
        """Return the result of pairs of figures, small and large."""
        small, grown = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratios = sorted(after / before for before, after in pairs)
        ratio, between = statistics.median(ratios), median_between(ratios)
        return cls(subject, size, small, grown, ratio, between, unit, is_reached(ratio))

    def row(self, broker: str, source: Mapping[str, str]) -> Growth:
        """Return the figures in the form of docs/results/growth.json."""
        least, most = self.between
        return Growth(
            **source,
            broker=broker,
            subject=self.subject,
            size=self.size,
            unit=self.unit,
            small=round(self.small, 2),
            grown=round(self.grown, 2),
            change=round(self.ratio - 1, 3),
            between=(round(least - 1, 3), round(most - 1, 3)),
            is_reached=self.is_reached,
        )

    def __str__(self) -> str:
        figures = f"{self.small:12,.2f} {self.grown:12,.2f} {self.unit:<14}"
        mark = {True: "reached", False: "NOT reached", None: ""}[self.is_reached]
        least, most = (f"{each - 1:+.1%}" for each in self.between)
        change = f"{self.ratio - 1:+7.1%} ({least} to {most})"
        return f"{self.subject:<22}{self.size:>16}{figures}{change}  {mark}"


class Plan(NamedTuple):
    """Scope and place of a measurement."""

    slices: int
    seconds: float
    directory: Path
    broker: str
    processors: tuple[Collection[int], Collection[int]]
    """For the load generator, and for the brokers."""


class Under(NamedTuple):
    """A broker and its load for some seconds."""

    broker: Running
    load: Callable[[float], Loaded]


def costs_of(subject: str, size: str, plan: Plan, *sides: Under) -> Iterator[Grown]:
    """Load a small and a large broker alternately; yield the cost of a message.

    With waiting consumers, also yield the cost of a request: a pull may return several messages.
    """
    pairs = []
    by_request = []
    for number in range(-1, plan.slices):
        before = [side.broker.thread_nanoseconds() for side in sides]
        messages, requests = [0, 0], [0, 0]
        for turn in range(round(plan.seconds / TURN_SECONDS)):
            # Alternate the order, because each leaves different caches to its successor.
            for which in (0, 1) if (turn + number) % 2 else (1, 0):
                loaded = sides[which].load(TURN_SECONDS)
                messages[which] += loaded.messages
                requests[which] += loaded.requests
        time.sleep(SETTLE)
        small, grown = (
            _microseconds(side.broker, was) for side, was in zip(sides, before, strict=True)
        )
        if number >= 0:
            pairs.append((small / messages[0], grown / messages[1]))
            if all(requests):
                by_request.append((small / requests[0], grown / requests[1]))
    yield Grown.of(subject, size, pairs, "µs a message", lambda ratio: ratio <= COST_MAX)
    if by_request:
        yield Grown.of(subject, size, by_request, "µs a request", lambda _: None)


def _microseconds(broker: Running, before: Mapping[tuple[int, str], int]) -> float:
    now = broker.thread_nanoseconds()
    return sum(used - before.get(thread, 0) for thread, used in now.items()) / 1e3


def costs_of_cells(
    subject: str, size: str, plan: Plan, *sides: tuple[Running, Cell]
) -> Iterator[Grown]:
    """Load a small and a large broker with requests in turn; yield the cost of a message."""
    with contextlib.ExitStack() as stack:
        loaded = [
            Under(broker, stack.enter_context(loads.Load(broker.ports, cell, is_eager=True)).run)
            for broker, cell in sides
        ]
        yield from costs_of(subject, size, plan, *loaded)


@contextlib.contextmanager
def two_brokers(
    plan: Plan, grown_store: Path | None = None, queues: int = 1
) -> Iterator[tuple[Running, Running]]:
    """Run a small broker and a second one, which will have `queues` queues or has a store."""
    start = partial(running, plan.broker, ASYNC)
    own, brokers_own = plan.processors
    with (
        tempfile.TemporaryDirectory(dir=plan.directory) as directory,
        start(Path(directory, "small"), floor_queues=1) as small,
        start(Path(directory, "grown"), store=grown_store, floor_queues=queues) as grown,
    ):
        if grown_store is not None:
            create_topic(grown.ports[0], TOPIC)
        for one in (small, grown):
            for pid in one.pids:
                pin(pid, brokers_own)
            loads.run(one.ports, WINDOW, WARM_UP_SECONDS)
        pin(os.getpid(), own)
        try:
            yield small, grown
        finally:
            pin(os.getpid(), {*own, *brokers_own})


def queues(plan: Plan) -> Iterator[Grown]:
    """Send to each of 1 to 10,000 queues in turn, in topics with a hundred queues each."""
    one = Cell("one queue", "", (replace(a_send(100), queue=0),), window=QUEUE_WINDOW)
    for count in (100, 1_000, 10_000):
        with two_brokers(plan, queues=count) as (small, grown):
            requests: list[Request] = []
            for number in range(count // QUEUES_A_TOPIC):
                topic = f"{TOPIC}-{number}"
                create_topic(grown.ports[0], topic, queues=QUEUES_A_TOPIC)
                a_topic = a_send(100, topic=topic)
                its = [replace(a_topic, queue=queue) for queue in range(QUEUES_A_TOPIC)]
                # The first message of a queue creates its files.
                made = 0
                with loads.Load(grown.ports, Cell("a topic", "", its)) as load:
                    while made < QUEUES_A_TOPIC:
                        made += load.run(TOPIC_SECONDS).messages
                requests += its
            every = Cell("every queue", "", requests, window=QUEUE_WINDOW)
            both = ((small, one), (grown, every))
            yield from costs_of_cells("queues", f"1 to {count:,}", plan, *both)


def consumers(plan: Plan) -> Iterator[Grown]:
    """Send 2,000 messages a second to as many queues as there are long-polling consumers."""
    # A single waiting consumer sometimes gets several messages at once.
    for few, count in ((1, 10), (10, 100), (10, 1_000)):
        with two_brokers(plan) as (small, grown):
            create_topic(small.ports[0], TOPIC, queues=few)
            create_topic(grown.ports[0], TOPIC, queues=count)
            with (
                loads.EndToEnd(small.ports[0], few) as one,
                loads.EndToEnd(grown.ports[0], count) as many,
            ):
                both = (Under(small, one.run), Under(grown, many.run))
                yield from costs_of("waiting consumers", f"{few} to {count:,}", plan, *both)


def connections(plan: Plan) -> Iterator[Grown]:
    """Send over 64 connections while others are open."""
    for count in (1_000, 5_000):
        with two_brokers(plan) as (small, grown), contextlib.ExitStack() as stack:
            for _ in range(count - IN_USE):
                stack.enter_context(socket.create_connection(("127.0.0.1", grown.ports[0])))
            cell = Cell("64 x 1", "", ONE_KIB, connections=IN_USE)
            both = ((small, cell), (grown, cell))
            yield from costs_of_cells("connections", f"{IN_USE} to {count:,}", plan, *both)


def log(plan: Plan) -> Iterator[Grown]:
    """Send after 1 to 50 GiB of log: sparse files after a blank record."""
    for gib in (1, 50):
        with tempfile.TemporaryDirectory(dir=plan.directory) as directory:
            store = Path(directory, "store")
            # The last file, which has no messages after it, is rewritten.
            write_blank_files(store / "commitlog", gib * GIB // LOG_FILE_BYTES + 1)
            with two_brokers(plan, store) as (small, grown):
                assert log_end(grown.ports[0]) > gib * GIB
                both = ((small, WINDOW), (grown, WINDOW))
                yield from costs_of_cells("log", f"0 to {gib} GiB", plan, *both)


def write_blank_files(directory: Path, count: int) -> None:
    """Write full log files of one blank record each, which take no disk space."""
    directory.mkdir(parents=True)
    blank = bytearray(LOG_FILE_BYTES)
    encode_blank(blank, 0, LOG_FILE_BYTES)
    head = bytes(blank[: 4 * KIB])
    for number in range(count):
        with (directory / f"{number * LOG_FILE_BYTES:020d}").open("wb") as file:
            file.write(head)
            file.truncate(LOG_FILE_BYTES)


def cold_reads(plan: Plan) -> Iterator[Grown]:
    """Send while a consumer pulls messages from disk: at a rate, and at full speed."""
    with tempfile.TemporaryDirectory(dir=plan.directory) as directory:
        store = Path(directory, "store")
        with running(OURS, ASYNC, Path(directory, "filled"), store=store) as one:
            create_topic(one.ports[0], TOPIC)
            while log_end(one.ports[0]) < COLD_GIB * GIB:
                loads.run(one.ports, FILLING, 1.0)
        for bytes_a_second in COLD_BYTES_A_SECOND:
            forget(store)
            name = f"cold-{bytes_a_second}"
            with running(OURS, ASYNC, Path(directory, name), store=store) as one:
                yield _beside_cold_reads(one, plan, bytes_a_second)


def _beside_cold_reads(one: Running, plan: Plan, bytes_a_second: int) -> Grown:
    loads.run(one.ports, WINDOW, WARM_UP_SECONDS)
    pairs = []
    context = multiprocessing.get_context("spawn")
    going, reading = context.Event(), context.Value("q", 0)
    reader = context.Process(
        target=loads.pull_all, args=(one.ports[0], going, reading, bytes_a_second), daemon=True
    )
    reader.start()
    try:
        # A new process on a busy machine may take longer than a slice to start.
        going.set()
        until(lambda: reading.value > 0, "the reader to start")
        going.clear()
        already = reading.value
        for _ in range(plan.slices):
            going.clear()
            alone = slice_of(one, WINDOW, COLD_SECONDS).rate
            before = reading.value
            going.set()
            pairs.append((alone, slice_of(one, WINDOW, COLD_SECONDS).rate))
            assert reading.value > before, "the reader reached the end of the log; use fewer slices"
    finally:
        reader.kill()
        reader.join()
    seconds = plan.slices * COLD_SECONDS
    size = f"{(reading.value - already) / KIB**2 / seconds:,.0f} MiB/s read"
    subject = "cold reads" if bytes_a_second else "cold reads, unpaced"

    def is_reached(ratio: float) -> bool | None:
        return ratio >= COLD_RATE_MIN if bytes_a_second else None

    return Grown.of(subject, size, pairs, "messages/s", is_reached)


SUBJECTS: dict[str, Callable[[Plan], Iterator[Grown]]] = {
    "queues": queues,
    "consumers": consumers,
    "connections": connections,
    "log": log,
    "cold": cold_reads,
}
OF_BROKERS = {OURS: tuple(SUBJECTS), FLOOR: ("queues",)}
OF_BROKERS |= dict.fromkeys(REAL, ("queues", "consumers", "connections"))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", help=f"comma-separated: {','.join(SUBJECTS)} (all)")
    parser.add_argument("--broker", choices=OF_BROKERS, default=OURS, help="default: %(default)s")
    parser.add_argument(
        "--slices", type=int, default=5, help="number of slices of each broker (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="length of a slice (%(default)s)"
    )
    parser.add_argument("--directory", type=Path, help="directory for the stores (/tmp)")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write the results to DOCS/results and update its pages",
    )
    arguments = parser.parse_args()
    possible = OF_BROKERS[arguments.broker]
    expected = arguments.only.split(",") if arguments.only else possible
    for name in expected:
        if name not in possible:
            parser.error(f"{name!r} isn't one of: {', '.join(possible)}")
    # The brokers inherit it.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    directory = arguments.directory or Path(tempfile.gettempdir())
    *own, brokers_own = sorted(os.sched_getaffinity(0))
    processors = (own or [brokers_own], [brokers_own])
    plan = Plan(arguments.slices, arguments.seconds, directory, arguments.broker, processors)
    print(", ".join(f"{key} {value}" for key, value in about().items()))
    print(f"{'':38}{'small':>12} {'grown':>12}")
    results = []
    for name in expected:
        for found in SUBJECTS[name](plan):
            print(found, flush=True)
            results.append(found)
    if arguments.write:
        publish(arguments.write, arguments.broker, results)
    return 1 if any(found.is_reached is False for found in results) else 0


def publish(folder: Path, broker: str, results: Iterable[Grown]) -> None:
    """Write results into a folder of documents, and render its pages."""
    source = provenance("tools.bench.growth")
    documents.record(folder, "growth", [found.row(broker, source) for found in results])
    pages.render(folder)


if __name__ == "__main__":
    sys.exit(main())
