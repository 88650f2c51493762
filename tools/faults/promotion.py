"""kill -9 of the master under load, promote the slave, restart the old master; repeat.

In SYNC_MASTER an acknowledged message is on both brokers. With SYNC_FLUSH, or haAckMode=flushed, it
is on both disks. So no promotion loses one, whichever broker is killed. The old master saves the
rest of its log aside when it restarts, and no message in it was acknowledged.

Each round also leaves delayed messages and half messages without an outcome: the new master
delivers the delayed ones, never early, and accepts the outcomes of the half messages.

All this is one history, which `checker` compares with both brokers' messages.

A set of 5.3.3 goes through the same faults, and its failures are counted; its controller promotes
automatically.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.broker_set import PROMOTE_BROKER, BrokerSet
from tests.support.controlled_set import VERSION, ControlledSet
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import checker, real_clients, tested_brokers
from tools.faults.clients import Book, Reader, Sender, Server, as_stored, id_of
from tools.faults.operations import Cause, Ended, Happened, Kind, Outcome, Sent, Status, digest_of
from tools.faults.tally import Tally, quantile
from tools.faults.tested_brokers import is_served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.support.broker_process import BrokerProcess
    from tests.support.raw_remoting import Answer
    from tools.faults.operations import Operation, Stored
    from tools.faults.real_clients import Programs, RealClients

TOPIC, LATE_TOPIC, SETTLED_TOPIC = "promoted", "promoted-late", "promoted-settled"
TOPICS = (TOPIC, LATE_TOPIC, SETTLED_TOPIC)
GROUP = "readers"
QUEUES = 2
LOAD_SECONDS = (0.3, 1.0)
PROMOTION_SECONDS_MAX = 60.0
AGAIN_SECONDS_MAX = 120.0
KNOWN_SECONDS_MAX = 240.0
ROUNDS_OF_A_SET = 20
HALVES = 3
END_TRANSACTION = 37
COMMIT, ROLLBACK = "8", "12"
PRODUCERS = "promoted-producers"
DELAY_MS = 1000
CLOCK_MS = 5
"""A broker reads times once per turn of the loop."""
KEYS: dict[str, object] = {
    "brokerRole": "SYNC_MASTER",
    "mappedFileSizeCommitLog": 4 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 100_000,
    "messageDelayLevel": f"{DELAY_MS // 1000}s 2s",
    "slaveTimeout": 1_000,
    "haSendHeartbeatInterval": 500,
    "haHousekeepingInterval": 3_000,
    # So long that no transaction is checked or given up before all rounds are over.
    "transactionTimeOut": 600_000,
}
BROKERS = (tested_brokers.OURS, VERSION)
"""4.9.7 has no promotion."""
KINDS: dict[str, dict[str, object]] = {
    "SYNC_FLUSH": {"flushDiskType": "SYNC_FLUSH"},
    "flushed": {"flushDiskType": "ASYNC_FLUSH", "haAckMode": "flushed"},
}


OF_OURS_ONLY = "haAckMode"


def kinds_of(broker: str) -> list[str]:
    """Return the kinds of durability that a broker has."""
    return [
        kind
        for kind, keys in KINDS.items()
        if broker == tested_brokers.OURS or OF_OURS_ONLY not in keys
    ]


@dataclass
class Findings(Tally):
    """The results of all rounds, one per cycle; times are seconds from the kill.

    `recovered` is the time until both brokers acknowledged a send again.
    """

    cut: int = 0
    cut_messages: int = 0
    delivered_late: int = 0
    promoted: list[float] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    """Other failures of RocketMQ's own brokers."""

    @property
    def more(self) -> str:
        return (
            f"suffixes_cut={self.cut} messages_in_them={self.cut_messages} "
            f"delivered_late={self.delivered_late} "
            f"promoted_p50={quantile(self.promoted, 0.5):.3f}s found={dict(self.found)}"
        )

    def blame(self, broker: str, wrong: list[str]) -> None:
        """Count a failure of RocketMQ's brokers; for ours each one fails the run."""
        if broker == tested_brokers.OURS:
            self.wrong += wrong
        else:
            self.found += Counter(line.partition(" ")[0] for line in wrong)


@dataclass
class Half:
    """A half message without an outcome."""

    body: str
    queue_offset: str
    commit_log_offset: str


