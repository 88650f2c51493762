"""Load a broker and measure the time of each request, in one thread.

A request costs the generator itself some microseconds on the same machine, which limits the
throughput it can measure, but not the brokers' CPU time.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import struct
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.support.raw_remoting import (
    GET_MAX_OFFSET,
    PULL_MESSAGE,
    RawClient,
    parse_records,
    pull_fields,
)
from tools.bench.cells import (
    BATCH,
    END_TO_END,
    END_TO_END_RATE,
    FIRST_OPAQUE,
    GROUP,
    KAFKA,
    KIB,
    QUEUES,
    TOPIC,
    TRANSACTIONS,
    a_pull,
    a_send,
    framed,
)
from tools.bench.kafka import FETCH, LENGTH, ask, error_of, fetched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

    from tools.bench.cells import Cell

LENGTHS = struct.Struct(">ii")
TIME = struct.Struct(">q")
OPAQUE = re.compile(rb'"opaque":(\d+)')
SUCCESS = re.compile(rb'"code":0\b')
NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"?(\d+)')
MESSAGE_ID = re.compile(rb'"msgId":"([0-9A-Fa-f]+)"')
QUEUE_OFFSET = re.compile(rb'"queueOffset":"?(\d+)')
END_TRANSACTION, COMMIT, ONEWAY = 37, 8, 2
LONG_POLL = 2 | 4
"""sysFlag of a pull: it may wait, and includes its subscription."""
QUIET_SECONDS = 30.0


class Loaded(NamedTuple):
    """The result of a load: messages, their total time, and the latency of each request."""

    messages: int
    seconds: float
    nanoseconds: list[int]
    requests: int = 0
    """Sends and pulls; 0 if not counted."""


def run(ports: Sequence[int], cell: Cell, seconds: float) -> Loaded:
    """Load brokers for some seconds; connections alternate between the ports."""
    if cell.kind == END_TO_END:
        with EndToEnd(ports[0], QUEUES) as both:
            return both.run(seconds)
    with Load(ports, cell) as load:
        return load.run(seconds)


class Connection:
    """A socket and its received frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Read once; yield header and body of each complete frame."""
        data = self.socket.recv(1 << 20)
        assert data, "the broker closed the connection"
        received = self._received
        received += data
        at = 0
        while len(received) - at >= LENGTHS.size:
            length, header = LENGTHS.unpack_from(received, at)
            end = at + 4 + length
            if len(received) < end:
                break
            middle = at + 8 + (header & 0xFFFFFF)
            yield bytes(received[at + 8 : middle]), bytes(received[middle:end])
            at = end
        del received[:at]


class Loader(Connection):
    """One connection that keeps its window full."""

    def __init__(self, port: int, cell: Cell) -> None:
        super().__init__(port)
        self._frames = [
            [
                one.frame(FIRST_OPAQUE + slot, (slot + number) % QUEUES)
                for number, one in enumerate(cell.requests)
            ]
            for slot in range(cell.window)
        ]
        self._sent_at = [0] * cell.window
        self._sent = 0
        self._deadline = 0
        self._times: list[int] = []
        self.unanswered = 0

    def begin(self, deadline: int, times: list[int]) -> None:
        """Fill the window, and keep it full until a time of `time.perf_counter_ns`.

        The nanoseconds of each answer go to `times`.
        """
        self._deadline, self._times = deadline, times
        now = time.perf_counter_ns()
        self.socket.sendall(b"".join(self._next(slot, now) for slot in range(len(self._frames))))

    def read(self) -> None:
        """Read the available answers, and send a new request for each."""
        now = 0
        more: list[bytes] = []
        for header, _body in self.frames():
            now = now or time.perf_counter_ns()
            slot = self._slot(header)
            self._times.append(now - self._sent_at[slot])
            self.unanswered -= 1
            self._answered(header, more)
            if now < self._deadline:
                more.append(self._next(slot, now))
        if more:
            self.socket.sendall(b"".join(more))

    def _slot(self, header: bytes) -> int:
        """Return the slot of an answer; it must be a success."""
        assert SUCCESS.search(header), header[:400]
        found = OPAQUE.search(header)
        assert found is not None
        return int(found[1]) - FIRST_OPAQUE

    def _answered(self, header: bytes, more: list[bytes]) -> None:
        """Do nothing: only the next request follows an answer."""

    def _next(self, slot: int, now: int) -> bytes:
        self._sent_at[slot] = now
        self._sent += 1
        self.unanswered += 1
        frames = self._frames[slot]
        return frames[self._sent % len(frames)]


class Load:
    """Connections that alternate between the ports and load the brokers on demand.

    Each load continues after the last request of the previous one. `is_eager`: it polls for answers
    instead of waiting, so that the broker needn't wake a process, which on a virtual machine can
    take as long as serving several requests, or no time at all.
    """

    def __init__(self, ports: Sequence[int], cell: Cell, *, is_eager: bool = False) -> None:
        kind = LOADERS.get(cell.kind, Loader)
        self._messages = cell.messages
        self._is_eager = is_eager
        self._stack = contextlib.ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._loaders = []
        for number in range(cell.connections):
            loader = kind(ports[number % len(ports)], cell)
            self._stack.callback(loader.socket.close)
            self._selector.register(loader.socket, selectors.EVENT_READ, loader)
            self._loaders.append(loader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, seconds: float) -> Loaded:
        """Load for some seconds."""
        times: list[int] = []
        # After connecting and building frames, which takes longer than some loads.
        began = time.perf_counter_ns()
        deadline = began + int(seconds * 1e9)
        for loader in self._loaders:
            loader.begin(deadline, times)
        while any(loader.unanswered for loader in self._loaders):
            for key, _ in self._ready():
                key.data.read()
        ended = time.perf_counter_ns()
        return Loaded(len(times) * self._messages, (ended - began) / 1e9, times)

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        late = time.monotonic() + QUIET_SECONDS
        while not (ready := self._selector.select(0 if self._is_eager else QUIET_SECONDS)):
            assert time.monotonic() < late, f"no answer for {QUIET_SECONDS:g} s"
        return ready


class TransactionLoader(Loader):
    """Commits each acknowledged half message and sends the next one at once."""

    def _answered(self, header: bytes, more: list[bytes]) -> None:
        message_id, queue_offset = MESSAGE_ID.search(header), QUEUE_OFFSET.search(header)
        assert message_id is not None, header
        assert queue_offset is not None, header
        fields = {
            "producerGroup": GROUP,
            "tranStateTableOffset": queue_offset[1].decode(),
            "commitLogOffset": str(int(message_id[1][-16:], 16)),
            "commitOrRollback": str(COMMIT),
            "fromTransactionCheck": "false",
            "msgId": "AC11000100002A9F0000000000000001",
        }
        more.append(framed(END_TRANSACTION, fields, 1, flag=ONEWAY))


class KafkaLoader(Loader):
    """Keeps a window of Kafka requests full."""

    def __init__(self, port: int, cell: Cell) -> None:
        super().__init__(port, cell)
        self._code = cell.requests[0].code

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Read once; yield each complete answer, from its correlation ID on."""
        data = self.socket.recv(1 << 20)
        assert data, "Kafka closed the connection"
        received = self._received
        received += data
        at = 0
        while len(received) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(received, at)
            end = at + LENGTH.size + length
            if len(received) < end:
                break
            yield bytes(received[at + LENGTH.size : end]), b""
            at = end
        del received[:at]

    def _slot(self, header: bytes) -> int:
        error = error_of(header, self._code)
        assert not error, f"Kafka's error {error}"
        (correlation_id,) = LENGTH.unpack_from(header)
        return int(correlation_id) - FIRST_OPAQUE


