"""Histories of clients of a broker set, and what must hold of them in the end.

Each message has a body of its own. A producer that gets no answer sends the same body again, as a
real client does: so a body may be stored as often as it was sent, and no more. The checker is given
what is stored in the end, and finds:

- an acknowledged message that is not stored (lost),
- a body that nobody sent, or that is stored more often than it was sent,
- a place of a queue where a consumer read something else than what is stored there,
- gaps in the queues.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.checker import SENT_TWICE
from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tests.faults.tally import Tally

ANSWER_SECONDS = 3.0
PAUSE_SECONDS = 0.02
WINDOW = 8
STORED_CODES = frozenset({10, 11, 12})
"""FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: stored, and nothing promised."""
REPORTED_MAX = 10


class Read(NamedTuple):
    """What a consumer was given."""

    queue_id: int
    queue_offset: int
    body: bytes


class History:
    """What the clients of one topic did and saw. Any thread: each entry is one atomic call."""

    def __init__(self) -> None:
        self.sent: Counter[bytes] = Counter()
        self.acknowledged: set[bytes] = set()
        self.read: list[Read] = []
        self.codes: Counter[int] = Counter()
        self._lock = threading.Lock()

    def note_sent(self, body: bytes) -> None:
        with self._lock:
            self.sent[body] += 1

    def note_answer(self, body: bytes, code: int) -> None:
        with self._lock:
            self.codes[code] += 1
            if code == raw_remoting.SUCCESS:
                self.acknowledged.add(body)

    def sent_once(self, key: str) -> bool:
        """Tell whether the body of this key was sent only once, so that there is one of it."""
        return sum(n for body, n in self.sent.items() if body.decode().rstrip(".") == key) == 1

    def count(self, stored: Mapping[int, Sequence[raw_remoting.Record]], tally: Tally) -> None:
        """Add to a tally what was acknowledged, and how what is stored in the end differs."""
        counts = Counter(one.body for records in stored.values() for one in records)
        tally.acknowledged += len(self.acknowledged)
        tally.lost += len(self.acknowledged - counts.keys())
        tally.phantom += sum(count for body, count in counts.items() if body not in self.sent)
        for body, count in counts.items():
            possible = max(1, min(count, self.sent[body]))
            tally.explained += Counter({SENT_TWICE: possible - 1})
            if body in self.sent:
                tally.unexplained += count - possible

    def wrong(self, stored: Mapping[int, Sequence[raw_remoting.Record]]) -> list[str]:
        """Return what does not fit what is stored in the end, by queue; at most a few of a kind."""
        places = {
            (queue_id, one.queue_offset): one.body
            for queue_id, records in stored.items()
            for one in records
        }
        counts = Counter(places.values())
        kinds = [
            [
                f"queue {queue_id} has gaps"
                for queue_id, records in stored.items()
                if [one.queue_offset for one in records] != list(range(len(records)))
            ],
            [f"acknowledged and lost: {body!r}" for body in self.acknowledged - counts.keys()],
            [f"stored and never sent: {body!r}" for body in counts.keys() - self.sent.keys()],
            [
                f"stored {count} times and sent {self.sent[body]} times: {body!r}"
                for body, count in counts.items()
                if count > self.sent[body] > 0
            ],
            [
                f"read at {one.queue_id}/{one.queue_offset}: {one.body!r}, stored there: "
                f"{places.get((one.queue_id, one.queue_offset))!r}"
                for one in self.read
                if places.get((one.queue_id, one.queue_offset)) != one.body
            ],
        ]
        return [line for lines in kinds for line in lines[:REPORTED_MAX]]


class Client(threading.Thread):
    """Works with whoever is the master, until it is stopped.

    `find` returns the master's host and port, None while there is none.
    """

    def __init__(self, find: Callable[[], tuple[str, int] | None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inside: AbstractContextManager[None] = nullcontext()
        """Where its sockets are made."""
        self._find = find
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def run(self) -> None:
        with self.inside:
            while not self.is_over:
                with suppress(OSError):
                    place = self._find()
                    if place is not None:
                        host, port = place
                        with RawClient(port, host=host, timeout=ANSWER_SECONDS) as client:
                            self.work(client)
                self._over.wait(PAUSE_SECONDS)

    def work(self, client: RawClient) -> None:
        """Work until the connection breaks, or this is no master any more."""
        raise NotImplementedError


class Producer(Client):
    """Sends numbered bodies to one queue, a few unanswered at a time."""

    def __init__(
        self,
        find: Callable[[], tuple[str, int] | None],
        name: str,
        topic: str,
        queue_id: int,
        history: History,
    ) -> None:
        super().__init__(find, name)
        self._topic = topic
        self._queue_id = queue_id
        self._history = history
        self._number = 0
        self._again: list[bytes] = []
        """Sent, and never answered: to be sent once more."""

    def work(self, client: RawClient) -> None:
        waiting: dict[int, bytes] = {}
        try:
            while not self.is_over or waiting:
                if len(waiting) < WINDOW and not self.is_over:
                    body = self._again.pop() if self._again else self._next()
                    self._history.note_sent(body)
                    properties = f"KEYS\x01{body.decode().rstrip('.')}\x02UNIQ_KEY\x01{self.name}"
                    fields = raw_remoting.send_fields(
                        self._topic, queue_id=self._queue_id, properties=properties
                    )
                    waiting[client.send_request(raw_remoting.SEND_MESSAGE, fields, body)] = body
                    continue
                answer = client.read_answer()
                body = waiting.pop(answer.opaque)
                self._history.note_answer(body, answer.code)
                if answer.code != raw_remoting.SUCCESS and answer.code not in STORED_CODES:
                    # Refused: a slave by now, or busy. It may be asked again, or another one.
                    self._again.append(body)
                    return
        finally:
            self._again += waiting.values()

    def _next(self) -> bytes:
        self._number += 1
        return f"{self.name}-{self._number}".encode().ljust(self._number * 37 % 700, b".")


class Consumer(Client):
    """Reads one queue from its beginning on, and never goes back."""

    def __init__(
        self,
        find: Callable[[], tuple[str, int] | None],
        name: str,
        topic: str,
        queue_id: int,
        history: History,
    ) -> None:
        super().__init__(find, name)
        self._topic = topic
        self._queue_id = queue_id
        self._history = history
        self._queue_offset = 0

    def work(self, client: RawClient) -> None:
        while not self.is_over:
            fields = raw_remoting.pull_fields(self._topic, self._queue_id, self._queue_offset)
            answer = client.ask(raw_remoting.PULL_MESSAGE, fields)
            if answer.code == raw_remoting.PULL_NOT_FOUND:
                self._over.wait(PAUSE_SECONDS)
                continue
            if answer.code != raw_remoting.SUCCESS:
                return
            for one in raw_remoting.parse_records(answer.body):
                self._history.read.append(Read(one.queue_id, one.queue_offset, one.body))
            self._queue_offset = int(answer.fields["nextBeginOffset"])
