"""Clients of a broker set that record their operations, as `operations`.

Each has one queue and works with the current master until it's stopped; when a connection breaks,
it opens another. Each message has a distinct body, which begins with its ID. A producer without an
answer sends the same body again, as a real client does.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient
from tools.faults.operations import (
    NEVER,
    NOWHERE,
    Bounds,
    Cause,
    Delivered,
    Ended,
    Happened,
    Kind,
    Outcome,
    Progress,
    Sent,
    Status,
    Stored,
    digest_of,
    wall_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from tools.faults.operations import Operation

QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, END_TRANSACTION = 14, 15, 37
QUERY_NOT_FOUND = 22
ANSWER_SECONDS = 3.0
PAUSE_SECONDS = 0.02
WINDOW = 8
STORED_CODES = frozenset({10, 11, 12})
"""FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: stored, but not guaranteed."""
SERVICE_NOT_AVAILABLE = 14
PRODUCERS = "producers"
RESET_BY = 20
ENDINGS = {Outcome.COMMIT: "8", Outcome.ROLLBACK: "12"}


class Server(NamedTuple):
    """A broker's name and address."""

    name: str
    host: str
    port: int


@dataclass
class Book:
    """The record of all clients of a run. Thread-safe: each entry is one atomic call."""

    history: list[Operation] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    is_disk_failing: bool = False
    """Sends that waited for a failed flush get the answer of a rejected send, but may be stored."""

    def note_answer(
        self, sent: Sent, server: Server, answer: raw_remoting.Answer | None
    ) -> raw_remoting.Answer | None:
        """Record a send with its answer, None without one; return the answer."""
        returned, status, queue_offset = NEVER, Status.MAYBE, NOWHERE
        if answer is not None:
            returned = time.monotonic_ns()
            self.codes[answer.code] += 1
            if answer.code == raw_remoting.SUCCESS:
                status, queue_offset = Status.OK, int(answer.fields["queueOffset"])
            elif answer.code not in STORED_CODES and not (
                answer.code == SERVICE_NOT_AVAILABLE and self.is_disk_failing
            ):
                status = Status.REFUSED
        self.history.append(
            replace(
                sent,
                returned=returned,
                status=status,
                queue_offset=queue_offset,
                server=server.name,
            )
        )
        return answer


