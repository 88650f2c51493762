"""kill -9 of the whole broker under load, repeatedly: no acknowledged message is lost.

An answer with code 0 acknowledges a send. Any other answer from our running broker is a failure.
Senders and readers write a history, which `checker` checks after several kills of a store.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import checker, plain_store, real_clients, tested_brokers
from tools.faults.clients import STORED_CODES
from tools.faults.operations import (
    NEVER,
    NOWHERE,
    Cause,
    Delivered,
    Happened,
    Sent,
    Status,
    digest_of,
    wall_ms,
)
from tools.faults.tally import Tally
from tools.faults.tested_brokers import id_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.support.broker_process import BrokerProcess
    from tools.faults.checker import Report
    from tools.faults.operations import Operation
    from tools.faults.real_clients import Programs, RealClients

TOPIC, GROUP = "killed", "readers"
QUEUES = 4
WINDOW = 16
LOAD_SECONDS = (0.05, 0.5)
ACKNOWLEDGED_MIN = 20
"""Acknowledged messages before the load starts to count; a cold broker on a busy machine is slow.
"""
CYCLES_OF_A_STORE = 15
ANSWER_SECONDS_MAX = 300.0
POLL_SECONDS = 0.005
JOIN_SECONDS = 30


@dataclass
class Findings(Tally):
    """The results of all cycles.

    `recovered` is the time from the start of the process until it acknowledged a send.
    """

    unanswered_but_stored: int = 0
    delivered: int = 0
    found: Counter[str] = field(default_factory=Counter)
    """The checker's findings for RocketMQ's own broker, by invariant."""

    @property
    def more(self) -> str:
        return (
            f"unanswered_but_stored={self.unanswered_but_stored} delivered={self.delivered} "
            f"found={dict(self.found)}"
        )

    def judge(self, kind: str, report: Report) -> None:
        """Count a report's findings; for our broker each one is a failure."""
        self.add(report)
        self.delivered += report.delivered
        self.found += Counter(one.invariant for one in report.findings)
        if kind == tested_brokers.OURS:
            self.wrong += map(str, report.findings)


class Sender(threading.Thread):
    """Sends numbered messages to one queue, WINDOW at a time, until the connection breaks."""

    def __init__(self, port: int, name: str, queue_id: int, *, topic: str = TOPIC) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self._topic = topic
        self._queue_id = queue_id
        self.attempted: set[bytes] = set()
        self.acknowledged: dict[int, bytes] = {}
        """By the queue_offset in the broker's answer."""
        self.commit_log_offsets: dict[int, int] = {}
        """Log offsets of the acknowledged messages, by queue_offset."""
        self.refused: list[raw_remoting.Answer] = []
        self.history: list[Sent] = []

    def run(self) -> None:
        properties = f"KEYS\x01{self.name}\x02TAGS\x01T"
        fields = raw_remoting.send_fields(
            self._topic, queue_id=self._queue_id, properties=properties
        )
        waiting: dict[int, tuple[bytes, int]] = {}
        number = 0
        try:
            with RawClient(self._port) as client:
                while True:
                    body = f"{self.name}-{number}".encode().ljust(number * 37 % 900, b".")
                    self.attempted.add(body)
                    invoked = time.monotonic_ns()
                    # Recorded before the bytes leave, because a broken send may have arrived.
                    waiting[-1] = body, invoked
                    opaque = client.send_request(raw_remoting.SEND_MESSAGE, fields, body)
                    waiting[opaque] = waiting.pop(-1)
                    number += 1
                    if len(waiting) < WINDOW:
                        continue
                    answer = client.read_answer()
                    sent, invoked = waiting.pop(answer.opaque)
                    self._note(sent, invoked, answer)
                    if answer.code == raw_remoting.SUCCESS:
                        queue_offset = int(answer.fields["queueOffset"])
                        # The second half of an ID is the message's log offset.
                        self.commit_log_offsets[queue_offset] = int(answer.fields["msgId"][16:], 16)
                        self.acknowledged[queue_offset] = sent
                    else:
                        self.refused.append(answer)
        except OSError:
            for sent, invoked in waiting.values():
                self._note(sent, invoked, None)

    def _note(self, body: bytes, invoked: int, answer: raw_remoting.Answer | None) -> None:
        self.history.append(sent_as(self.name, body, self._topic, self._queue_id, invoked, answer))


