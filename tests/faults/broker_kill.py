"""kill -9 of the whole broker under load, again and again: no acknowledged message is lost.

An answer with code 0 acknowledges. Any other answer while the broker runs is wrong.
"""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

TOPIC = "killed"
QUEUES = 4
WINDOW = 16
LOAD_SECONDS = (0.05, 0.5)
CYCLES_OF_A_STORE = 15
ANSWER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005


@dataclass
class Findings:
    """The results of all cycles; times are seconds from the start of the process."""

    cycles: int = 0
    acknowledged: int = 0
    unanswered_but_stored: int = 0
    first_answer_seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        times = sorted(self.first_answer_seconds) or [0.0]
        return (
            f"cycles={self.cycles} acknowledged={self.acknowledged} "
            f"unanswered_but_stored={self.unanswered_but_stored} "
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

    def run(self) -> None:
        properties = f"KEYS\x01{self.name}\x02TAGS\x01T"
        fields = raw_remoting.send_fields(
            self._topic, queue_id=self._queue_id, properties=properties
        )
        waiting: dict[int, bytes] = {}
        number = 0
        try:
            with RawClient(self._port) as client:
                while True:
                    body = f"{self.name}-{number}".encode().ljust(number * 37 % 900, b".")
                    self.attempted.add(body)
                    waiting[client.send_request(raw_remoting.SEND_MESSAGE, fields, body)] = body
                    number += 1
                    if len(waiting) < WINDOW:
                        continue
                    answer = client.read_answer()
                    sent = waiting.pop(answer.opaque)
                    if answer.code == raw_remoting.SUCCESS:
                        queue_offset = int(answer.fields["queueOffset"])
                        # The second half of an id is the message's place in the log.
                        self.commit_log_offsets[queue_offset] = int(answer.fields["msgId"][16:], 16)
                        self.acknowledged[queue_offset] = sent
                    else:
                        self.refused.append(answer)
        except OSError:
            return


class _Store:
    """One store directory over several cycles."""

    def __init__(self, directory: Path, flush_disk_type: str, findings: Findings) -> None:
        self._broker = BrokerProcess(
            directory, flushDiskType=flush_disk_type, mappedFileSizeCommitLog=4 << 20
        )
        self._findings = findings
        self._promised: list[dict[int, bytes]] = [{} for _ in range(QUEUES)]
        self._attempted: list[set[bytes]] = [set() for _ in range(QUEUES)]

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
        senders = [Sender(self._broker.port, f"c{cycle}-q{q}", q) for q in range(QUEUES)]
        for sender in senders:
            sender.start()
        time.sleep(seconds)
        self._broker.kill()
        for queue_id, sender in enumerate(senders):
            sender.join(30)
            self._findings.wrong += [f"refused: {answer}" for answer in sender.refused]
            self._findings.acknowledged += len(sender.acknowledged)
            twice = self._promised[queue_id].keys() & sender.acknowledged.keys()
            self._findings.wrong += [f"{queue_id}/{offset} promised twice" for offset in twice]
            self._promised[queue_id] |= sender.acknowledged
            self._attempted[queue_id] |= sender.attempted

    def check(self) -> None:
        wrong = self._findings.wrong
        for queue_id in range(QUEUES):
            stored = raw_remoting.read_queue(self._broker.port, TOPIC, queue_id)
            bodies = [one.body for one in stored]
            if [one.queue_offset for one in stored] != list(range(len(stored))):
                wrong.append(f"queue {queue_id} has gaps")
            if len(set(bodies)) != len(bodies):
                wrong.append(f"queue {queue_id} has a message twice")
            if not set(bodies) <= self._attempted[queue_id]:
                wrong.append(f"queue {queue_id} has a message that nobody sent")
            for queue_offset, body in self._promised[queue_id].items():
                if queue_offset >= len(bodies) or bodies[queue_offset] != body:
                    wrong.append(f"{body[:40]!r} is not at {queue_id}/{queue_offset}")

    def finish(self) -> None:
        """Count the messages, stop the broker, verify the files."""
        findings = self._findings
        for queue_id in range(QUEUES):
            stored = raw_remoting.read_queue(self._broker.port, TOPIC, queue_id)
            findings.unanswered_but_stored += len(stored) - len(self._promised[queue_id])
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
                store.check()
                findings.cycles += 1
            store.finish()
        finally:
            store.end()
        if not findings.wrong:
            shutil.rmtree(place)
            say(f"{flush_disk_type} {findings}")
    return findings
