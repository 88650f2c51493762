"""The cluster of a chaos run: two name servers, a master and its slave on separate hosts.

Each broker's store is a separate file system, so that its disk can fill up alone: a tmpfs, or ext4
where power fails. The wall clock of our members is `stepped`. The master changes with failovers;
the brokers' names stay.
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

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.broker_set import PROMOTE_BROKER, master_of, replication_state
from tests.support.log_end import log_end
from tests.support.peer import OriginalProcess
from tests.support.ports import accepts
from tests.support.raw_remoting import RawClient
from tests.support.stepped_clock import step
from tests.support.waiting import until
from tools.faults import real_clients
from tools.faults.clients import ANSWER_SECONDS, STORED_CODES, Server
from tools.faults.operations import Cause, Happened, Started
from tools.faults.power import cut_power
from tools.faults.variants import ORIGINAL_MASTER, ORIGINAL_NAMESRV, ORIGINAL_SLAVE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Self

    from tests.support.network import Network
    from tools.faults.clients import Book
    from tools.faults.variants import Variant

NAMESRV, OTHER_NAMESRV, A, B, CLIENTS = "namesrv", "namesrv2", "a", "b", "clients"
NAMESRVS = NAMESRV, OTHER_NAMESRV
HOSTS = [*NAMESRVS, A, B, CLIENTS]
TOPIC, QUEUES = "chaos", 4
FIRST_TOPIC = "chaos-first"
LISTEN_PORT, HA_PORT, NAMESRV_PORT = 10_911, 10_912, 9_876
BROKER_NAME = "tried"
START_SECONDS_MAX = 600.0
"""On a busy machine, starting with the thousand log files of a ten-minute run takes 100 s."""
ROLE_SECONDS_MAX = 120.0
ROUTE_SECONDS = 1.0
WORDS_SHOWN = 3_000
DELAY_SECONDS = 1
FILL_TRIES = 20
KEYS: dict[str, object] = {
    "brokerName": BROKER_NAME,
    "listenPort": LISTEN_PORT,
    "namesrvAddr": "",
    # Small, so that a full disk shows within the seconds that it lasts.
    "mappedFileSizeCommitLog": 128 << 10,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 100_000,
    "messageDelayLevel": f"{DELAY_SECONDS}s 2s",
    "slaveTimeout": 1_000,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 2_000,
    "registerNameServerPeriod": 10_000,
    # A full disk must not make the broker delete files.
    "cleanFileForciblyEnable": "false",
}
VERSION = "4.9.7"
CHECKED = {"transactionTimeOut": 2_000}
UNCHECKED = {"transactionTimeOut": 3_600_000}
"""So long that no transaction is checked or given up, because raw clients send all outcomes again.
"""


@dataclass
class Node:
    """One server: its process, its host, and the file that steps its clock.

    `ahead_seconds` is the clock's error without steps.
    """

    name: str
    process: BrokerProcess
    address: str
    port: int
    clock: Path
    ahead_seconds: float

    @property
    def is_ours(self) -> bool:
        return not isinstance(self.process, OriginalProcess)

    @property
    def server(self) -> Server:
        return Server(self.name, self.address, self.port)


class Cluster:
    """Four servers, started when the block begins. Only the first name server can be RocketMQ's."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        book: Book,
        variant: Variant,
        *,
        disk_mib: int,
    ) -> None:
        self.network = network
        self.variant = variant
        self.book = book
        self._directory = directory
        self._disk_mib = disk_mib
        self._mounted: list[Path] = []
        of_namesrv, of_master, of_slave = variant.skews
        members = variant.members
        self.namesrvs = tuple(
            self._node(
                name,
                {
                    "namesrvAddr": "",
                    "listenPort": NAMESRV_PORT,
                    "kvConfigPath": directory / f"{name}.kv.json",
                },
                of_namesrv,
                is_ours=name != NAMESRV or members != ORIGINAL_NAMESRV,
            )
            for name in NAMESRVS
        )
        keys = {
            **(real_clients.KEYS if variant.has_real else {}),
            **KEYS,
            **(CHECKED if variant.has_checks else UNCHECKED),
            "namesrvAddr": self.namesrv_addresses,
            "flushDiskType": variant.flush_disk_type,
        }
        master = {**keys, "brokerRole": "SYNC_MASTER"}
        self.master = self._node(A, master, of_master, is_ours=members != ORIGINAL_MASTER)
        slave = {**keys, "brokerRole": "SLAVE", "brokerId": 1}
        self.slave = self._node(B, slave, of_slave, is_ours=members != ORIGINAL_SLAVE)
        self._known = self.master.server
        self._asked = 0

    @property
    def nodes(self) -> tuple[Node, ...]:
        return *self.namesrvs, self.master, self.slave

    @property
    def namesrv_addresses(self) -> str:
        return ";".join(f"{one.address}:{one.port}" for one in self.namesrvs)

    def __enter__(self) -> Self:
        try:
            # Shared, so that no server's mount namespace keeps a disk without power alive.
            subprocess.run(
                ["mount", "--bind", str(self._directory), str(self._directory)], check=True
            )
            self._mounted.append(self._directory)
            subprocess.run(["mount", "--make-shared", str(self._directory)], check=True)
            for broker in (self.master, self.slave):
                self._make_disk(broker.process.store)
            for node in self.nodes:
                self.launch(node)
            self.wait_for_up(*self.nodes)
            for topic, queues in self.topics.items():
                fields = raw_remoting.topic_fields(topic, queues)
                answer = self.ask(
                    self.master,
                    raw_remoting.UPDATE_AND_CREATE_TOPIC,
                    fields,
                    seconds=START_SECONDS_MAX,
                )
                assert answer.code == raw_remoting.SUCCESS, answer
            # A slave fetches topics every ten seconds, and a promotion must wait for that.
            topics = self.slave.process.store / "config/topics.json"
            last = [*self.topics][-1]
            until(
                lambda: topics.exists() and f'"{last}"' in topics.read_text(errors="replace"),
                "the slave to copy the topics",
            )
            self._make_slave_follow()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make_slave_follow(self) -> None:
        """Give the slave its first message.

        A RocketMQ slave that starts with more than one log file to copy skips all but the last.
        """
        fields = raw_remoting.send_fields(FIRST_TOPIC)
        answer = self.ask(
            self.master, raw_remoting.SEND_MESSAGE, fields, b"first", seconds=START_SECONDS_MAX
        )
        assert answer.code in STORED_CODES or answer.code == raw_remoting.SUCCESS, answer
        self.until_same()

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.process.kill()
        while self._mounted:
            self._unmount(self._mounted[-1])

    def launch(self, node: Node) -> None:
        """Start a server with its clock error."""
        step(node.clock, node.ahead_seconds)
        node.process.launch()
        self.book.history.append(Started(node.name, time.monotonic_ns()))

    def kill(self, node: Node) -> None:
        node.process.kill()
        self.book.history.append(Happened(Cause.CRASH, time.monotonic_ns()))

    def cut_power(self, *nodes: Node) -> None:
        """Cut the power of brokers; unflushed data is lost.

        They are stopped first, because a broker without power can't acknowledge.
        """
        for node in nodes:
            os.kill(node.process.pid, signal.SIGSTOP)
        for node in nodes:
            cut_power(node.process.store)
            self.kill(node)
        for node in nodes:
            self._unmount(node.process.store)
            self._mount(node.process.store)

    def stop(self, node: Node) -> None:
        """Stop a server; record a failure if it doesn't stop cleanly."""
        try:
            code = node.process.stop()
        except subprocess.TimeoutExpired:
            os.kill(node.process.pid, signal.SIGABRT)
            code = node.process.wait()
        assert code == 0 or not node.is_ours, f"{node.name} stopped with {code}"

    def wait_for_up(self, *nodes: Node) -> None:
        """Wait until started servers listen."""
        for node in nodes:

            def is_up(node: Node = node) -> bool:
                assert node.process.is_running, f"{node.name} exited during its start"
                with self.inside():
                    return accepts(node.port, node.address)

            until(is_up, f"{node.name} to listen", seconds=START_SECONDS_MAX)

    def fail_over(self) -> None:
        """Promote the slave of a killed master."""

        def is_promoted() -> bool:
            try:
                answer = self.ask(
                    self.slave, PROMOTE_BROKER, {"brokerRole": "", "force": "false"}, seconds=60.0
                )
            except OSError:
                return False
            # The connections of a killed process take a moment to close.
            return answer.code == raw_remoting.SUCCESS

        until(is_promoted, "the slave to be promoted", seconds=ROLE_SECONDS_MAX)
        ahead_ns = round((self.slave.ahead_seconds - self.master.ahead_seconds) * 1e9)
        at = time.monotonic_ns()
        self.book.history.append(Happened(Cause.FAILOVER, at, ahead_ns=ahead_ns))
        self.master, self.slave = self.slave, self.master

    def wait_for_slave(self) -> None:
        """Wait until the restarted old master follows the new one."""

        def is_slave() -> bool:
            return self._state(self.slave).get("brokerRole") == "SLAVE"

        until(is_slave, "the old master to be a slave", seconds=ROLE_SECONDS_MAX)

    def until_same(self) -> int:
        """Wait until both logs have the same length, and epochs if ours; return that length."""
        found: list[int] = []

        def is_same() -> bool:
            ours, theirs = self._log_end(self.master), self._log_end(self.slave)
            found[:] = [ours]
            if not self.are_ours:
                return ours == theirs > 0
            epochs = self._state(self.master).get("epochs")
            return ours == theirs > 0 and epochs == self._state(self.slave).get("epochs", [])

        until(is_same, "both logs to be equal", seconds=ROLE_SECONDS_MAX)
        return found[0]

    @property
    def are_ours(self) -> bool:
        return self.master.is_ours and self.slave.is_ours

    @property
    def topics(self) -> dict[str, int]:
        """Topics created at the start, with their number of queues."""
        return {TOPIC: QUEUES, **(real_clients.TOPICS if self.variant.has_real else {})}

    def _log_end(self, node: Node) -> int:
        try:
            with self.inside():
                return log_end(node.port, host=node.address)
        except OSError:
            return -1

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
        """Fill a broker's file system except for a few bytes."""
        filler = node.process.store / "filler"
        try:
            with filler.open("wb") as file:
                # The broker writes at the same time, so free space may change between two calls.
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
        """Send a server a request from the clients' host."""
        with self.inside(), RawClient(node.port, host=node.address, timeout=seconds) as client:
            return client.ask(code, fields, body)

    def inside(self) -> AbstractContextManager[None]:
        return self.network.inside(CLIENTS)

    def find_master(self) -> Server:
        """Ask a name server for the master, as clients do; call it on the clients' host.

        Without an answer, the next call asks the other one, and the master is the last known one.
        """
        namesrv = self.namesrvs[self._asked % len(self.namesrvs)]
        try:
            with RawClient(namesrv.port, host=namesrv.address, timeout=ROUTE_SECONDS) as client:
                place = master_of(client, TOPIC)
        except OSError:
            place = None
        if place is None:
            self._asked += 1
            return self._known
        self._known = next(node.server for node in self.nodes if (node.address, node.port) == place)
        return self._known

    def find_slave(self) -> Server:
        return self.slave.server

    def servers(self) -> dict[str, str]:
        """Return the brokers' names by their addresses."""
        return {f"{one.address}:{one.port}": one.name for one in (self.master, self.slave)}

    def store_state(self, node: Node) -> str:
        """Return a broker's store state, empty if it doesn't answer."""
        try:
            code = raw_remoting.GET_BROKER_RUNTIME_INFO
            answer = self.ask(node, code, seconds=START_SECONDS_MAX)
        except OSError:
            return ""
        return str(json.loads(answer.body)["table"]["storeState"])

    def words(self) -> str:
        """Return the last lines of all logs."""
        return "\n---\n".join(
            f"{node.name}:\n{node.process.words()[-WORDS_SHOWN:]}" for node in self.nodes
        )

    def _state(self, node: Node) -> dict[str, Any]:
        with self.inside():
            return replication_state(node.port, BROKER_NAME, host=node.address)

    def _node(
        self, name: str, table: dict[str, object], ahead_seconds: float, *, is_ours: bool
    ) -> Node:
        address = self.network.address(name)
        clock = self._directory / f"{name}.clock"
        place = self._directory / name
        if is_ours:
            process = BrokerProcess(place, **table, bindAddress=address)
            module = ["broker_core", "namesrv"] if name in NAMESRVS else process.module
            process.module = ["tests.support.stepped_clock", str(clock), *module]
        else:
            addresses = {"brokerIP1": address, "brokerIP2": address, "haListenPort": HA_PORT}
            process = OriginalProcess(VERSION, place, **{**table, **addresses})
            if name in NAMESRVS:
                process.main = "namesrv.NamesrvStartup"
        process.prefix = self.network.prefix(name)
        process.port = NAMESRV_PORT if name in NAMESRVS else LISTEN_PORT
        # A process that doesn't stop then dumps its stack.
        process.environment["PYTHONFAULTHANDLER"] = "1"
        return Node(name, process, address, process.port, clock, ahead_seconds)

    def _make_disk(self, place: Path) -> None:
        """Give a store a separate file system."""
        place.mkdir()
        if self.variant.loses_power:
            image = place.with_name("image")
            with image.open("wb") as file:
                file.truncate(self._disk_mib << 20)
            subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        self._mount(place)

    def _mount(self, place: Path) -> None:
        if self.variant.loses_power:
            command = ["mount", "-o", "loop", str(place.with_name("image")), str(place)]
        else:
            command = ["mount", "-t", "tmpfs", "-o", f"size={self._disk_mib}m", "tmpfs", str(place)]
        subprocess.run(command, check=True)
        self._mounted.append(place)

    def _unmount(self, place: Path) -> None:
        if subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode:
            subprocess.run(["umount", "--lazy", str(place)], check=False)
        self._mounted.remove(place)