LOADERS: dict[str, type[Loader]] = {TRANSACTIONS: TransactionLoader, KAFKA: KafkaLoader}


def pulled(port: int, cell: Cell) -> int:
    """Return how many messages a pull of a cell finds."""
    one = cell.requests[0]
    if cell.kind == KAFKA:
        answer = ask(port, one.frame(1, 0))
        assert not error_of(answer, FETCH), answer[:400]
        return fetched(answer)
    with RawClient(port) as client:
        found = client.ask(one.code, one.fields)
    assert found.code == 0, found
    return len(parse_records(found.body))


class Consumer(Connection):
    """Long-polls one queue from its end on."""

    def __init__(self, port: int, queue: int) -> None:
        super().__init__(port)
        with RawClient(port) as client:
            fields = {"topic": TOPIC, "queueId": str(queue)}
            offset = client.ask(GET_MAX_OFFSET, fields).fields["offset"]
        self._queue = queue
        self.pulls = 0
        self._pull(int(offset))

    def read(self, times: list[int]) -> None:
        """Read the available messages, which contain their send times, and poll again."""
        for header, body in self.frames():
            now = time.perf_counter_ns()
            if body:
                times += [now - TIME.unpack_from(each.body)[0] for each in parse_records(body)]
            following = NEXT_OFFSET.search(header)
            assert following is not None, header
            self._pull(int(following[1]))

    def _pull(self, offset: int) -> None:
        fields = pull_fields(TOPIC, self._queue, offset)
        fields |= {"sysFlag": str(LONG_POLL), "suspendTimeoutMillis": "15000"}
        self.pulls += 1
        self.socket.sendall(framed(PULL_MESSAGE, fields, 1))


