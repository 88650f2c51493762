"""The cluster of a chaos run: a name server, a master and its slave on hosts of their own.

Each broker's store is a tmpfs, so that its disk can fill up alone, and its wall clock is `stepped`.
Who is master changes with failovers; the brokers' names stay.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.faults.clients import ANSWER_SECONDS, Server
from tests.faults.operations import Cause, Happened, Started
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.broker_set import PROMOTE_BROKER, master_of, replication_state
from tests.support.ports import accepts
from tests.support.raw_remoting import RawClient
from tests.support.stepped import step
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Self

    from tests.faults.clients import Book
    from tests.support.network import Network

NAMESRV, A, B, CLIENTS = "namesrv", "a", "b", "clients"
HOSTS = [NAMESRV, A, B, CLIENTS]
TOPIC, QUEUES = "chaos", 4
LISTEN_PORT, NAMESRV_PORT = 10_911, 9_876
BROKER_NAME = "tried"
START_SECONDS_MAX = 120.0
ROLE_SECONDS_MAX = 120.0
ROUTE_SECONDS = 1.0
WORDS_SHOWN = 3_000
DELAY_SECONDS = 1
FILL_TRIES = 20
KEYS: dict[str, object] = {
    "brokerName": BROKER_NAME,
    "listenPort": LISTEN_PORT,
    "namesrvAddr": "",
    # Small, so that a full disk is felt within the seconds that it lasts.
    "mappedFileSizeCommitLog": 128 << 10,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 100_000,
    "messageDelayLevel": f"{DELAY_SECONDS}s 2s",
    "slaveTimeout": 1_000,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 2_000,
    "registerNameServerPeriod": 10_000,
    # Nothing is to be removed because a disk is full.
    "cleanFileForciblyEnable": "false",
    # So long that no transaction is checked, and none is given up.
    "transactionTimeOut": 3_600_000,
}


@dataclass
class Node:
    """One server: its process, its host, and the file that steps its clock."""

    name: str
    process: BrokerProcess
    address: str
    port: int
    clock: Path

    @property
    def server(self) -> Server:
        return Server(self.name, self.address, self.port)


class Cluster:
    """Three servers, started when the block begins."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        book: Book,
        flush_disk_type: str,
        *,
        disk_mib: int,
    ) -> None:
        self.network = network
        self.book = book
        self._directory = directory
        self._disk_mib = disk_mib
        self._mounted: list[Path] = []
        namesrv: dict[str, object] = {
            "namesrvAddr": "",
            "listenPort": NAMESRV_PORT,
            "kvConfigPath": directory / "kv.json",
        }
        self.namesrv = self._node(NAMESRV, NAMESRV_PORT, namesrv, ["broker_core", "namesrv"])
        keys = {
            **KEYS,
            "namesrvAddr": f"{self.namesrv.address}:{NAMESRV_PORT}",
            "flushDiskType": flush_disk_type,
        }
        self.master = self._node(A, LISTEN_PORT, {**keys, "brokerRole": "SYNC_MASTER"})
        slave = {**keys, "brokerRole": "SLAVE", "brokerId": 1}
        self.slave = self._node(B, LISTEN_PORT, slave)
        self._known = self.master.server

    @property
    def nodes(self) -> tuple[Node, Node, Node]:
        return self.namesrv, self.master, self.slave

    def __enter__(self) -> Self:
        try:
            for broker in (self.master, self.slave):
                self._mount(broker.process.store)
            for node in self.nodes:
                self.launch(node)
            self.wait_for_up(*self.nodes)
            fields = raw_remoting.topic_fields(TOPIC, QUEUES)
            answer = self.ask(self.master, raw_remoting.UPDATE_AND_CREATE_TOPIC, fields)
            assert answer.code == raw_remoting.SUCCESS, answer
            # A slave asks for topics every ten seconds, and no promotion may come before.
            topics = self.slave.process.store / "config/topics.json"
            until(
                lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text(),
                "the slave to know the topic",
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.process.kill()
        while self._mounted:
            place = str(self._mounted.pop())
            if subprocess.run(["umount", place], capture_output=True, check=False).returncode:
                subprocess.run(["umount", "--lazy", place], check=False)

    def launch(self, node: Node) -> None:
        """Start a server; its clock is right."""
        step(node.clock, 0)
        node.process.launch()
        self.book.history.append(Started(node.name, time.monotonic_ns()))

    def kill(self, node: Node) -> None:
        node.process.kill()
        self.book.history.append(Happened(Cause.CRASH, time.monotonic_ns()))

    def stop(self, node: Node) -> None:
        """Stop a server; one that does not, or not cleanly, is wrong."""
        try:
            code = node.process.stop()
        except subprocess.TimeoutExpired:
            os.kill(node.process.pid, signal.SIGABRT)
            code = node.process.wait()
        assert code == 0, f"{node.name} stopped with {code}"

    def wait_for_up(self, *nodes: Node) -> None:
        """Wait until servers that were started listen."""
        for node in nodes:

            def is_up(node: Node = node) -> bool:
                assert node.process.is_running, f"{node.name} ended at its start"
                with self.inside():
                    return accepts(node.port, node.address)

            until(is_up, f"{node.name} to listen", seconds=START_SECONDS_MAX)

    def fail_over(self) -> None:
        """Promote the slave of a master that was killed."""

        def is_promoted() -> bool:
            try:
                answer = self.ask(
                    self.slave, PROMOTE_BROKER, {"brokerRole": "", "force": "false"}, seconds=60.0
                )
            except OSError:
                return False
            # The connections of a killed process take a moment to be gone.
            return answer.code == raw_remoting.SUCCESS

        until(is_promoted, "the slave to be promoted", seconds=ROLE_SECONDS_MAX)
        self.book.history.append(Happened(Cause.FAILOVER, time.monotonic_ns()))
        self.master, self.slave = self.slave, self.master

    def wait_for_slave(self) -> None:
        """Wait until the old master, started again, follows the new one."""

        def is_slave() -> bool:
            return self._state(self.slave).get("brokerRole") == "SLAVE"

        until(is_slave, "the old master to be a slave", seconds=ROLE_SECONDS_MAX)

    def until_same(self) -> int:
        """Wait until both logs have one length and epochs; return that length."""
        found: list[int] = []

        def is_same() -> bool:
            ours, theirs = self._state(self.master), self._state(self.slave)
            found[:] = [int(ours.get("maxOffset", -1))]
            return bool(ours) and all(
                ours[key] == theirs.get(key) for key in ("maxOffset", "epochs")
            )

        until(is_same, "both logs to be the same", seconds=ROLE_SECONDS_MAX)
        return found[0]

    @contextmanager
    def paused(self, *nodes: Node) -> Iterator[None]:
        for node in nodes:
            os.kill(node.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for node in nodes:
                os.kill(node.process.pid, signal.SIGCONT)

    @contextmanager
    def full_disk(self, node: Node, spare_bytes: int) -> Iterator[None]:
        """Fill up a broker's file system but for some bytes."""
        filler = node.process.store / "filler"
        try:
            with filler.open("wb") as file:
                # The broker writes meanwhile: what was free may not be, a moment later.
                for _ in range(FILL_TRIES):
                    found = os.statvfs(node.process.store)
                    size = found.f_bavail * found.f_frsize - spare_bytes
                    with suppress(OSError):
                        os.posix_fallocate(file.fileno(), 0, max(1, size))
                        break
            yield
        finally:
            filler.unlink(missing_ok=True)

    def ask(
        self,
        node: Node,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> raw_remoting.Answer:
        """Ask a server from the clients' host."""
        with self.inside(), RawClient(node.port, host=node.address, timeout=seconds) as client:
            return client.ask(code, fields, body)

    def inside(self) -> AbstractContextManager[None]:
        return self.network.inside(CLIENTS)

    def find_master(self) -> Server:
        """Ask the name server for the master, as clients do; be on the clients' host.

        Without an answer it is the last one known.
        """
        with suppress(OSError):
            namesrv = self.namesrv
            with RawClient(namesrv.port, host=namesrv.address, timeout=ROUTE_SECONDS) as client:
                place = master_of(client, TOPIC)
            if place is not None:
                self._known = next(
                    node.server for node in self.nodes if (node.address, node.port) == place
                )
        return self._known

    def find_slave(self) -> Server:
        return self.slave.server

    def store_state(self, node: Node) -> str:
        """Return what a broker says of its store, empty while it says nothing."""
        try:
            answer = self.ask(node, raw_remoting.GET_BROKER_RUNTIME_INFO)
        except OSError:
            return ""
        return str(json.loads(answer.body)["table"]["storeState"])

    def words(self) -> str:
        """Return the ends of all logs."""
        return "\n---\n".join(
            f"{node.name}:\n{node.process.words()[-WORDS_SHOWN:]}" for node in self.nodes
        )

    def _state(self, node: Node) -> dict[str, Any]:
        with self.inside():
            return replication_state(node.port, BROKER_NAME, host=node.address)

    def _node(
        self, name: str, port: int, table: dict[str, object], module: list[str] | None = None
    ) -> Node:
        address = self.network.address(name)
        process = BrokerProcess(self._directory / name, **table, bindAddress=address)
        clock = self._directory / f"{name}.clock"
        step(clock, 0)
        process.module = ["tests.support.stepped", str(clock), *(module or process.module)]
        process.prefix = self.network.prefix(name)
        process.port = port
        # So that one that does not stop says where it is.
        process.environment["PYTHONFAULTHANDLER"] = "1"
        return Node(name, process, address, port, clock)

    def _mount(self, place: Path) -> None:
        place.mkdir()
        size = f"size={self._disk_mib}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)], check=True)
        self._mounted.append(place)
