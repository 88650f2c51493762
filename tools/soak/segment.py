"""A part of a soak: clients of a separate topic, and the check of their history.

A soak is split into parts so that the history of one fits into memory; the next one's senders
begin before this one's readers have finished. `python -m tools.soak.segment FILE` checks a part's
history and prints the findings as JSON, in a separate process during the soak.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from tests.support import raw_remoting
from tests.support.broker_process import ROOT
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import checker, operations
from tools.faults.clients import QUERY_CONSUMER_OFFSET, Book, Deferrer, Reader, Server, id_of
from tools.faults.operations import Kind, Sent, Status, Stored, digest_of
from tools.soak.clients import (
    Crowd,
    Member,
    PacedSender,
    PatientCommitter,
    PatientReader,
    Retrier,
    RetryReader,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tools.faults.clients import Client
    from tools.faults.operations import Cause

QUEUES = 4
DEFERRED_QUEUE = QUEUES - 1
DEFERRED_PART = 0.1
"""Share of all sends: alternately delayed messages and transactions."""
DELAY_NS = 1_000_000_000
JOIN_SECONDS = 60.0
END_SECONDS_MAX = 300.0
DELETE_TOPIC_IN_BROKER, DELETE_SUBSCRIPTIONGROUP = 215, 207
WRITE_SECONDS = 2.0
LONG_SECONDS = 180.0
"""A shorter part has no members that leave without unregistering, whose locks last a minute."""
PART_WITHOUT_A_WORD = 0.3
FINDINGS_MAX = 20


class Checked(Struct):
    """The result of checking a part's history."""

    acknowledged: int
    delivered: int
    lost: dict[str, int]
    explained: dict[str, int]
    unexplained: int
    findings: list[str]


