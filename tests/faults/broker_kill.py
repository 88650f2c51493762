"""kill -9 of the whole broker under load, again and again: no acknowledged message is lost.

An answer with code 0 acknowledges. Any other answer while the broker runs is wrong. Senders and
readers write a history, which `checker` looks at when a store has had its share of kills.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.verify.verifier import verify
from tests.faults import checker
from tests.faults.operations import (
    NEVER,
    NOWHERE,
    Cause,
    Delivered,
    Happened,
    Sent,
    Status,
    Stored,
    digest_of,
)
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.faults.operations import Operation

TOPIC, GROUP = "killed", "readers"
QUEUES = 4
WINDOW = 16
LOAD_SECONDS = (0.05, 0.5)
CYCLES_OF_A_STORE = 15
ANSWER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005
JOIN_SECONDS = 30


@dataclass
class Findings:
    """The results of all cycles; times are seconds from the start of the process."""

    cycles: int = 0
    acknowledged: int = 0
    unanswered_but_stored: int = 0
    delivered: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    first_answer_seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        times = sorted(self.first_answer_seconds) or [0.0]
        return (
            f"cycles={self.cycles} acknowledged={self.acknowledged} "
            f"unanswered_but_stored={self.unanswered_but_stored} "
            f"delivered={self.delivered} given_again={dict(self.explained)} "
            f"first_answer_median={times[len(times) // 2]:.2f}s first_answer_max={times[-1]:.2f}s "
            f"wrong={self.wrong[:20]}"
        )


class Sender(threading.Thread):
    """Sends numbered messages to one queue, WINDOW unanswered at a time, until it breaks."""

    def __init__(self, port: int, name: str, queue_id: int, *, topic: str = TOPIC) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self._topic = topic
        self._queue_id = queue_id
        self.attempted: set[bytes] = set()
        self.acknowledged: dict[int, bytes] = {}
        """By the queue_offset that the broker promised."""
        self.commit_log_offsets: dict[int, int] = {}
        """Where in the log the acknowledged ones are, by their queue_offset."""
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
                    opaque = client.send_request(raw_remoting.SEND_MESSAGE, fields, body)
                    waiting[opaque] = body, invoked
                    number += 1
                    if len(waiting) < WINDOW:
                        continue
                    answer = client.read_answer()
                    sent, invoked = waiting.pop(answer.opaque)
                    self._note(sent, invoked, answer)
                    if answer.code == raw_remoting.SUCCESS:
                        queue_offset = int(answer.fields["queueOffset"])
                        # The second half of an id is the message's place in the log.
                        self.commit_log_offsets[queue_offset] = int(answer.fields["msgId"][16:], 16)
                        self.acknowledged[queue_offset] = sent
                    else:
                        self.refused.append(answer)
        except OSError:
            for sent, invoked in waiting.values():
                self._note(sent, invoked, None)

    def _note(self, body: bytes, invoked: int, answer: raw_remoting.Answer | None) -> None:
        returned, status, queue_offset = NEVER, Status.MAYBE, NOWHERE
        if answer is not None:
            returned = time.monotonic_ns()
            is_stored = answer.code == raw_remoting.SUCCESS
            status = Status.OK if is_stored else Status.REFUSED
            queue_offset = int(answer.fields["queueOffset"]) if is_stored else NOWHERE
        self.history.append(
            Sent(
                client=self.name,
                id=id_of(body),
                digest=digest_of(body),
                topic=self._topic,
                queue_id=self._queue_id,
                invoked=invoked,
                returned=returned,
                status=status,
                queue_offset=queue_offset,
            )
        )


class Reader(threading.Thread):
    """Reads one queue from an offset on, until the connection breaks, or to its end."""

    def __init__(self, port: int, name: str, queue_id: int, queue_offset: int) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.history: list[Delivered] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            self.read(to_end=False)

    def read(self, *, to_end: bool) -> None:
        with RawClient(self._port) as client:
            while True:
                fields = raw_remoting.pull_fields(TOPIC, self.queue_id, self.queue_offset)
                answer = client.ask(raw_remoting.PULL_MESSAGE, fields)
                if answer.code != raw_remoting.SUCCESS:
                    if to_end:
                        return
                    time.sleep(POLL_SECONDS)
                    continue
                now = time.monotonic_ns()
                for one in raw_remoting.parse_records(answer.body):
                    self._note(one, now)
                self.queue_offset = int(answer.fields["nextBeginOffset"])

    def _note(self, one: raw_remoting.Record, now: int) -> None:
        self.history.append(
            Delivered(
                group=GROUP,
                session=self.name,
                id=id_of(one.body),
                digest=digest_of(one.body),
                topic=TOPIC,
                queue_id=self.queue_id,
                queue_offset=one.queue_offset,
                at=now,
            )
        )


def id_of(body: bytes) -> str:
    """Return what a body begins with, which no other one has."""
    return body.decode().rstrip(".")


class _Store:
    """One store directory over several cycles."""

    def __init__(self, directory: Path, flush_disk_type: str, findings: Findings) -> None:
        self._broker = BrokerProcess(
            directory, flushDiskType=flush_disk_type, mappedFileSizeCommitLog=4 << 20
        )
        self._findings = findings
        self._history: list[Operation] = []
        self._read_to = [0] * QUEUES

    def start(self) -> None:
        started = time.monotonic()
        process = self._broker.launch()
        while not self._answers():
            if process.poll() is not None:
                what = f"the broker ended with {process.returncode} at its start"
                raise AssertionError(f"{what}:\n{self._broker.words()}")
            if time.monotonic() > started + ANSWER_SECONDS_MAX:
                what = f"the broker does not answer within {ANSWER_SECONDS_MAX:g} s"
                raise AssertionError(f"{what}:\n{self._broker.words()}")
            time.sleep(POLL_SECONDS)
        self._findings.first_answer_seconds.append(time.monotonic() - started)

    def _answers(self) -> bool:
        fields = {"topic": TOPIC, "queueId": "0"}
        try:
            with RawClient(self._broker.port) as client:
                return client.ask(raw_remoting.GET_MAX_OFFSET, fields).code >= 0
        except OSError:
            return False

    def load_and_kill(self, cycle: int, seconds: float) -> None:
        raw_remoting.create_topic(self._broker.port, TOPIC, queues=QUEUES)
        port = self._broker.port
        senders = [Sender(port, f"c{cycle}-q{q}", q) for q in range(QUEUES)]
        readers = self._readers(f"c{cycle}")
        for one in (*senders, *readers):
            one.start()
        time.sleep(seconds)
        self._broker.kill()
        self._history.append(Happened(Cause.CRASH, time.monotonic_ns()))
        for sender in senders:
            sender.join(JOIN_SECONDS)
            self._findings.wrong += [f"refused: {answer}" for answer in sender.refused]
            self._findings.acknowledged += len(sender.acknowledged)
            self._history += sender.history
        for reader in readers:
            reader.join(JOIN_SECONDS)
            self._take(reader)

    def read_on(self, cycle: int) -> None:
        """Read what the broker has after its start, from where the readers were at the kill."""
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
        """Check the history, stop the broker, verify the files."""
        findings = self._findings
        stored = [
            Stored(id_of(one.body), digest_of(one.body), TOPIC, queue_id, one.queue_offset)
            for queue_id in range(QUEUES)
            for one in raw_remoting.read_queue(self._broker.port, TOPIC, queue_id)
        ]
        report = checker.check([*self._history, *stored])
        findings.wrong += map(str, report.findings)
        findings.unanswered_but_stored += len(stored) - report.acknowledged
        findings.delivered += report.delivered
        findings.explained += report.explained
        if self._broker.stop() != 0:
            findings.wrong.append("the broker did not stop by itself")
        findings.wrong += verify(self._broker.store).problems

    def end(self) -> None:
        self._broker.kill()


def run(
    directory: Path,
    flush_disk_type: str,
    cycles: int,
    dice: Random,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Load and kill; a new store every few cycles keeps the verification quick."""
    findings = Findings()
    while findings.cycles < cycles and not findings.wrong:
        place = directory / f"store-{findings.cycles}"
        store = _Store(place, flush_disk_type, findings)
        try:
            store.start()
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
            say(f"{flush_disk_type} {findings}")
    return findings
