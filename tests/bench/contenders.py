"""The brokers that are compared: ours in two ways, and the real ones from their published jars."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.cells import ASYNC, DELAYED_TOPIC, FLUSH, PAIR, QUEUES, TAGGED_TOPIC, TOPIC
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OURS, PYTHON, TWICE = "ours", "python", "ours x2"
REAL = ("4.9.7", "5.3.3")
NAMES = (OURS, PYTHON, TWICE, *REAL)
WORDS = {
    OURS: "ours, compiled",
    PYTHON: "ours, pure Python",
    TWICE: "ours, compiled, 2 brokers",
    "4.9.7": "RocketMQ 4.9.7",
    "5.3.3": "RocketMQ 5.3.3",
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
        """Return the processor time of each thread."""
        found = {}
        for pid in self.pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                # A thread may end while we look.
                with contextlib.suppress(OSError):
                    text = (task / "schedstat").read_text()
                    found[pid, task.name] = int(text.split()[0])
        return found

    def own_bytes(self) -> int:
        """Return the memory that is not a file's (RssAnon)."""
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
) -> Iterator[Running]:
    """Start the brokers of a contender, with the topics of the cells unless they have a store."""
    of_master = dict(keys)
    if setting == FLUSH:
        of_master["flushDiskType"] = "SYNC_FLUSH"
    if setting == PAIR:
        of_master["brokerRole"] = "SYNC_MASTER"
    if store is not None:
        of_master |= {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    with contextlib.ExitStack() as stack:
        start = _real if name in REAL else _ours
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


def supports(name: str, setting: str) -> bool:
    """Tell whether a contender runs in a setting; two masters are measured as they come."""
    return name != TWICE or setting == ASYNC


@dataclass(frozen=True, slots=True)
class _Started:
    port: int
    namesrv: str
    pid: int
    start_seconds: float


def _ours(
    stack: contextlib.ExitStack, name: str, directory: Path, keys: dict[str, object]
) -> _Started:
    broker = BrokerProcess(directory, **keys)
    broker.environment = {"TREBUCHET_NATIVE": "0" if name == PYTHON else "1"}
    began = time.monotonic()
    broker.start()
    seconds = time.monotonic() - began
    stack.callback(broker.stop)
    return _Started(broker.port, broker.namesrv, broker.pid, seconds)


def _real(
    stack: contextlib.ExitStack, name: str, directory: Path, keys: dict[str, object]
) -> _Started:
    peer = stack.enter_context(Peer(name, directory, **keys))
    return _Started(peer.port, peer.namesrv, peer.pid, peer.start_seconds)
