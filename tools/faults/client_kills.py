"""kill -9 of a broker under RocketMQ's Java and Go clients and raw ones.

All clients send to one topic, and each group gets all messages. The clients continue through the
kills. The raw group is reset now and then, and at the end the dead letters of the Java client's
group are replayed to it. `checker` checks the one history that all of them write.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import checker, recorders
from tools.faults.clients import Book, Committer, Sender, Server, as_stored, id_of
from tools.faults.operations import Cause, Delivered, Happened, Replayed, Status
from tools.faults.real_clients import GO_GROUP, JAVA_GROUP, PAUSE_MS, unfinished
from tools.faults.recorders import Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.support.java_clients import JavaClients
    from tools.faults.clients import Client
    from tools.faults.operations import Operation
    from tools.faults.recorders import Recorder

TOPIC, QUEUES = "recorded", 4
RAW_GROUP = "raw-group"
ALL_GROUPS = (JAVA_GROUP, GO_GROUP, RAW_GROUP)
UP_SECONDS = (0.3, 1.5)
SENDING_SECONDS_MAX = 7_200
WAIT_SECONDS_MAX = 180.0
JOIN_SECONDS = 30.0
DELAY_MS = 1_000
RAW_PACE = 0.02
RESETS_EACH = 100
RECORDS_MIN = 300
KEYS: dict[str, object] = {
    "messageDelayLevel": "1s 2s",
    "transactionCheckInterval": 500,
    "transactionTimeOut": 500,
    # The Go client registers its producers with a restarted broker up to half a minute late.
    "transactionCheckMax": 1_000,
    "mappedFileSizeCommitLog": 4 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 100_000,
    # The broker lives for only a second or two, and groups should keep their progress.
    "flushConsumerOffsetInterval": 200,
}


@dataclass
class Findings:
    """A run's results, with its history."""

    kills: int = 0
    history: list[Operation] = field(default_factory=list)
    report: checker.Report = field(default_factory=checker.Report)

    def __str__(self) -> str:
        return f"kills={self.kills} {self.report}"


class _Run:
    """One broker and its clients."""

    def __init__(self, directory: Path, dice: Random, findings: Findings) -> None:
        self.broker = BrokerProcess(directory / "broker", **KEYS)
        self._directory = directory
        self._dice = dice
        self._findings = findings
        self._book = Book(findings.history)

    def work(self, kills: int, java: JavaClients, program: Path) -> None:
        """Kill under load; then let all clients finish, and record the stored messages."""
        raw = list(self._raw_clients())
        with ExitStack() as stack:
            recording = [
                stack.enter_context(recorders.java(java, self._task(JAVA_GROUP))),
                stack.enter_context(recorders.go(program, self._task(GO_GROUP))),
            ]
            for client in raw:
                client.start()
                stack.callback(client.stop)
            until(
                lambda: all(len(one.history()) > RECORDS_MIN for one in recording),
                "the clients to work",
                seconds=WAIT_SECONDS_MAX,
            )
            for _ in range(kills):
                time.sleep(self._dice.uniform(*UP_SECONDS))
                self.broker.kill()
                self._findings.history.append(Happened(Cause.CRASH, time.monotonic_ns()))
                self.broker.start()
                self._findings.kills += 1
            self._come_to_rest(recording, raw)
        self._findings.history += self._stored()

    def _task(self, group: str) -> Task:
        file = self._directory / f"{group}.jsonl"
        seed = self._dice.randrange(1_000)
        where = (self.broker.namesrv, TOPIC, group)
        return Task(*where, file, seed, SENDING_SECONDS_MAX, DELAY_MS, PAUSE_MS)

    def _raw_clients(self) -> list[Client]:
        server = Server("", "127.0.0.1", self.broker.port)

        def find() -> Server:
            return server

        clients: list[Client] = []
        for queue_id in range(QUEUES):
            place = (self._book, (TOPIC, queue_id))
            clients.append(Sender(find, f"raw{queue_id}", *place, pace=RAW_PACE))
            clients.append(
                Committer(
                    find,
                    f"committer{queue_id}",
                    *place,
                    group=RAW_GROUP,
                    resets_each=RESETS_EACH,
                )
            )
        return clients

    def _come_to_rest(self, recording: list[Recorder], raw: list[Client]) -> None:
        senders = [one for one in raw if isinstance(one, Sender)]
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.join(JOIN_SECONDS)
        for recorder in recording:
            recorder.rest()
        history = self._findings.history

        def recorded() -> list[Operation]:
            return [line for one in recording for line in one.history()]

        try:
            until(
                lambda: not unfinished([*history, *recorded()], self._stored(), TOPIC, ALL_GROUPS),
                "all messages to be stored and consumed",
                seconds=WAIT_SECONDS_MAX,
                every_s=0.5,
            )
            self._replay(recorded)
        finally:
            # The checker reports missing messages.
            history += recorded()
        for recorder in recording:
            recorder.end()
        for recorder in recording:
            recorder.wait()
        for client in raw:
            client.stop()
            client.join(JOIN_SECONDS)

    def _replay(self, recorded: Callable[[], list[Operation]]) -> None:
        """Replay the dead letters of the Java client's group."""
        retry_topic, dead_topic = (f"%{kind}%{JAVA_GROUP}" for kind in ("RETRY", "DLQ"))
        began, expected = time.monotonic_ns(), set()
        with RawClient(self.broker.port) as client:
            for one in raw_remoting.read_queue(self.broker.port, dead_topic, 0):
                message_id = id_of(one.body)
                table = {"KEYS": message_id, "UNIQ_KEY": message_id, "RETRY_TOPIC": TOPIC}
                properties = "\x02".join(f"{key}\x01{value}" for key, value in table.items())
                fields = raw_remoting.send_fields(retry_topic, properties=properties)
                at = time.monotonic_ns()
                answer = client.ask(raw_remoting.SEND_MESSAGE, fields, one.body)
                assert answer.code == raw_remoting.SUCCESS, answer
                replayed = Replayed(JAVA_GROUP, message_id, at, Status.OK)
                self._findings.history.append(replayed)
                expected.add(message_id)

        def are_given() -> bool:
            return expected <= {
                one.id
                for one in recorded()
                if isinstance(one, Delivered) and one.group == JAVA_GROUP and one.at > began
            }

        until(are_given, "the dead letters to be redelivered", seconds=WAIT_SECONDS_MAX)

    def _stored(self) -> list[Operation]:
        places = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        places += [
            (f"%{kind}%{group}", 0) for kind in ("RETRY", "DLQ") for group in (JAVA_GROUP, GO_GROUP)
        ]
        return [
            one
            for topic, queue_id in places
            for one in as_stored(
                raw_remoting.read_queue(self.broker.port, topic, queue_id), topic, queue_id
            )
        ]


def run(directory: Path, kills: int, dice: Random, clients: tuple[JavaClients, Path]) -> Findings:
    """Run once."""
    findings = Findings()
    one = _Run(directory, dice, findings)
    one.broker.start()
    try:
        raw_remoting.create_topic(one.broker.port, TOPIC, queues=QUEUES)
        for group in (JAVA_GROUP, GO_GROUP):
            # Otherwise the clients find it up to half a minute later.
            raw_remoting.create_topic(one.broker.port, f"%RETRY%{group}", queues=1)
        one.work(kills, *clients)
        assert one.broker.stop() == 0
    finally:
        one.broker.kill()
        findings.report = checker.check(findings.history)
    return findings