class Segment:
    """One part: a topic, its clients, their history in a file."""

    def __init__(
        self,
        name: str,
        find: Callable[[], Server],
        directory: Path,
        dice: Random,
        seconds: float,
        rate: float,
        note_seconds: Callable[[float], None],
    ) -> None:
        self.name = name
        self.file = directory / f"history-{name}.jsonl"
        self._topic = f"Soak-{name}"
        self._find = find
        self._book = Book()
        self._wrong: list[str] = []
        self._writing = threading.Lock()
        self._is_written = threading.Event()
        self._writer = threading.Thread(target=self._write_on, daemon=True)
        self._readers = f"{self._topic}-readers"
        self._committers = f"{self._topic}-committers"
        self._retries = f"{self._topic}-retriers"
        self._members = f"{self._topic}-members"
        self._clients: list[Client] = []
        self._crowd = Crowd(
            self._member,
            dice,
            every_seconds=min(20.0, seconds / 8),
            part_without_a_word=PART_WITHOUT_A_WORD if seconds > LONG_SECONDS else 0.0,
        )
        plain = rate * (1 - DEFERRED_PART) / DEFERRED_QUEUE
        for queue_id in range(QUEUES):
            common = (self._find, f"{self._topic}-{queue_id}", self._book, (self._topic, queue_id))
            if queue_id == DEFERRED_QUEUE:
                pace = 1 / (rate * DEFERRED_PART)
                self._clients.append(Deferrer(*common, delay_ns=DELAY_NS, pace=pace))
            else:
                self._clients.append(PacedSender(*common, rate=plain, note_seconds=note_seconds))
            self._clients += [
                PatientReader(*common, group=self._readers),
                PatientCommitter(*common, group=self._committers),
                Retrier(*common, group=self._retries),
            ]
        retry = (f"%RETRY%{self._retries}", 0)
        self._clients.append(
            RetryReader(self._find, f"{self._topic}-again", self._book, retry, group=self._retries)
        )

    @property
    def members_came(self) -> int:
        return self._crowd.joined

    def start(self) -> None:
        raw_remoting.create_topic(self._find().port, self._topic, queues=QUEUES)
        self._writer.start()
        for client in self._clients:
            client.start()
        self._crowd.start()

    def note(self, cause: Cause) -> None:
        """Record an event of the broker."""
        self._book.history.append(operations.Happened(cause, time.monotonic_ns()))

    def end_sends(self) -> None:
        senders = self._of(PacedSender, Deferrer)
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.join(JOIN_SECONDS)

    def come_to_rest(self) -> Checked:
        """Read to the end, record stored messages, check the history, delete topic and groups.

        Leftovers would add rows to pages and to each of the broker's tables.
        """
        self._crowd.end()
        self._settle()
        self._wait_for_deferred()
        self._wait_for_readers()
        self._crowd.leave()
        for client in self._clients:
            client.stop()
        for client in self._clients:
            client.join(JOIN_SECONDS)
        for queue_id in range(QUEUES):
            self._note_stored(self._topic, queue_id)
        self._note_stored(f"%RETRY%{self._retries}", 0)
        self._is_written.set()
        self._writer.join()
        self._write()
        checked = check_apart(self.file)
        checked.findings += self._wrong
        with RawClient(self._find().port) as connection:
            for topic in (self._topic, f"%RETRY%{self._retries}"):
                connection.ask(DELETE_TOPIC_IN_BROKER, {"topic": topic})
            for group in (self._readers, self._committers, self._retries, self._members):
                fields = {"groupName": group, "cleanOffset": "true"}
                connection.ask(DELETE_SUBSCRIPTIONGROUP, fields)
        return checked

    def _member(self, number: int, leaves_without_a_word: bool) -> Member:
        return Member(
            self._find,
            f"{self._topic}-member-{number}",
            self._book,
            self._topic,
            QUEUES,
            self._members,
            leaves_without_a_word=leaves_without_a_word,
        )

    def _of(self, *kinds: type[Client]) -> list[Client]:
        return [one for one in self._clients if isinstance(one, kinds)]

    def _settle(self) -> None:
        """Send all outcomes again, because an END gets no answer."""
        with RawClient(self._find().port) as client:
            for one in self._clients:
                if not isinstance(one, Deferrer):
                    continue
                for half in one.halves:
                    answer = one.end(client, half)
                    if answer.code != raw_remoting.SUCCESS:
                        self._wrong.append(f"couldn't end {half}: {answer}")

    def _wait_for_deferred(self) -> None:
        self._write()
        expected = {
            one.id
            for one in operations.read(self.file)
            if isinstance(one, Sent) and one.kind is Kind.DELAYED and one.status is Status.OK
        }

        def is_there() -> bool:
            return expected <= {id_of(one.body) for one in self._read(self._topic, DEFERRED_QUEUE)}

        # The checker reports missing messages, and readers that don't finish.
        with suppress(AssertionError):
            until(is_there, "the delayed messages", seconds=END_SECONDS_MAX, every_s=2.0)

    def _wait_for_readers(self) -> None:
        ends = {
            (self._topic, queue_id): self._end(self._topic, queue_id) for queue_id in range(QUEUES)
        }
        retry = f"%RETRY%{self._retries}"
        readers = [one for one in self._clients if isinstance(one, Reader)]

        def is_read() -> bool:
            # The last returned messages arrive again a second later.
            ends[retry, 0] = self._end(retry, 0)
            return (
                all(one.queue_offset >= ends[one.topic, one.queue_id] for one in readers)
                and ends[retry, 0] >= self._given_back
                and all(self._committed(each) >= ends[self._topic, each] for each in range(QUEUES))
            )

        with suppress(AssertionError):
            until(is_read, "the readers to reach the end", seconds=END_SECONDS_MAX, every_s=0.5)

    @property
    def _given_back(self) -> int:
        return sum(one.given_back for one in self._clients if isinstance(one, Retrier))

    def _committed(self, queue_id: int) -> int:
        fields = {"consumerGroup": self._members, "topic": self._topic, "queueId": str(queue_id)}
        with RawClient(self._find().port) as client:
            answer = client.ask(QUERY_CONSUMER_OFFSET, fields)
        return int(answer.fields.get("offset", 0))

    def _end(self, topic: str, queue_id: int) -> int:
        fields = {"topic": topic, "queueId": str(queue_id)}
        with RawClient(self._find().port) as client:
            answer = client.ask(raw_remoting.GET_MAX_OFFSET, fields)
        return int(answer.fields.get("offset", 0))

    def _read(self, topic: str, queue_id: int) -> list[raw_remoting.Record]:
        if not self._end(topic, queue_id):
            return []
        return raw_remoting.read_queue(self._find().port, topic, queue_id)

    def _note_stored(self, topic: str, queue_id: int) -> None:
        self._book.history += [
            Stored(id_of(one.body), digest_of(one.body), topic, queue_id, one.queue_offset)
            for one in self._read(topic, queue_id)
        ]

    def _write_on(self) -> None:
        while not self._is_written.wait(WRITE_SECONDS):
            self._write()

    def _write(self) -> None:
        """Move the records so far from memory to the file."""
        with self._writing:
            history = self._book.history
            count = len(history)
            operations.write(self.file, history[:count])
            del history[:count]


def check_apart(file: Path) -> Checked:
    """Check a history in a separate process with low priority."""
    command = ["nice", "-n", "10", sys.executable, "-m", "tools.soak.segment", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=Checked)


def _check(file: Path) -> Checked:
    report = checker.check(operations.read(file))
    return Checked(
        report.acknowledged,
        report.delivered,
        dict(report.lost),
        dict(report.explained),
        report.unexplained,
        [str(one) for one in report.findings[:FINDINGS_MAX]],
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_check(Path(sys.argv[1]))))
