"""More clients for a soak than in `clients`: paced sends, retries, changing members."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.support import raw_remoting
from tests.support.raw_remoting import Answer, RawClient
from tools.faults.clients import (
    QUERY_CONSUMER_OFFSET,
    QUERY_NOT_FOUND,
    STORED_CODES,
    UPDATE_CONSUMER_OFFSET,
    Client,
    Committer,
    Reader,
    Sender,
    id_of,
)
from tools.faults.operations import Cause, GaveBack, Happened, Progress, Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tools.faults.clients import Book, Server

HEART_BEAT, UNREGISTER_CLIENT, CONSUMER_SEND_MSG_BACK = 34, 35, 36
GET_CONSUMER_LIST_BY_GROUP, NOTIFY_CONSUMER_IDS_CHANGED = 38, 40
LOCK_BATCH_MQ, UNLOCK_BATCH_MQ = 41, 42
TOPIC_NOT_EXIST = 17
PULL_PAUSE_SECONDS = 0.1
BEHIND_SECONDS_MAX = 1.0
BALANCE_SECONDS = 1.0
ABSENT_PAUSE_SECONDS = 1.0
GIVEN_BACK_EVERY = 20
RETRY_DELAY_LEVEL = "1"
MEMBERS_MAX = 4


class PacedSender(Sender):
    """Sends at a fixed rate, one message at a time, and reports each answer's latency.

    The latency counts from the scheduled time, so that waiting for the previous send is included. A
    sender that is BEHIND_SECONDS_MAX late skips the missed messages.
    """

    window = 1

    def __init__(
        self, *arguments: object, rate: float, note_seconds: Callable[[float], None]
    ) -> None:
        super().__init__(*arguments, window=1)
        self._interval = 1 / rate
        self._note_seconds = note_seconds

    def work(self, client: RawClient) -> None:
        due = time.monotonic()
        while not self.is_over:
            due = max(due + self._interval, time.monotonic() - BEHIND_SECONDS_MAX)
            self.pause(max(0.0, due - time.monotonic()))
            if self.is_over:
                return
            body = self.next_body()
            sent = self.sent_record(body)
            answer = None
            try:
                answer = client.ask(raw_remoting.SEND_MESSAGE, self.send_fields(sent.id), body)
            finally:
                self.book.note_answer(sent, self.server, answer)
                if answer is None or answer.code != raw_remoting.SUCCESS:
                    self.unanswered.append(body)
            if answer.code == raw_remoting.SUCCESS:
                self._note_seconds(time.monotonic() - due)
            elif answer.code not in STORED_CODES:
                return


class Patient(Client):
    """Polls an empty queue a few times a second."""

    def pause(self, seconds: float = PULL_PAUSE_SECONDS) -> None:
        super().pause(seconds)


class PatientReader(Patient, Reader):
    """A reader that polls slowly."""


class PatientCommitter(Patient, Committer):
    """A committer that polls slowly."""


class RetryReader(PatientReader):
    """Reads a group's returned messages; their topic is created with the first one."""

    def work(self, client: RawClient) -> None:
        fields = raw_remoting.pull_fields(self.topic, self.queue_id, self.queue_offset)
        if client.ask(raw_remoting.PULL_MESSAGE, fields).code == TOPIC_NOT_EXIST:
            self.pause(ABSENT_PAUSE_SECONDS)
            return
        super().work(client)


class Retrier(Patient, Committer):
    """A committer that fails on each 20th message and returns it, once."""

    def __init__(self, *arguments: object, group: str) -> None:
        super().__init__(*arguments, group=group)
        self.given_back = 0
        """How often the broker accepted a returned message."""
        self._seen = 0
        self._tried: set[str] = set()

    def consume(self, client: RawClient, records: list[raw_remoting.Record]) -> None:
        for one in records:
            self._seen += 1
            message_id = id_of(one.body)
            if self._seen % GIVEN_BACK_EVERY or message_id in self._tried:
                continue
            self._tried.add(message_id)
            self._give_back(client, one, message_id)

    def _give_back(self, client: RawClient, one: raw_remoting.Record, message_id: str) -> None:
        fields = {
            "offset": str(one.commit_log_offset),
            "group": self.group,
            "delayLevel": RETRY_DELAY_LEVEL,
            "originTopic": self.topic,
            "unitMode": "false",
        }
        at, status = time.monotonic_ns(), Status.MAYBE
        try:
            answer = client.ask(CONSUMER_SEND_MSG_BACK, fields)
            status = Status.OK if answer.code == raw_remoting.SUCCESS else Status.REFUSED
        finally:
            self.book.history.append(GaveBack(self.group, message_id, at, status=status))
        self.given_back += status is Status.OK


class NotifiedClient(RawClient):
    """A connection that also receives notifications of a group's changes."""

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        opaque = self.send_request(code, fields, body)
        while (answer := self.read_answer()).opaque != opaque or (
            answer.code == NOTIFY_CONSUMER_IDS_CHANGED
        ):
            pass
        return answer