class Reader(threading.Thread):
    """Reads one queue from an offset until the connection breaks, or to its end."""

    def __init__(
        self, port: int, name: str, queue_id: int, queue_offset: int, *, topic: str = TOPIC
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self._topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.history: list[Delivered] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            self.read(to_end=False)

    def read(self, *, to_end: bool) -> None:
        with RawClient(self._port) as client:
            while True:
                fields = raw_remoting.pull_fields(self._topic, self.queue_id, self.queue_offset)
                answer = client.ask(raw_remoting.PULL_MESSAGE, fields)
                if answer.code != raw_remoting.SUCCESS:
                    if to_end:
                        return
                    time.sleep(POLL_SECONDS)
                    continue
                now, now_ms = time.monotonic_ns(), wall_ms()
                for one in raw_remoting.parse_records(answer.body):
                    self._note(one, now, now_ms)
                self.queue_offset = int(answer.fields["nextBeginOffset"])

    def _note(self, one: raw_remoting.Record, now: int, now_ms: int) -> None:
        self.history.append(
            Delivered(
                group=GROUP,
                session=self.name,
                id=id_of(one.body),
                digest=digest_of(one.body),
                topic=self._topic,
                queue_id=self.queue_id,
                queue_offset=one.queue_offset,
                at=now,
                stored_ms=one.stored_ms,
                wall_ms=now_ms,
            )
        )


class NotStartedError(AssertionError):
    """A broker exited during its start."""


class Prober:
    """Starts a broker and sends to it until a send is acknowledged."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._number = 0
        self.history: list[Sent] = []

    def start(self) -> float:
        """Return the seconds from the start of the process to the acknowledgement."""
        began = time.monotonic()
        process = self._broker.launch()
        while not self._is_acknowledged():
            if process.poll() is not None:
                what = f"the broker exited with code {process.returncode} while starting"
                raise NotStartedError(f"{what}:\n{self._broker.words()}")
            if time.monotonic() > began + ANSWER_SECONDS_MAX:
                what = f"the broker acknowledged nothing within {ANSWER_SECONDS_MAX:g} s"
                raise AssertionError(f"{what}:\n{self._broker.words()}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def _is_acknowledged(self) -> bool:
        try:
            client = RawClient(self._broker.port)
        except OSError:
            return False
        self._number += 1
        body = f"probe-{self._number}".encode()
        invoked = time.monotonic_ns()
        answer = None
        with contextlib.suppress(OSError), client:
            fields = raw_remoting.send_fields(self._topic)
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body)
        self.history.append(sent_as("probe", body, self._topic, 0, invoked, answer))
        return answer is not None and answer.code == raw_remoting.SUCCESS


def sent_as(
    client: str,
    body: bytes,
    topic: str,
    queue_id: int,
    invoked: int,
    answer: raw_remoting.Answer | None,
) -> Sent:
    """Return the history record of a send with its answer, or None without one."""
    returned, status, queue_offset = NEVER, Status.MAYBE, NOWHERE
    now, now_ms = time.monotonic_ns(), wall_ms()
    if answer is not None:
        returned = now
        if answer.code == raw_remoting.SUCCESS:
            status, queue_offset = Status.OK, int(answer.fields["queueOffset"])
        elif answer.code not in STORED_CODES:
            status = Status.REFUSED
    return Sent(
        client=client,
        id=id_of(body),
        digest=digest_of(body),
        topic=topic,
        queue_id=queue_id,
        invoked=invoked,
        returned=returned,
        status=status,
        queue_offset=queue_offset,
        wall_ms=now_ms - (now - invoked) // 1_000_000,
    )


class _Store:
    """One store directory over several cycles."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        flush_disk_type: str,
        findings: Findings,
        programs: Programs | None,
    ) -> None:
        self._kind = kind
        keys = {} if programs is None else real_clients.KEYS
        self._broker = tested_brokers.broker(kind, directory, flushDiskType=flush_disk_type, **keys)
        self._programs = programs
        self._real: RealClients | None = None
        self._processes = ExitStack()
        self._prober = Prober(self._broker, TOPIC)
        self._findings = findings
        self._history: list[Operation] = []
        self._read_to = [0] * QUEUES

    def make(self) -> None:
        """Start the broker for the first time."""
        self._broker.start()
        raw_remoting.create_topic(self._broker.port, TOPIC, queues=QUEUES)
        if self._programs is not None:
            where = (self._broker.directory, self._broker.namesrv)
            real = real_clients.beside(self._programs, *where, lambda: self._broker.port)
            self._real = self._processes.enter_context(real)
            self._real.until_working()

    def start(self) -> None:
        self._findings.recovered.append(self._prober.start())

    def load_and_kill(self, cycle: int, seconds: float) -> None:
        port = self._broker.port
        senders = [Sender(port, f"c{cycle}-q{q}", q) for q in range(QUEUES)]
        readers = self._readers(f"c{cycle}")
        for one in (*senders, *readers):
            one.start()
        until(
            lambda: sum(len(one.acknowledged) for one in senders) >= ACKNOWLEDGED_MIN,
            "sends to be acknowledged",
        )
        time.sleep(seconds)
        self._broker.kill()
        self._history.append(Happened(Cause.CRASH, time.monotonic_ns()))
        for sender in senders:
            sender.join(JOIN_SECONDS)
            if self._kind == tested_brokers.OURS:
                self._findings.wrong += [f"refused: {answer}" for answer in sender.refused]
            self._history += sender.history
        for reader in readers:
            reader.join(JOIN_SECONDS)
            self._take(reader)

    def read_on(self, cycle: int) -> None:
        """Read the broker's messages after its start, from the readers' offsets at the kill."""
        for reader in self._readers(f"c{cycle}-after"):
            reader.read(to_end=True)
            self._take(reader)

    def _readers(self, name: str) -> list[Reader]:
        return [
            Reader(self._broker.port, f"{name}-q{queue_id}", queue_id, queue_offset)
            for queue_id, queue_offset in enumerate(self._read_to)
        ]

    def _take(self, reader: Reader) -> None:
        self._history += reader.history
        self._read_to[reader.queue_id] = reader.queue_offset

    def finish(self) -> None:
        """Read to the end and check the history; stop our broker and verify its files."""
        findings = self._findings
        stored = tested_brokers.stored(self._broker.port, TOPIC, QUEUES)
        for reader in self._readers("end"):
            reader.read(to_end=True)
            self._take(reader)
        history = [*self._history, *self._prober.history]
        acknowledged = sum(isinstance(one, Sent) and one.status is Status.OK for one in history)
        findings.unanswered_but_stored += max(0, len(stored) - acknowledged)
        if self._real is not None:
            self._real.rest()
            history += self._real.come_to_end()
            history += self._real.stored()
        findings.judge(self._kind, checker.check([*history, *stored]))
        if self._kind != tested_brokers.OURS:
            return
        if self._broker.stop() != 0:
            findings.wrong.append("the broker didn't stop by itself")
        findings.wrong += verify(self._broker.store).problems
        findings.wrong += plain_store.problems(self._broker.store)

    def end(self) -> None:
        self._processes.close()
        self._broker.kill()


def run(
    directory: Path,
    flush_disk_type: str,
    cycles: int,
    dice: Random,
    *,
    kind: str = tested_brokers.OURS,
    programs: Programs | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Load and kill; a new store every few cycles keeps the verification fast.

    With `programs`, RocketMQ's own clients work next to the raw ones.
    """
    findings = Findings()
    while findings.cycles < cycles and not findings.wrong:
        place = directory / f"store-{findings.cycles}"
        store = _Store(place, kind, flush_disk_type, findings, programs)
        try:
            store.make()
            for _ in range(min(CYCLES_OF_A_STORE, cycles - findings.cycles)):
                store.load_and_kill(findings.cycles, dice.uniform(*LOAD_SECONDS))
                store.start()
                store.read_on(findings.cycles)
                findings.cycles += 1
            store.finish()
        finally:
            store.end()
        if not findings.wrong:
            shutil.rmtree(place)
            say(f"{kind} {flush_disk_type} {findings}")
    return findings
