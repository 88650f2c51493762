"""Partitions between a SYNC_MASTER, its slave and clients: no acknowledged message is lost.

Master, slave, clients and the link between the two brokers each are a separate host (network
namespace). A round breaks something for a while, heals it, and waits until messages are
acknowledged again. Then both logs must be equal, byte by byte, and `checker` compares the history
with both brokers' messages. Nothing may be acknowledged while the two are partitioned.

RocketMQ's own pair goes through the same faults, and its failures are counted.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.bad_link import BadLink, Badness
from tests.support.broker_process import BrokerProcess
from tests.support.log_end import log_end
from tests.support.network import Network
from tests.support.peer import OriginalProcess
from tests.support.ports import accepts
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import checker, real_clients, tested_brokers
from tools.faults.clients import ANSWER_SECONDS, Book, Reader, Sender, Server, as_stored
from tools.faults.operations import Sent, Status
from tools.faults.promotion import log_bytes, sent_now
from tools.faults.real_clients import RealClients
from tools.faults.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path
    from random import Random

    from tools.faults.operations import Operation, Stored
    from tools.faults.real_clients import Programs

TOPIC, GROUP = "partitioned", "readers"
QUEUES = 2
MASTER, SLAVE, CLIENTS, LINK = "master", "slave", "clients", "link"
ROUNDS_A_PAIR = 25
FAULT_SECONDS = (0.3, 2.0)
FLAP_SECONDS = 0.1
START_SECONDS_MAX = 120.0
AGAIN_SECONDS_MAX = 120.0
KNOWN_SECONDS_MAX = 240.0
LATE_SECONDS_MAX, LOOK_SECONDS = 15.0, 0.5
"""TCP may deliver a client's last bytes at most this long after it closed the connection."""
LISTEN_PORT, HA_PORT, NAMESRV_PORT = 10_911, 10_912, 9_876
SLOW = Badness(delay_seconds=0.02, bytes_per_second=64_000)
LOSSY = Badness(delay_seconds=0.001, break_chance=0.02)
KEYS: dict[str, object] = {
    "brokerName": "parted",
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": 4 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 100_000,
    "listenPort": LISTEN_PORT,
    "slaveTimeout": 1_000,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 2_000,
}
OF_ORIGINALS: dict[str, object] = {
    "haListenPort": HA_PORT,
    # By default a SYNC_MASTER of 5.3.3 doesn't wait for slaves.
    "inSyncReplicas": 2,
    # By default a slave of 5.3.3 doesn't serve reads.
    "slaveReadEnable": "true",
}
FAULTS = ("both ways", "to the slave", "to the master", "flapping", "slow", "lossy", "clients")


@dataclass
class Findings(Tally):
    """The results of all rounds, one per cycle.

    `recovered` is the time from the healing until a send was acknowledged.
    """

    codes: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged_while_parted: int = 0
    """Sent and acknowledged while slave and master could not reach each other."""
    found: Counter[str] = field(default_factory=Counter)
    """Other failures of RocketMQ's own brokers."""

    @property
    def more(self) -> str:
        return (
            f"acknowledged_while_parted={self.acknowledged_while_parted} {dict(self.faults)} "
            f"answers={dict(self.codes)} found={dict(self.found)}"
        )