class EndToEnd:
    """A producer that sends to each queue in turn at a rate, with a consumer waiting on each."""

    def __init__(self, port: int, queues: int) -> None:
        sends = [replace(a_send(KIB), queue=queue) for queue in range(queues)]
        self._heads = deque(one.frame(FIRST_OPAQUE, 0)[:-KIB] for one in sends)
        self._stack = contextlib.ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._producer = self._connected(Connection(port))
        self._consumers = [Consumer(port, queue) for queue in range(queues)]
        for consumer in self._consumers:
            self._connected(consumer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _connected(self, one: Connection) -> Connection:
        self._stack.callback(one.socket.close)
        self._selector.register(one.socket, selectors.EVENT_READ, one)
        return one

    def run(self, seconds: float) -> Loaded:
        """Send for some seconds; record the times until consumers have the messages."""
        count = int(END_TO_END_RATE * seconds)
        times: list[int] = []
        rest = bytes(KIB - TIME.size)
        began = heard = time.perf_counter_ns()
        sent = 0
        pulled = sum(consumer.pulls for consumer in self._consumers)
        while len(times) < count:
            now = time.perf_counter_ns()
            while sent < count and now >= began + sent * 1_000_000_000 // END_TO_END_RATE:
                head = self._heads[0]
                self._producer.socket.sendall(head + TIME.pack(time.perf_counter_ns()) + rest)
                self._heads.rotate()
                sent += 1
            due = began + sent * 1_000_000_000 // END_TO_END_RATE - time.perf_counter_ns()
            for key, _ in self._selector.select(max(0.0, due / 1e9) if sent < count else 1.0):
                heard = time.perf_counter_ns()
                if isinstance(key.data, Consumer):
                    key.data.read(times)
                else:
                    assert all(SUCCESS.search(header) for header, _ in key.data.frames())
            assert time.perf_counter_ns() - heard < QUIET_SECONDS * 1e9, "no messages arrive"
        seconds = (time.perf_counter_ns() - began) / 1e9
        pulled = sum(consumer.pulls for consumer in self._consumers) - pulled
        return Loaded(count, seconds, times, count + pulled)


def pull_all(
    port: int, going: Event, reading: Synchronized[int], bytes_a_second: float = 0.0
) -> None:
    """Pull one queue from its beginning on demand; add up the bytes.

    `rate` limits the speed; 0 means full speed.
    """
    offset = 0
    request = a_pull(BATCH)
    due = time.perf_counter()
    with RawClient(port) as client:
        while True:
            if not going.is_set():
                going.wait()
                due = time.perf_counter()
            fields = {"queueId": "0", "queueOffset": str(offset)}
            answer = client.ask(request.code, request.fields | fields)
            assert answer.code == 0, answer
            offset = int(answer.fields["nextBeginOffset"])
            reading.value += len(answer.body)
            if bytes_a_second:
                due += len(answer.body) / bytes_a_second
                time.sleep(max(0.0, due - time.perf_counter()))