class Client(threading.Thread):
    """Works with the server that `find` returns, if any, until it's stopped."""

    def __init__(
        self,
        find: Callable[[], Server | None],
        name: str,
        book: Book,
        place: tuple[str, int],
        inside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`place` is the topic and queue; `inside` the host for its sockets."""
        super().__init__(name=name, daemon=True)
        self.topic, self.queue_id = place
        self.book = book
        self.server = Server("", "", 0)
        self._find = find
        self._inside = inside
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def pause(self, seconds: float = PAUSE_SECONDS) -> None:
        self._over.wait(seconds)

    def run(self) -> None:
        with self._inside():
            while not self.is_over:
                self.try_once()
                self.pause()

    def try_once(self) -> None:
        """Work with the current server until the connection breaks, which isn't an error."""
        with suppress(OSError):
            server = self._find()
            if server is not None:
                self.server = server
                with RawClient(server.port, host=server.host, timeout=ANSWER_SECONDS) as client:
                    self.work(client)

    def work(self, client: RawClient) -> None:
        """Work until the connection breaks or the server is no longer the master."""
        raise NotImplementedError


class Sender(Client):
    """Sends numbered bodies, a few unanswered at a time.

    With a window of one, each send waits for the previous acknowledgement, so their order counts.
    """

    window = WINDOW
    pause_seconds = 0.0
    _number = 0

    def __init__(self, *arguments: object, window: int = WINDOW, pace: float = 0.0) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.window = window
        self.pause_seconds = pace
        self.unanswered: list[bytes] = []
        """Sent and never answered, so to be sent again."""

    def work(self, client: RawClient) -> None:
        waiting: dict[int, Sent] = {}
        bodies: dict[str, bytes] = {}
        try:
            while not self.is_over or waiting:
                if len(waiting) < self.window and not self.is_over:
                    body = self.next_body()
                    sent = self.sent_record(body)
                    bodies[sent.id] = body
                    # Recorded before the bytes leave, because a broken send may have arrived.
                    waiting[-1] = sent
                    opaque = client.send_request(
                        raw_remoting.SEND_MESSAGE, self.send_fields(sent.id), body
                    )
                    waiting[opaque] = waiting.pop(-1)
                    if self.pause_seconds:
                        self.pause(self.pause_seconds)
                    continue
                answer = client.read_answer()
                sent = waiting.pop(answer.opaque)
                body = bodies.pop(sent.id)
                self.book.note_answer(sent, self.server, answer)
                is_stored = answer.code == raw_remoting.SUCCESS or answer.code in STORED_CODES
                if not is_stored or (self.window == 1 and answer.code != raw_remoting.SUCCESS):
                    self.unanswered.append(body)
                if not is_stored:
                    # A slave by now, or busy. The next attempt may use another server.
                    return
        finally:
            for sent in waiting.values():
                self.book.note_answer(sent, self.server, None)
            self.unanswered += bodies.values()

    def sent_record(self, body: bytes) -> Sent:
        """Return the record of a send that begins now."""
        return Sent(
            self.name,
            id_of(body),
            digest_of(body),
            self.topic,
            self.queue_id,
            time.monotonic_ns(),
            shard=self.name if self.window == 1 else "",
            wall_ms=wall_ms(),
        )

    def send_fields(self, message_id: str) -> dict[str, str]:
        return raw_remoting.send_fields(
            self.topic,
            queue_id=self.queue_id,
            properties=f"KEYS\x01{message_id}\x02UNIQ_KEY\x01{self.name}",
        )

    def next_body(self) -> bytes:
        """Return the next body to send: an unanswered one, else a new one."""
        if self.unanswered:
            return self.unanswered.pop()
        self._number += 1
        return f"{self.name}-{self._number}".encode().ljust(self._number * 37 % 700, b".")


@dataclass
class Half:
    """An acknowledged half message and its planned outcome."""

    id: str
    queue_offset: str
    commit_log_offset: str
    outcome: Outcome


class Deferrer(Client):
    """Alternates between delayed messages and transactions; sends each ID once."""

    def __init__(
        self, *arguments: object, delay_ns: int, pace: float, has_halves: bool = True
    ) -> None:
        """`delay_ns` is the duration of the first delay level; without halves, all are delayed."""
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.halves: list[Half] = []
        """All acknowledged half messages."""
        self._delay_ns = delay_ns
        self._pace = pace
        self._has_halves = has_halves
        self._number = 0

    def work(self, client: RawClient) -> None:
        while not self.is_over:
            self._number += 1
            message_id = f"{self.name}-{self._number}"
            is_half = self._has_halves and self._number % 2 == 0
            if not is_half:
                answer = self._send(client, message_id, Kind.DELAYED, DELAY="1")
            else:
                answer = self._send(
                    client, message_id, Kind.HALF, TRAN_MSG="true", PGROUP=PRODUCERS
                )
            if answer.code != raw_remoting.SUCCESS and answer.code not in STORED_CODES:
                return
            if is_half and answer.code == raw_remoting.SUCCESS:
                outcome = Outcome.ROLLBACK if self._number % 6 == 0 else Outcome.COMMIT
                place = str(int(answer.fields["msgId"][16:], 16))
                half = Half(message_id, answer.fields["queueOffset"], place, outcome)
                self.halves.append(half)
                self.end(client, half)
            self.pause(self._pace)

    def end(self, client: RawClient, half: Half) -> raw_remoting.Answer:
        """End a transaction; repeating the call sends the same outcome."""
        fields = {
            "producerGroup": PRODUCERS,
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.commit_log_offset,
            "commitOrRollback": ENDINGS[half.outcome],
        }
        self.book.history.append(Ended(half.id, half.outcome, time.monotonic_ns()))
        return client.ask(END_TRANSACTION, fields)

    def _send(
        self, client: RawClient, message_id: str, kind: Kind, **properties: str
    ) -> raw_remoting.Answer:
        text = "\x02".join(f"{key}\x01{value}" for key, value in properties.items())
        fields = raw_remoting.send_fields(
            self.topic,
            queue_id=self.queue_id,
            properties=f"KEYS\x01{message_id}\x02UNIQ_KEY\x01{message_id}\x02{text}",
        )
        body = message_id.encode()
        sent = Sent(
            self.name,
            message_id,
            digest_of(body),
            self.topic,
            self.queue_id,
            time.monotonic_ns(),
            kind=kind,
            delay_ns=self._delay_ns if kind is Kind.DELAYED else 0,
            wall_ms=wall_ms(),
        )
        try:
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body)
        except OSError:
            self.book.note_answer(sent, self.server, None)
            raise
        self.book.note_answer(sent, self.server, answer)
        return answer