class _Pair:
    """A master and its slave, each on a host."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        dice: Random,
        findings: Findings,
        kind: str,
        programs: Programs | None,
    ) -> None:
        self._kind = kind
        self._parted: list[tuple[int, int]] = []
        self._network = network
        self._dice = dice
        self._findings = findings
        self._book = Book()
        self._readers: list[Reader] = []
        self._link = BadLink(
            (network.address(MASTER), HA_PORT),
            dice,
            network.inside(LINK),
            network.address(LINK),
            HA_PORT,
        )
        self._directory = directory
        self._processes: list[BrokerProcess] = []
        self._programs = programs
        self._real: RealClients | None = None
        self._clients = ExitStack()

    def start(self) -> None:
        namesrv = f"{self._network.address(CLIENTS)}:{NAMESRV_PORT}"
        table: dict[str, object] = {
            "namesrvAddr": "",
            "listenPort": NAMESRV_PORT,
            "kvConfigPath": self._directory / "kv.json",
        }
        self._launch("namesrv", CLIENTS, NAMESRV_PORT, table, is_namesrv=True)
        of_real = {} if self._programs is None else real_clients.KEYS
        table = {**of_real, **KEYS, "namesrvAddr": namesrv, "brokerRole": "SYNC_MASTER"}
        self._master = self._launch("master", MASTER, LISTEN_PORT, table)
        self._link.open()
        table |= {"brokerRole": "SLAVE", "brokerId": 1}
        if self._kind == tested_brokers.OURS:
            table["haMasterAddress"] = f"{self._network.address(LINK)}:{HA_PORT}"
        self._slave = self._launch("slave", SLAVE, LISTEN_PORT, table)
        self._ask(raw_remoting.UPDATE_AND_CREATE_TOPIC, raw_remoting.topic_fields(TOPIC, QUEUES))
        self._wait_for_ok()
        # A slave fetches topics every ten seconds, 5.3.3 every minute; readers can only use topics
        # that it has.
        topics = self._slave.store / "config/topics.json"
        until(
            lambda: (
                f'"{TOPIC}"' in (topics.read_text() if topics.exists() else "")
                and self._slave_reads()
            ),
            "the slave to copy the topic",
            seconds=KNOWN_SECONDS_MAX,
        )
        self._readers = [
            Reader(self._find, f"C{q}", self._book, (TOPIC, q), self._at_clients, group=GROUP)
            for q in range(QUEUES)
        ]
        for reader in self._readers:
            reader.start()
        if self._programs is not None:
            self._real = self._clients.enter_context(self._real_clients(self._programs, namesrv))
            self._real.until_working()

    def _real_clients(self, programs: Programs, namesrv: str) -> RealClients:
        for topic, queues in real_clients.TOPICS.items():
            fields = raw_remoting.topic_fields(topic, queues)
            self._ask(raw_remoting.UPDATE_AND_CREATE_TOPIC, fields)
        prefix = self._network.prefix(CLIENTS)
        return RealClients(programs, self._directory, namesrv, self._read, prefix)

    def end(self) -> None:
        for reader in self._readers:
            reader.stop()
        self._clients.close()
        self._link.close()
        for process in self._processes:
            process.kill()

    def round(self, number: int) -> None:
        fault = self._dice.choice(FAULTS)
        self._findings.faults[fault] += 1
        senders = [
            Sender(self._find, f"Pr{number}q{q}", self._book, (TOPIC, q), self._at_clients)
            for q in range(QUEUES)
        ]
        for sender in senders:
            sender.start()
        try:
            self._break(fault, self._dice.uniform(*FAULT_SECONDS))
            healed_at = time.monotonic()
            self._wait_for_ok()
            self._findings.recovered.append(time.monotonic() - healed_at)
        finally:
            self._network.heal()
            for sender in senders:
                sender.stop()
            for sender in senders:
                sender.join(AGAIN_SECONDS_MAX)
        self._check(fault)

    def finish(self) -> None:
        """Count the pair's final state, stop the brokers and verify their files."""
        for reader in self._readers:
            reader.stop()
            reader.join(AGAIN_SECONDS_MAX)
        self._findings.codes += self._book.codes
        history: list[Operation] = [*self._book.history, *self._stored(MASTER)]
        if self._real is not None:
            self._real.rest()
            history += [*self._real.come_to_end(), *self._real.stored()]
        report = checker.check(history)
        self._findings.add(report)
        self._blame([str(one) for one in report.findings])
        self._count_acknowledged_while_parted()
        for broker in (self._slave, self._master):
            if broker.stop() != 0 and self._kind == tested_brokers.OURS:
                self._findings.wrong.append(f"a broker did not stop:\n{broker.words()[-2000:]}")
            if self._kind == tested_brokers.OURS:
                self._findings.wrong += verify(broker.store).problems

    def _launch(
        self,
        name: str,
        host: str,
        port: int,
        table: dict[str, object],
        *,
        is_namesrv: bool = False,
    ) -> BrokerProcess:
        address, place = self._network.address(host), self._directory / name
        if self._kind == tested_brokers.OURS or is_namesrv:
            process = BrokerProcess(place, **table, bindAddress=address)
            process.module = ["broker_core", "namesrv"] if is_namesrv else process.module
        else:
            # The log address for slaves. A 5.3.3 slave with haMasterAddress connects to no master,
            # so set it before the master starts.
            ha_address = self._network.address(LINK)
            addresses = {"brokerIP1": address, "brokerIP2": ha_address}
            process = OriginalProcess(self._kind, place, **table, **OF_ORIGINALS, **addresses)
        process.prefix = self._network.prefix(host)
        process.port = port
        self._processes.append(process)
        running = process.launch()

        def is_up() -> bool:
            assert running.poll() is None, f"{name} exited during its start:\n{process.words()}"
            with self._network.inside(CLIENTS):
                return accepts(port, self._network.address(host))

        until(is_up, f"{name} to listen", seconds=START_SECONDS_MAX)
        return process

    def _find(self) -> Server:
        return Server(MASTER, self._network.address(MASTER), LISTEN_PORT)

    def _at_clients(self) -> AbstractContextManager[None]:
        return self._network.inside(CLIENTS)

    def _break(self, fault: str, seconds: float) -> None:
        cut, over = self._network.cut, time.monotonic() + seconds
        if fault in ("slow", "lossy"):
            self._link.badness = SLOW if fault == "slow" else LOSSY
            time.sleep(seconds)
            self._link.badness = Badness()
            return
        if fault == "flapping":
            while time.monotonic() < over:
                cut(*self._dice.choice([(LINK, SLAVE), (SLAVE, LINK)]))
                time.sleep(self._dice.uniform(0.0, 2 * FLAP_SECONDS))
                self._network.heal()
                time.sleep(self._dice.uniform(0.0, 2 * FLAP_SECONDS))
            return
        if fault in ("both ways", "to the slave"):
            cut(LINK, SLAVE)
            cut(MASTER, SLAVE)
        if fault in ("both ways", "to the master"):
            cut(SLAVE, LINK)
            cut(SLAVE, MASTER)
        if fault == "clients":
            cut(*self._dice.choice([(CLIENTS, MASTER), (MASTER, CLIENTS)]))
        began = time.monotonic_ns()
        time.sleep(seconds)
        if fault != "clients":
            self._parted.append((began, time.monotonic_ns()))
        self._network.heal()

    def _ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", host: str = MASTER
    ) -> raw_remoting.Answer:
        with (
            self._network.inside(CLIENTS),
            RawClient(
                LISTEN_PORT, host=self._network.address(host), timeout=ANSWER_SECONDS
            ) as client,
        ):
            return client.ask(code, fields, body)

    def _wait_for_ok(self) -> None:
        def is_ok() -> bool:
            body = f"ok-{time.monotonic_ns()}".encode()
            sent, answer = sent_now("probe", body, TOPIC), None
            fields = raw_remoting.send_fields(TOPIC, properties="")
            with suppress(OSError):
                answer = self._ask(raw_remoting.SEND_MESSAGE, fields, body)
            self._book.note_answer(sent, self._find(), answer)
            return answer is not None and answer.code == raw_remoting.SUCCESS

        try:
            until(is_ok, "an acknowledged send", seconds=AGAIN_SECONDS_MAX)
        except AssertionError as error:
            words = "\n---\n".join(each.words()[-3000:] for each in self._processes)
            raise AssertionError(f"{error}\n{words}") from None

    def _slave_reads(self) -> bool:
        fields = raw_remoting.pull_fields(TOPIC, QUEUES - 1, 0)
        answer = self._ask(raw_remoting.PULL_MESSAGE, fields, host=SLAVE)
        return answer.code in (raw_remoting.SUCCESS, raw_remoting.PULL_NOT_FOUND)

    def _stored(self, host: str) -> list[Stored]:
        return [
            one
            for queue_id in range(QUEUES)
            for one in as_stored(self._read(TOPIC, queue_id, host), TOPIC, queue_id)
        ]

    def _read(self, topic: str, queue_id: int, host: str = MASTER) -> list[raw_remoting.Record]:
        address = self._network.address(host)
        with self._network.inside(CLIENTS):
            return raw_remoting.read_queue(LISTEN_PORT, topic, queue_id, host=address)

    def _check(self, fault: str) -> None:
        # Everything sent earlier is readable once this is acknowledged.
        self._wait_for_ok()
        over = time.monotonic() + LATE_SECONDS_MAX
        while (wrong := self._differences(fault)) and time.monotonic() < over:
            time.sleep(LOOK_SECONDS)
        self._blame([f"{fault}: {line}" for line in wrong])

    def _differences(self, fault: str) -> list[str]:
        """Return the current failures; messages that arrive meanwhile may count as missing."""
        wrong: list[str] = []
        ends: list[int] = []

        def is_same() -> bool:
            with self._network.inside(CLIENTS):
                ends[:] = [
                    log_end(LISTEN_PORT, host=self._network.address(host))
                    for host in (MASTER, SLAVE)
                ]
            return ends[0] == ends[1] >= 0

        until(is_same, f"both logs to be equal after {fault}", seconds=AGAIN_SECONDS_MAX)
        stored = self._stored(MASTER)
        until(
            lambda: sum(one.queue_offset for one in self._readers) >= len(stored),
            f"readers to reach the end after {fault}",
            seconds=AGAIN_SECONDS_MAX,
        )
        for host in (MASTER, SLAVE):
            report = checker.check([*self._book.history, *self._stored(host)])
            wrong += [f"{host}: {one}" for one in report.findings]
        if log_bytes(self._master, ends[0]) != log_bytes(self._slave, ends[0]):
            wrong.append(f"the logs differ before offset {ends[0]}")
        return wrong

    def _blame(self, wrong: list[str]) -> None:
        """Count a failure of RocketMQ's brokers; for ours each one fails the run."""
        if self._kind == tested_brokers.OURS:
            self._findings.wrong += wrong
        else:
            self._findings.found += Counter(line.partition(" ")[0] for line in wrong)

    def _count_acknowledged_while_parted(self) -> None:
        count = sum(
            isinstance(one, Sent)
            and one.status is Status.OK
            and any(began < one.invoked and one.returned < ended for began, ended in self._parted)
            for one in self._book.history
        )
        self._findings.acknowledged_while_parted += count
        if count:
            self._blame([f"{count} sends were acknowledged while no slave could copy them"])


def run(
    directory: Path,
    rounds: int,
    dice: Random,
    *,
    kind: str = tested_brokers.OURS,
    programs: Programs | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Break and heal; each round compares everything its pair has, so a pair gets few rounds.

    With `programs`, RocketMQ's own clients work next to the raw ones.
    """
    findings = Findings()
    with Network([MASTER, SLAVE, CLIENTS, LINK]) as network:
        for first in range(0, rounds, ROUNDS_A_PAIR):
            place = directory / f"pair-{first}"
            place.mkdir()
            pair = _Pair(place, network, dice, findings, kind, programs)
            try:
                pair.start()
                while findings.cycles < min(rounds, first + ROUNDS_A_PAIR):
                    pair.round(findings.cycles)
                    findings.cycles += 1
                    say(str(findings))
                    if findings.wrong:
                        break
                pair.finish()
            finally:
                pair.end()
            if findings.wrong:
                break
            shutil.rmtree(place)
    return findings
