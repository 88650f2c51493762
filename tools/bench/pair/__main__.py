"""Measure a pair: SYNC_MASTER compared with RocketMQ's pair, and an empty slave catching up.

    python -m tools.bench.pair [--rounds 3] [--megabytes 2048] [--without-real]

The first table has the CPU time of both brokers of a pair and the rate of sends, of ours and of
RocketMQ 4.9.7 in turn, slice by slice. The second table has the speed of empty slaves that catch
up one after the other, sharing a warm machine with their master, and the sends meanwhile, compared
with sends just before without a slave, and just after with a slave in sync. Use an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.broker_process import BrokerProcess
from tests.support.log_end import log_end
from tests.support.peer import Peer
from tests.support.raw_remoting import create_topic
from tests.support.waiting import until
from tools.bench import loads
from tools.bench.cells import KIB, ONE_KIB, TOPIC, Cell, a_send
from tools.bench.machine import processor_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VERSION = "4.9.7"
LOG_FILE_BYTES = 256 << 20
CELLS = (
    Cell("window-1", "window 1", ONE_KIB),
    Cell("window-64", "window 64", ONE_KIB, window=64),
)
FILLING = Cell("filling", "", (a_send(64 * KIB),), window=8)
SLICES = 10
SLICE_SECONDS = 0.3
WARM_UP_SECONDS = 6.0
"""The real pair's code is compiled by then."""
CAUGHT_UP_SECONDS = 300.0


class Pair(NamedTuple):
    """A running master and slave, or one of them."""

    port: int
    pids: tuple[int, ...]

    def processor_seconds(self) -> float:
        return sum(map(processor_seconds, self.pids))


class Slice(NamedTuple):
    """A slice of sends: CPU microseconds of the brokers per message, messages/s."""

    cost: float
    rate: float


class CatchUp(NamedTuple):
    """One empty slave: its megabytes and seconds, and the sends in the three states.

    The costs of the sends are the master's alone. They include the master's work for the slave; the
    slave's own use of the shared machine only shows in the rates.
    """

    megabytes: float
    seconds: float
    alone: Slice
    catching_up: Slice
    following: Slice

    @property
    def speed(self) -> float:
        """Megabytes a second."""
        return self.megabytes / self.seconds


@contextlib.contextmanager
def our_pair(directory: Path) -> Iterator[Pair]:
    master = our_master(directory / "master", "SYNC_MASTER")
    master.start()
    slave = our_slave(directory / "slave", master)
    try:
        create_topic(master.port, TOPIC)
        slave.start()
        until_acknowledged(master.port)
        yield Pair(master.port, (master.pid, slave.pid))
    finally:
        slave.kill()
        master.kill()


def our_master(directory: Path, role: str) -> BrokerProcess:
    return BrokerProcess(
        directory,
        brokerRole=role,
        mappedFileSizeCommitLog=LOG_FILE_BYTES,
        # Otherwise an empty slave copies only the last file.
        syncFromLastFile="false",
    )


def our_slave(directory: Path, master: BrokerProcess) -> BrokerProcess:
    return BrokerProcess(
        directory,
        brokerRole="SLAVE",
        brokerId=1,
        haMasterAddress=f"127.0.0.1:{master.port + 1}",
        namesrvAddr=master.namesrv,
        mappedFileSizeCommitLog=LOG_FILE_BYTES,
    )


@contextlib.contextmanager
def real_pair(directory: Path) -> Iterator[Pair]:
    keys = {"mappedFileSizeCommitLog": LOG_FILE_BYTES}
    master = Peer(VERSION, directory / "master", brokerRole="SYNC_MASTER", **keys)
    slave = Peer(
        VERSION,
        directory / "slave",
        brokerRole="SLAVE",
        brokerId=1,
        namesrvAddr=master.namesrv,
        haMasterAddress=f"127.0.0.1:{master.port + 1}",
        **keys,
    )
    master.java_options = slave.java_options = ()
    with master, slave:
        create_topic(master.port, TOPIC)
        until_acknowledged(master.port)
        yield Pair(master.port, (master.pid, slave.pid))


def until_acknowledged(port: int) -> None:
    """Wait until a master has a slave that acknowledges."""

    def is_acknowledged() -> bool:
        try:
            loads.run([port], CELLS[0], 0.0)
        except AssertionError:
            return False
        return True

    until(is_acknowledged, "the slave to connect to the master", seconds=CAUGHT_UP_SECONDS)


def measure(pair: Pair, cell: Cell) -> Slice:
    """Return the cost of one slice of a cell's sends."""
    before = pair.processor_seconds()
    loaded = loads.run([pair.port], cell, SLICE_SECONDS)
    # The slave's work on the last messages comes after the last answer.
    time.sleep(0.05)
    used = pair.processor_seconds() - before
    return Slice(used * 1e6 / loaded.messages, loaded.messages / loaded.seconds)