class Reader(Client):
    """Reads a queue from its beginning at a local position, and never goes back."""

    def __init__(self, *arguments: object, group: str, is_of_master: bool = True) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.group = group
        self.queue_offset = 0
        self._is_of_master = is_of_master
        self._session = self.name

    def work(self, client: RawClient) -> None:
        while not self.is_over:
            if self.read(client) == 0:
                self.pause()

    def read(self, client: RawClient) -> int:
        """Pull once; return the number of messages, or -1 if the queue isn't served here."""
        invoked = time.monotonic_ns()
        fields = raw_remoting.pull_fields(self.topic, self.queue_id, self.queue_offset)
        answer = client.ask(raw_remoting.PULL_MESSAGE, {**fields, "consumerGroup": self.group})
        if answer.code not in (raw_remoting.SUCCESS, raw_remoting.PULL_NOT_FOUND):
            raise ConnectionAbortedError(f"a pull was answered with {answer.code}")
        if self._is_of_master:
            low, high = (int(answer.fields[key]) for key in ("minOffset", "maxOffset"))
            self.book.history.append(
                Bounds(self.server.name, self.topic, self.queue_id, low, high, invoked)
            )
        if answer.code == raw_remoting.PULL_NOT_FOUND:
            return 0
        records = raw_remoting.parse_records(answer.body)
        now, now_ms = time.monotonic_ns(), wall_ms()
        for one in records:
            self.book.history.append(
                Delivered(
                    self.group,
                    self._session,
                    id_of(one.body),
                    digest_of(one.body),
                    self.topic,
                    self.queue_id,
                    one.queue_offset,
                    now,
                    one.reconsume_times,
                    one.stored_ms,
                    now_ms,
                )
            )
        self.consume(client, records)
        self.queue_offset = int(answer.fields["nextBeginOffset"])
        return len(records)

    def consume(self, client: RawClient, records: list[raw_remoting.Record]) -> None:
        """Process messages before the next pull; does nothing by default."""


class Committer(Reader):
    """Reads from its group's committed offset and commits after each pull.

    With `resets_each`, it resets the group after that many pulls, as mqadmin does if no consumer of
    the group is online.
    """

    _sessions = _pulls = 0

    def __init__(self, *arguments: object, group: str, resets_each: int = 0) -> None:
        super().__init__(*arguments, group=group)
        self._resets_each = resets_each

    def work(self, client: RawClient) -> None:
        self._sessions += 1
        self._session = f"{self.name}-{self._sessions}"
        self.book.history.append(Happened(Cause.REBALANCE, time.monotonic_ns(), self.group))
        fields = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
        }
        asked_at = time.monotonic_ns()
        answer = client.ask(QUERY_CONSUMER_OFFSET, fields)
        if answer.code not in (raw_remoting.SUCCESS, QUERY_NOT_FOUND):
            return
        is_known = answer.code == raw_remoting.SUCCESS
        self.queue_offset = int(answer.fields["offset"]) if is_known else 0
        self._note_progress(asked_at)
        while not self.is_over:
            if self.read(client) == 0:
                self.pause()
                continue
            request = {**fields, "commitOffset": str(self.queue_offset)}
            asked_at = time.monotonic_ns()
            if client.ask(UPDATE_CONSUMER_OFFSET, request).code != raw_remoting.SUCCESS:
                return
            self._note_progress(asked_at)
            self._pulls += 1
            if self._resets_each and self._pulls % self._resets_each == 0:
                self._reset(client, fields)

    def _reset(self, client: RawClient, fields: dict[str, str]) -> None:
        self._sessions += 1
        self._session = f"{self.name}-{self._sessions}"
        self.queue_offset = max(0, self.queue_offset - RESET_BY)
        asked_at = time.monotonic_ns()
        self.book.history.append(Happened(Cause.RESET, asked_at, self.group))
        request = {**fields, "commitOffset": str(self.queue_offset)}
        answer = client.ask(UPDATE_CONSUMER_OFFSET, request)
        if answer.code != raw_remoting.SUCCESS:
            raise ConnectionAbortedError(f"a reset was answered with {answer.code}")
        self._note_progress(asked_at)

    def _note_progress(self, asked_at: int) -> None:
        """Record progress with the time of the request, when the broker was alive.

        On a busy machine an answer may be read after the broker was killed.
        """
        self.book.history.append(
            Progress(self.group, self.topic, self.queue_id, self.queue_offset, asked_at)
        )


def as_stored(
    records: Iterable[raw_remoting.Record], topic: str, queue_id: int
) -> Iterator[Stored]:
    """Yield the history records of a queue's stored messages."""
    for one in records:
        body = one.body
        place = (topic, queue_id, one.queue_offset)
        yield Stored(id_of(body), digest_of(body), *place, one.stored_ms)


def id_of(body: bytes) -> str:
    """Return the unique ID at the beginning of a body."""
    return body.decode().rstrip(".")
