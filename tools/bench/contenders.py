"""The compared brokers: ours in two variants, and the real ones from their published jars.

Kafka is measured as its clients use it: one record a request, and batches of them.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.kafka import Kafka
from tests.support.peer import Peer
from tests.support.raw_remoting import create_topic
from tools.bench import floor, kafka
from tools.bench.cells import (
    ASYNC,
    BATCH,
    DELAYED_TOPIC,
    END_TO_END,
    FLUSH,
    PAIR,
    QUEUES,
    TAGGED_TOPIC,
    TOPIC,
)
from tools.bench.machine import thread_nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tools.bench.cells import Cell

OURS, PYTHON, TWICE = "ours", "python", "ours x2"
REAL = ("4.9.7", "5.3.3")
KAFKA_VERSION = "4.1.2"
BATCHES = {"kafka": 1, "kafka batched": BATCH}
"""Records per Kafka request."""
FLOOR = "floor"
NAMES = (OURS, PYTHON, TWICE, *REAL, *BATCHES, FLOOR)
WORDS = {
    OURS: "ours, compiled",
    PYTHON: "ours, pure Python",
    TWICE: "ours, compiled, 2 brokers",
    "4.9.7": "RocketMQ 4.9.7",
    "5.3.3": "RocketMQ 5.3.3",
    FLOOR: "minimal C server",
    "kafka": f"Kafka {KAFKA_VERSION}",
    "kafka batched": f"Kafka {KAFKA_VERSION}, {BATCH} per request",
}
LOG_FILE_BYTES = 256 << 20
KEYS: dict[str, object] = {"mappedFileSizeCommitLog": LOG_FILE_BYTES}


@dataclass(frozen=True, slots=True)
class Running:
    """The brokers of one contender."""

    name: str
    ports: Sequence[int]
    pids: Sequence[int]
    start_seconds: float

    def thread_nanoseconds(self) -> dict[tuple[int, str], int]:
        """Return the CPU time of each thread."""
        found: dict[tuple[int, str], int] = {}
        for pid in self.pids:
            found |= thread_nanoseconds(pid)
        return found

    def own_bytes(self) -> int:
        """Return the memory without mapped files (RssAnon)."""
        found = 0
        for pid in self.pids:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    found += int(line.split()[1]) * 1024
        return found


@contextlib.contextmanager
def running(
    name: str,
    setting: str,
    directory: Path,
    *,
    store: Path | None = None,
    keys: Mapping[str, object] = KEYS,
    checkout: Path = ROOT,
    floor_queues: int = 0,
) -> Iterator[Running]:
    """Start the brokers of a contender, with the topics of the cells unless they have a store.

    `checkout`: the checkout of our code to run. `floor_queues`: the number of queues for the floor.
    """
    if name in BATCHES:
        with _kafka(name, setting, directory, store) as found:
            yield found
        return
    if name == FLOOR:
        with running(OURS, ASYNC, directory / "upstream", keys=keys) as before:
            upstream, kept = before.ports[0], directory / "kept"
            with floor.running(upstream, setting, kept, floor_queues) as (port, pid, took):
                yield Running(name, [port], [pid], took)
        return
    of_master = dict(keys)
    if setting == FLUSH:
        of_master["flushDiskType"] = "SYNC_FLUSH"
    if setting == PAIR:
        of_master["brokerRole"] = "SYNC_MASTER"
    if store is not None:
        of_master |= {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    with contextlib.ExitStack() as stack:
        start = _real if name in REAL else functools.partial(_ours, checkout)
        masters = [start(stack, name, directory / "master", of_master)]
        if name == TWICE:
            more = of_master | {"brokerName": "broker-b", "namesrvAddr": masters[0].namesrv}
            masters.append(start(stack, name, directory / "second", more))
        pids = [master.pid for master in masters]
        if setting == PAIR:
            slave_keys = dict(keys) | {
                "brokerRole": "SLAVE",
                "brokerId": 1,
                "namesrvAddr": masters[0].namesrv,
                "haMasterAddress": f"127.0.0.1:{masters[0].port + 1}",
            }
            pids.append(start(stack, name, directory / "slave", slave_keys).pid)
        if store is None:
            for master in masters:
                for topic in (TOPIC, TAGGED_TOPIC, DELAYED_TOPIC):
                    create_topic(master.port, topic, queues=QUEUES)
        ports = [master.port for master in masters]
        yield Running(name, ports, pids, masters[0].start_seconds)


@contextlib.contextmanager
def _kafka(name: str, setting: str, directory: Path, store: Path | None) -> Iterator[Running]:
    keys: dict[str, object] = {"log.segment.bytes": LOG_FILE_BYTES}
    if setting == FLUSH:
        keys["log.flush.interval.messages"] = 1
    place = directory / "store" if store is None else store
    is_new = not place.exists()
    with Kafka(KAFKA_VERSION, directory / "master", place, **keys) as one:
        if is_new:
            kafka.create_topic(one.port, QUEUES, BATCHES[name])
        yield Running(name, [one.port], [one.pid], one.start_seconds)


def supports(name: str, setting: str) -> bool:
    """Whether a contender runs in a setting; two masters are measured as they are."""
    if name in BATCHES or name == FLOOR:
        return setting != PAIR
    return name != TWICE or setting == ASYNC


def cell_of(name: str, cell: Cell) -> Cell | None:
    """Return a cell adapted to a contender, or None if it doesn't take part."""
    if name in BATCHES:
        return kafka.cell_of(cell, BATCHES[name])
    if name == FLOOR:
        return floor.cell_of(cell)
    is_for_two = cell.connections > 1 and cell.kind != END_TO_END
    return cell if name != TWICE or is_for_two else None


@functools.cache
def build(checkout: Path = ROOT) -> None:
    """Compile the turn of a checkout, which its broker needs to start, and log why."""
    subprocess.run([sys.executable, "-m", "broker_core.native.build"], cwd=checkout, check=True)


@dataclass(frozen=True, slots=True)
class _Started:
    port: int
    namesrv: str
    pid: int
    start_seconds: float


def _ours(
    checkout: Path,
    stack: contextlib.ExitStack,
    name: str,
    directory: Path,
    keys: dict[str, object],
) -> _Started:
    if name != PYTHON:
        build(checkout)
    broker = BrokerProcess(directory, **keys)
    broker.checkout = checkout
    broker.environment = {"TREBUCHET_NATIVE": "0" if name == PYTHON else "1"}
    began = time.monotonic()
    broker.start()
    seconds = time.monotonic() - began
    stack.callback(broker.stop)
    return _Started(broker.port, broker.namesrv, broker.pid, seconds)


def _real(
    stack: contextlib.ExitStack, name: str, directory: Path, keys: dict[str, object]
) -> _Started:
    peer = Peer(name, directory, **keys)
    peer.java_options = ()
    stack.enter_context(peer)
    return _Started(peer.port, peer.namesrv, peer.pid, peer.start_seconds)