class Member(threading.Thread):
    """One member of a group that shares a topic's queues, each locked as in orderly consumption.

    It takes over a queue at the group's committed offset, and commits after each pull.
    """

    def __init__(
        self,
        find: Callable[[], Server],
        name: str,
        book: Book,
        topic: str,
        queues: int,
        group: str,
        *,
        leaves_without_a_word: bool,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._find = find
        self._book = book
        self._topic = topic
        self._queues = queues
        self._group = group
        self._leaves_without_a_word = leaves_without_a_word
        self._over = threading.Event()
        self._readers: dict[int, Reader] = {}
        self._sessions = 0
        self._broker_name = ""

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        while not self._over.is_set():
            server = self._find()
            self._broker_name = server.name
            with suppress(OSError), NotifiedClient(server.port, timeout=10.0) as client:
                self._readers = {}
                self._work(client)
            self._over.wait(PULL_PAUSE_SECONDS)

    def _work(self, client: RawClient) -> None:
        next_balance = 0.0
        while not self._over.is_set():
            if time.monotonic() >= next_balance:
                self._balance(client)
                next_balance = time.monotonic() + BALANCE_SECONDS
            if not sum(self._read(client, queue_id) for queue_id in list(self._readers)):
                self._over.wait(PULL_PAUSE_SECONDS)
        if not self._leaves_without_a_word:
            self._lock(client, UNLOCK_BATCH_MQ, list(self._readers))
            fields = {"clientID": self.name, "consumerGroup": self._group}
            client.ask(UNREGISTER_CLIENT, fields)

    def _balance(self, client: RawClient) -> None:
        """Send a heartbeat; keep, release and take over queues according to the members' list."""
        client.ask(HEART_BEAT, body=self._heartbeat())
        answer = client.ask(GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group})
        if answer.code != raw_remoting.SUCCESS:
            return
        members = sorted(json.loads(answer.body)["consumerIdList"])
        if self.name not in members:
            return
        place = members.index(self.name)
        mine = [each for each in range(self._queues) if each % len(members) == place]
        given_up = [each for each in self._readers if each not in mine]
        if given_up:
            for queue_id in given_up:
                del self._readers[queue_id]
            self._lock(client, UNLOCK_BATCH_MQ, given_up)
        locked = self._lock(client, LOCK_BATCH_MQ, mine)
        for queue_id in mine:
            if queue_id not in locked:
                self._readers.pop(queue_id, None)
            elif queue_id not in self._readers:
                self._take_over(client, queue_id)

    def _take_over(self, client: RawClient, queue_id: int) -> None:
        self._sessions += 1
        asked_at = time.monotonic_ns()
        self._book.history.append(Happened(Cause.REBALANCE, asked_at, self._group))
        answer = client.ask(QUERY_CONSUMER_OFFSET, self._fields(queue_id))
        if answer.code not in (raw_remoting.SUCCESS, QUERY_NOT_FOUND):
            return
        reader = Reader(
            self._find,
            f"{self.name}-{self._sessions}",
            self._book,
            (self._topic, queue_id),
            group=self._group,
        )
        reader.server = self._find()
        is_known = answer.code == raw_remoting.SUCCESS
        reader.queue_offset = int(answer.fields["offset"]) if is_known else 0
        self._readers[queue_id] = reader
        self._note_progress(reader, asked_at)

    def _read(self, client: RawClient, queue_id: int) -> int:
        reader = self._readers[queue_id]
        count = reader.read(client)
        if count:
            request = {**self._fields(queue_id), "commitOffset": str(reader.queue_offset)}
            asked_at = time.monotonic_ns()
            if client.ask(UPDATE_CONSUMER_OFFSET, request).code == raw_remoting.SUCCESS:
                self._note_progress(reader, asked_at)
        return count

    def _note_progress(self, reader: Reader, asked_at: int) -> None:
        """Record the time of the request, when the broker was alive."""
        self._book.history.append(
            Progress(self._group, self._topic, reader.queue_id, reader.queue_offset, asked_at)
        )

    def _lock(self, client: RawClient, code: int, queues: list[int]) -> set[int]:
        body = {
            "clientId": self.name,
            "consumerGroup": self._group,
            "mqSet": [
                {"topic": self._topic, "brokerName": self._broker_name, "queueId": each}
                for each in queues
            ],
        }
        answer = client.ask(code, body=json.dumps(body).encode())
        found = json.loads(answer.body)["lockOKMQSet"] if code == LOCK_BATCH_MQ else []
        return {each["queueId"] for each in found}

    def _fields(self, queue_id: int) -> dict[str, str]:
        return {"consumerGroup": self._group, "topic": self._topic, "queueId": str(queue_id)}

    def _heartbeat(self) -> bytes:
        subscription = {
            "topic": self._topic,
            "subString": "*",
            "expressionType": "TAG",
            "subVersion": 0,
        }
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
            "unitMode": False,
        }
        body = {"clientID": self.name, "consumerDataSet": [consumer], "producerDataSet": []}
        return json.dumps(body).encode()


class Crowd(threading.Thread):
    """Lets members of a group join and leave, one at a time; at least one is always there."""

    def __init__(
        self,
        make: Callable[[int, bool], Member],
        dice: Random,
        every_seconds: float,
        part_without_a_word: float,
    ) -> None:
        """`make` creates a member by its number and whether it leaves without unregistering.

        A lock that it leaves behind holds up its queue for a minute.
        """
        super().__init__(name="crowd", daemon=True)
        self._make = make
        self._dice = dice
        self._every_seconds = every_seconds
        self._part_without_a_word = part_without_a_word
        self._over = threading.Event()
        self._members: list[Member] = []
        self.joined = 0

    def run(self) -> None:
        self._come(leaves_without_a_word=False)
        while not self._over.wait(self._every_seconds * self._dice.uniform(0.5, 1.5)):
            count = len(self._members)
            if count == 1 or (count < MEMBERS_MAX and self._dice.random() < 0.5):
                self._come(leaves_without_a_word=self._dice.random() < self._part_without_a_word)
            else:
                member = self._members.pop(self._dice.randrange(1, count))
                member.stop()
                member.join()

    def end(self) -> None:
        """Stop changing members; then all leave."""
        self._over.set()
        self.join()

    def leave(self) -> None:
        for member in self._members:
            member.stop()
        for member in self._members:
            member.join()

    def _come(self, *, leaves_without_a_word: bool) -> None:
        self.joined += 1
        member = self._make(self.joined, leaves_without_a_word)
        self._members.append(member)
        member.start()