def compare(rounds: int, *, with_real: bool) -> None:
    """Print the first table."""
    found: dict[tuple[str, str], list[Slice]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            pairs = {"ours": stack.enter_context(our_pair(Path(directory)))}
            if with_real:
                pairs["real"] = stack.enter_context(real_pair(Path(directory) / "real"))
            for pair in pairs.values():
                loads.run([pair.port], CELLS[1], WARM_UP_SECONDS)
            for cell in CELLS:
                for number in range(SLICES):
                    for name in sorted(pairs, reverse=bool(number % 2)):
                        found.setdefault((cell.name, name), []).append(measure(pairs[name], cell))
    print("SYNC_MASTER, 1 KiB: µs of both brokers' CPU time per message, messages/s")
    for cell in CELLS:
        words = []
        for name in ("real", "ours"):
            slices = found.get((cell.name, name), [])
            if slices:
                cost = statistics.median(one.cost for one in slices)
                rate = statistics.median(one.rate for one in slices)
                words.append(f"{name} {cost:7.1f} {rate:8.0f}/s")
        if with_real:
            pairs_of = zip(found[cell.name, "real"], found[cell.name, "ours"], strict=True)
            ratios = [(ours.cost / real.cost, ours.rate / real.rate) for real, ours in pairs_of]
            cost, rate = (statistics.median(column) for column in zip(*ratios, strict=True))
            words.append(f"cost {cost:.2f}, rate {rate:.2f} of the real pair's")
        print(f"{cell.name:<10}", "   ".join(words))


def catch_up(megabytes: int, rounds: int) -> None:
    """Print the second table."""
    found: list[CatchUp] = []
    with tempfile.TemporaryDirectory() as directory:
        master = our_master(Path(directory) / "master", "ASYNC_MASTER")
        try:
            master.start()
            create_topic(master.port, TOPIC)
            while log_end(master.port) < megabytes * KIB * KIB:
                loads.run([master.port], FILLING, 0.5)
            for number in range(rounds):
                slave_directory = Path(directory) / f"slave-{number}"
                found.append(_catch_up_once(master, slave_directory))
                shutil.rmtree(slave_directory)
        finally:
            master.kill()
    print("an empty slave: sends without it, while it catches up, and while it follows:")
    print("µs of the master's CPU time per message, messages/s")
    for one in found:
        states = "   ".join(
            f"{cost:5.1f} {rate:7.0f}/s"
            for cost, rate in (one.alone, one.catching_up, one.following)
        )
        print(f"{one.megabytes:6.0f} MB at {one.speed:4.0f} MB/s   {states}")
    speed = statistics.median(one.speed for one in found)
    print(f"median {speed:.0f} MB/s; sends meanwhile, as a part of those in the other states:")
    for state, others in (
        ("with a slave that is in sync", [one.following for one in found]),
        ("without a slave", [one.alone for one in found]),
    ):
        cost, rate = _ratios(zip([one.catching_up for one in found], others, strict=True))
        print(f"{state:<28} rate {rate:.2f}, master's CPU time {cost:.2f}")


def _ratios(pairs: Iterable[tuple[Slice, Slice]]) -> Slice:
    """Return the medians of cost and rate, as ratios of the first to the second."""
    ratios = [Slice(one.cost / other.cost, one.rate / other.rate) for one, other in pairs]
    return _median(ratios)


def _median(slices: list[Slice]) -> Slice:
    costs, rates = zip(*slices, strict=True)
    return Slice(statistics.median(costs), statistics.median(rates))


def _catch_up_once(master: BrokerProcess, directory: Path) -> CatchUp:
    slave = our_slave(directory, master)
    lone = Pair(master.port, (master.pid,))
    alone = [measure(lone, CELLS[1]) for _ in range(SLICES)]
    end = log_end(master.port)
    catching_up: list[Slice] = []
    done = threading.Event()

    def send() -> None:
        while not done.is_set():
            catching_up.append(measure(lone, CELLS[1]))

    sender = threading.Thread(target=send)
    try:
        slave.start()
        began, has = time.monotonic(), log_end(slave.port)
        sender.start()
        _catch_up(slave, end)
        seconds = time.monotonic() - began
        done.set()
        sender.join()
        _catch_up(slave, log_end(master.port))
        following = [measure(lone, CELLS[1]) for _ in range(SLICES)]
    finally:
        done.set()
        slave.kill()
    medians = map(_median, (alone, catching_up, following))
    return CatchUp((end - has) / 1e6, seconds, *medians)


def _catch_up(slave: BrokerProcess, end: int) -> None:
    until(lambda: log_end(slave.port) >= end, "the slave to catch up", seconds=CAUGHT_UP_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.pair", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of starts of each pair, and of catch-ups"
    )
    parser.add_argument(
        "--megabytes", type=int, default=2_048, help="size of the log that a new slave copies"
    )
    parser.add_argument("--without-real", action="store_true", help="measure only Trebuchet's pair")
    arguments = parser.parse_args()
    compare(arguments.rounds, with_real=not arguments.without_real)
    catch_up(arguments.megabytes, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