class _Set:
    """One broker set over several rounds."""

    def __init__(
        self, directory: Path, kind: str, broker: str, findings: Findings, programs: Programs | None
    ) -> None:
        of_real = {} if programs is None else real_clients.KEYS
        keys = {**of_real, **KEYS, **KINDS[kind]}
        self._is_ours = broker == tested_brokers.OURS
        self._blame = partial(findings.blame, broker)
        self._set: BrokerSet | ControlledSet = (
            BrokerSet(directory, keys) if self._is_ours else ControlledSet(directory, keys)
        )
        self._findings = findings
        self._programs = programs
        self._real: RealClients | None = None
        self._processes = ExitStack()
        self._book = Book()
        self._readers: list[Reader] = []
        self._late: dict[str, int] = {}
        """Body of a delayed message -> its send time, wall clock in milliseconds."""
        self._seen_aside: set[Path] = set()

    def start(self) -> None:
        self._set.__enter__()
        self._master, self._slave = self._set.brokers
        if self._programs is not None:
            where = (self._set.directory, self._set.namesrv_address)
            real = real_clients.beside(self._programs, *where, lambda: self._master.port)
            self._real = self._processes.enter_context(real)
        for topic in TOPICS:
            raw_remoting.create_topic(self._master.port, topic, queues=QUEUES)
        self._wait_for_ok()
        self._until_known()
        self._readers = [
            Reader(self._find, f"c{q}", self._book, (TOPIC, q), group=GROUP) for q in range(QUEUES)
        ]
        for reader in self._readers:
            reader.start()

    def _until_known(self) -> None:
        """Wait until the slave has the topics, because it can't fetch them from a killed master.

        A slave fetches them every ten seconds, one of 5.3.3 every minute. A topic that a RocketMQ
        broker has lost is created again.
        """
        for topic in () if self._is_ours else TOPICS:
            if not is_served(self._master.port, topic):
                self._blame([f"topic {topic} is gone"])
                raw_remoting.create_topic(self._master.port, topic, queues=QUEUES)
        topics = self._slave.store / "config/topics.json"

        def is_known(topic: str) -> bool:
            if self._is_ours:
                return topics.exists() and f'"{topic}"' in topics.read_text()
            return is_served(self._slave.port, topic)

        until(
            lambda: all(map(is_known, TOPICS)),
            "the slave to copy the topics",
            seconds=KNOWN_SECONDS_MAX,
        )

    def end(self) -> None:
        for reader in self._readers:
            reader.stop()
        self._processes.close()
        self._set.__exit__()

    def round(self, number: int, seconds: float) -> None:
        """Load, kill, promote, restart; then everything must be equal."""
        senders = [
            Sender(self._find, f"r{number}q{q}", self._book, (TOPIC, q)) for q in range(QUEUES)
        ]
        for sender in senders:
            sender.start()
        try:
            self._leave_for_later(number)
            halves = self._leave_halves(number)
            time.sleep(seconds)
            killed_at = time.monotonic()
            self._master.kill()
            self._book.history.append(Happened(Cause.FAILOVER, time.monotonic_ns()))
            self._promote()
            self._findings.promoted.append(time.monotonic() - killed_at)
            old = self._master
            self._master, self._slave = self._slave, old
            old.launch()
            if isinstance(self._set, BrokerSet):
                self._set.until_role(old, "SLAVE")
            self._wait_for_ok()
            self._findings.recovered.append(time.monotonic() - killed_at)
            self._settle(halves)
        finally:
            for sender in senders:
                sender.stop()
            for sender in senders:
                sender.join(AGAIN_SECONDS_MAX)
        self._check()

    def finish(self) -> None:
        """Count the set's final state, stop the brokers and verify their files."""
        for reader in self._readers:
            reader.stop()
            reader.join(AGAIN_SECONDS_MAX)
        history = [*self._book.history, *stored_of(self._master), *self._of_real_clients()]
        report = checker.check(history)
        self._findings.add(report)
        self._blame([str(one) for one in report.findings])
        for broker in (self._slave, self._master) if self._is_ours else ():
            if broker.stop() != 0:
                self._findings.wrong.append(f"a broker did not stop:\n{broker.words()[-2000:]}")
            self._findings.wrong += verify(broker.store).problems

    def _of_real_clients(self) -> list[Operation]:
        """Return the finished history of RocketMQ's own clients, and the stored messages."""
        if self._real is None:
            return []
        self._real.rest()
        real_clients.let_check(self._master.port)
        return [*self._real.come_to_end(), *self._real.stored()]

    def _find(self) -> Server | None:
        """Ask the name server for the master, as clients do."""
        port = self._set.master_in_route(TOPIC)
        return None if port is None else _server(port)

    def _send(self, topic: str, sent: Sent, **properties: str) -> Answer | None:
        """Send a message whose body is its ID; return the answer, or None without one."""
        text = "\x02".join(f"{key}\x01{value}" for key, value in properties.items())
        port = self._master.port
        answer = None
        with suppress(OSError), RawClient(port) as client:
            fields = raw_remoting.send_fields(topic, properties=text)
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, sent.id.encode())
        return self._book.note_answer(sent, _server(port), answer)

    def _leave_for_later(self, number: int) -> None:
        for index in range(HALVES):
            body = f"late-{number}-{index}"
            sent_ms = time.time_ns() // 1_000_000
            sent = sent_now("late", body.encode(), LATE_TOPIC, Kind.DELAYED, DELAY_MS * 1_000_000)
            answer = self._send(LATE_TOPIC, sent, DELAY="1")
            if answer is not None and answer.code == raw_remoting.SUCCESS:
                self._late[body] = sent_ms

    def _leave_halves(self, number: int) -> list[Half]:
        halves = []
        for index in range(HALVES):
            body = f"half-{number}-{index}"
            sent = sent_now("halves", body.encode(), SETTLED_TOPIC, Kind.HALF)
            answer = self._send(SETTLED_TOPIC, sent, TRAN_MSG="true", PGROUP=PRODUCERS)
            if answer is not None and answer.code == raw_remoting.SUCCESS:
                place = str(int(answer.fields["msgId"][16:], 16))
                halves.append(Half(body, answer.fields["queueOffset"], place))
        return halves

    def _settle(self, halves: list[Half]) -> None:
        """Send the new master the outcomes of half messages that the old one accepted."""
        with RawClient(self._master.port) as client:
            for index, half in enumerate(halves):
                fields = {
                    "producerGroup": PRODUCERS,
                    "tranStateTableOffset": half.queue_offset,
                    "commitLogOffset": half.commit_log_offset,
                    "commitOrRollback": ROLLBACK if index == 1 else COMMIT,
                }
                outcome = Outcome.ROLLBACK if index == 1 else Outcome.COMMIT
                self._book.history.append(Ended(half.body, outcome, time.monotonic_ns()))
                answer = client.ask(END_TRANSACTION, fields)
                if answer.code != raw_remoting.SUCCESS:
                    self._blame([f"{half.body} cannot be ended: {answer}"])

    def _promote(self) -> None:
        if not self._is_ours:
            until(
                lambda: self._set.master_in_route(TOPIC) == self._slave.port,
                "the controller to promote the slave",
                seconds=AGAIN_SECONDS_MAX,
            )
            return
        deadline = time.monotonic() + PROMOTION_SECONDS_MAX
        while True:
            with RawClient(self._slave.port, timeout=PROMOTION_SECONDS_MAX) as client:
                answer = client.ask(PROMOTE_BROKER, {"brokerRole": "", "force": "false"})
            if answer.code == raw_remoting.SUCCESS:
                return
            # The connections of a killed process take a moment to close.
            if time.monotonic() > deadline:
                raise AssertionError(f"not promoted: {answer}\n{self._slave.words()[-3000:]}")
            time.sleep(0.02)

    def _wait_for_ok(self) -> None:
        """Wait until both brokers have new messages."""

        def is_ok() -> bool:
            body = f"ok-{time.monotonic_ns()}"
            answer = self._send(TOPIC, sent_now("probe", body.encode(), TOPIC))
            return answer is not None and answer.code == raw_remoting.SUCCESS

        try:
            until(is_ok, "an acknowledged send", seconds=AGAIN_SECONDS_MAX)
        except AssertionError as error:
            words = "\n---\n".join(b.words()[-3000:] for b in (self._master, self._slave))
            raise AssertionError(f"{error}\n{words}") from None

    def _check(self) -> None:
        wrong: list[str] = []
        self._until_known()
        self._wait_for_late()
        end = self._set.until_same(self._master, self._slave)
        ends = sum(one.topic == TOPIC for one in stored_of(self._master))
        until(
            lambda: sum(one.queue_offset for one in self._readers) >= ends,
            "readers to reach the end",
            seconds=AGAIN_SECONDS_MAX,
        )
        # For RocketMQ's brokers the history counts once, at the end.
        for broker in (self._master, self._slave) if self._is_ours else ():
            report = checker.check([*self._book.history, *stored_of(broker)])
            wrong += [f"{broker.port}: {one}" for one in report.findings]
        if log_bytes(self._master, end) != log_bytes(self._slave, end):
            wrong.append(f"the logs differ before offset {end}")
        # The checker excuses a killed broker, but none of these may have been put by then.
        settled = [one.body.decode() for one in self._read(SETTLED_TOPIC)]
        if len({*settled}) != len(settled):
            wrong.append(f"a transaction was stored twice: {sorted(settled)}")
        self._blame(wrong)
        self._check_aside()

    def _wait_for_late(self) -> None:
        """Wait until each delayed message arrives; it must not arrive early."""
        until(
            lambda: self._late.keys() <= {one.body.decode() for one in self._read(LATE_TOPIC)},
            "the delayed messages",
            seconds=AGAIN_SECONDS_MAX,
        )
        self._findings.delivered_late = len(self._late)
        for body, stored_ms in stored_times(self._master, LATE_TOPIC):
            if stored_ms + CLOCK_MS < self._late.get(body, 0) + DELAY_MS:
                self._blame(
                    [f"{body} was delivered {stored_ms - self._late[body]} ms after it was sent"]
                )

    def _read(self, topic: str) -> list[raw_remoting.Record]:
        return raw_remoting.read_queue(self._master.port, topic, 0)

    def _check_aside(self) -> None:
        """Check that the log saved aside has no acknowledged message."""
        sends = [one for one in self._book.history if isinstance(one, Sent)]
        times = Counter(one.id for one in sends)
        # A body that was sent twice may be acknowledged at its second offset.
        keys = {one.id for one in sends if one.status is Status.OK and times[one.id] == 1}
        for place in (self._slave.store / "diverged").glob("*"):
            if place in self._seen_aside:
                continue
            self._seen_aside.add(place)
            self._findings.cut += 1
            manifest = json.loads((place / "manifest.json").read_text())
            lines = (place / "messages.jsonl").read_text().splitlines()
            if manifest["messages"] != len(lines):
                self._findings.wrong.append(f"{place}: the recovery report is incomplete")
            self._findings.cut_messages += len(lines)
            for line in map(json.loads, lines):
                if line["keys"] in keys:
                    self._findings.wrong.append(f"acknowledged but truncated: {line}")


def _server(port: int) -> Server:
    return Server(str(port), "127.0.0.1", port)


def sent_now(
    client: str, body: bytes, topic: str, kind: Kind = Kind.PLAIN, delay_ns: int = 0
) -> Sent:
    """Return a message that is about to be sent to a topic's first queue."""
    now = time.monotonic_ns()
    return Sent(client, id_of(body), digest_of(body), topic, 0, now, kind=kind, delay_ns=delay_ns)


def stored_of(broker: BrokerProcess) -> list[Stored]:
    """Return a broker's messages in all topics of a run."""
    return [
        one
        for topic in TOPICS
        for queue_id in range(QUEUES)
        for one in as_stored(raw_remoting.read_queue(broker.port, topic, queue_id), topic, queue_id)
    ]


def log_bytes(broker: BrokerProcess, end: int) -> bytes:
    """Return a broker's CommitLog up to an offset, from its first file on."""
    files = sorted((broker.store / "commitlog").iterdir())
    data = b"".join(file.read_bytes() for file in files)
    return data[: end - int(files[0].name)]


def stored_times(broker: BrokerProcess, topic: str) -> list[tuple[str, int]]:
    """Return body and store timestamp of each message in a topic's first queue."""
    found: list[tuple[str, int]] = []
    with RawClient(broker.port) as client:
        queue_offset = 0
        while True:
            fields = raw_remoting.pull_fields(topic, 0, queue_offset)
            answer = client.ask(raw_remoting.PULL_MESSAGE, fields)
            if answer.code != raw_remoting.SUCCESS:
                return found
            at = 0
            while at < len(answer.body):
                head = raw_remoting.RECORD_HEAD.unpack_from(answer.body, at)
                (one,) = raw_remoting.parse_records(answer.body[at : at + head[0]])
                found.append((one.body.decode(), head[10]))
                at += head[0]
            queue_offset = int(answer.fields["nextBeginOffset"])


def run(
    directory: Path,
    kind: str,
    rounds: int,
    dice: Random,
    *,
    broker: str = tested_brokers.OURS,
    programs: Programs | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Kill and promote; a new set every few rounds keeps the checks fast.

    With `programs`, RocketMQ's own clients work next to the raw ones.
    """
    findings = Findings()
    while findings.cycles < rounds and not findings.wrong:
        place = directory / f"set-{findings.cycles}"
        brokers = _Set(place, kind, broker, findings, programs)
        try:
            brokers.start()
            for _ in range(min(ROUNDS_OF_A_SET, rounds - findings.cycles)):
                brokers.round(findings.cycles, dice.uniform(*LOAD_SECONDS))
                findings.cycles += 1
                say(f"{kind} {findings}")
                if findings.wrong:
                    break
            brokers.finish()
        finally:
            brokers.end()
    return findings
