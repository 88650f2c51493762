"""The peer of an HTTP/2 connection, byte by byte: builds and parses frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.http2 import codes, frames, hpack
from broker_core.http2.connection import Connection
from broker_core.http2.engine import PYTHON, Engine
from broker_core.http2.limits import Http2Limits
from broker_core.http2.methods import Bidi, Method, ServerStreaming, Unary
from broker_core.http2.wire import Wire
from broker_core.listening.budgets import Budgets
from broker_core.listening.peer_log import PeerLog
from broker_core.native.loading import load_grpc
from broker_core.service import Service
from tests.support.clock import ManualClock
from tests.support.memory_transport import MemoryTransport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker_core.http2.call import Call

NATIVE = load_grpc()
COMPILED = None if NATIVE is None else Engine(NATIVE.HeaderDecoder, NATIVE.take_frames)
ENGINE = PYTHON
"""The default engine."""

ECHO = "/test.Service/Echo"
LATER = "/test.Service/Later"
REPEAT = "/test.Service/Repeat"
CHAT = "/test.Service/Chat"

REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", ECHO),
    (":authority", "127.0.0.1:8081"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def ends(self) -> bool:
        return self.kind in (codes.DATA, codes.HEADERS) and bool(self.flags & codes.END_STREAM)


class Answer(NamedTuple):
    """A client's view of the frames of a stream."""

    headers: dict[str, str]
    messages: list[bytes]
    trailers: dict[str, str]
    is_over: bool

    @property
    def status(self) -> int:
        return int(self.trailers["grpc-status"])

    @property
    def text(self) -> str:
        return self.trailers.get("grpc-message", "")


class Chat:
    """Echoes each message; ends when the client does."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def message_received(self, message: bytes) -> None:
        self._call.send(message)

    def half_closed(self) -> None:
        self._call.end()


class Handlers(NamedTuple):
    """The calls of a service that the test answers."""

    waiting: list[Call]
    cancelled: list[Call]

    def later(self, call: Call, _: bytes) -> None:
        self.waiting.append(call)
        call.on_cancel = lambda: self.cancelled.append(call)

    @staticmethod
    def repeat(call: Call, message: bytes) -> None:
        for _ in range(3):
            call.send(message)
        call.end()

    def methods(self) -> dict[str, Method]:
        return {
            ECHO: Unary(lambda _, message: message),
            LATER: Unary(self.later),
            REPEAT: ServerStreaming(self.repeat),
            CHAT: Bidi(Chat),
        }


class Peer:
    """A client on an in-memory connection."""

    def __init__(
        self,
        limits: Http2Limits | None = None,
        methods: Mapping[str, Method] | None = None,
        *,
        clock: ManualClock | None = None,
        wire: Wire | None = None,
        greets: bool = True,
    ) -> None:
        self.clock = clock or ManualClock()
        self.service = Handlers([], [])
        self.wire = wire or wire_of(
            self.service.methods() if methods is None else methods, limits, self.clock
        )
        self.connection = Connection(self.wire)
        self.transport = MemoryTransport(self.connection)
        self.connection.connection_made(self.transport)
        self.responses = hpack.HeaderDecoder(1 << 20)
        self._kept: list[Frame] = []
        self._next_stream = 1
        if greets:
            self.send(frames.PREFACE + frames.settings({}))
            self.drain()

    def send(self, data: bytes) -> None:
        """Feed bytes to the connection, in pieces that fit its buffer."""
        while data and self.transport.protocol is self.connection:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def drain(self) -> list[Frame]:
        """Return the frames that the connection sent since the previous call."""
        self.connection.outbox.flush()
        return list(frames_of(self.transport.drain()))

    def call(
        self,
        message: bytes | None = b"hello",
        path: str = ECHO,
        *extra: tuple[str, str],
        ends: bool = True,
    ) -> int:
        """Start a call, with or without its only message; return its stream."""
        stream_id = self._next_stream
        self._next_stream += 2
        block = block_of(*request(path), *extra)
        data = frames.headers(stream_id, block, ends=ends and message is None)
        if message is not None:
            data += data_frame(stream_id, message, ends=ends)
        self.send(data)
        return stream_id

    def answer(self, stream_id: int) -> Answer:
        """Return everything sent on a stream."""
        self._kept += self.drain()
        headers: dict[str, str] = {}
        trailers: dict[str, str] = {}
        data = b""
        is_over = False
        for frame in self._kept:
            if frame.stream_id != stream_id:
                continue
            assert not is_over or frame.kind == codes.RST_STREAM
            if frame.kind == codes.DATA:
                data += frame.payload
            elif frame.kind == codes.HEADERS:
                fields = self.responses.decode(frame.payload)
                if not headers:
                    headers = fields
                trailers = fields
            is_over = is_over or frame.ends
        return Answer(headers, messages_of(data), trailers, is_over)

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closed or self.transport.is_aborted


def wire_of(
    methods: Mapping[str, Method],
    limits: Http2Limits | None,
    clock: ManualClock,
    engine: Engine | None = None,
) -> Wire:
    return Wire(
        methods=methods,
        clock=clock,
        limits=limits or Http2Limits(),
        owner=Service(),
        budgets=Budgets(clock),
        peer_log=PeerLog(clock),
        on_made=lambda _: None,
        on_lost=lambda _: None,
        on_signed_in=lambda _: None,
        engine=ENGINE if engine is None else engine,
    )


def request(path: str = ECHO, **others: str) -> list[tuple[str, str]]:
    """Return the fields of a request, with changes such as `method="GET"`."""
    changed = {":path": path, **{f":{name}": value for name, value in others.items()}}
    return [(name, changed.get(name, value)) for name, value in REQUEST]


def block_of(*fields: tuple[str, str]) -> bytes:
    return b"".join(hpack.literal(*field) for field in fields)


def data_frame(stream_id: int, message: bytes, *, ends: bool = True) -> bytes:
    """Return a message as one or more DATA frames."""
    data = len(message).to_bytes(5, "big") + message
    size = frames.FRAME_BYTES_DEFAULT
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(
        frames.frame(
            codes.DATA,
            codes.END_STREAM if ends and number == len(pieces) else 0,
            stream_id,
            piece,
        )
        for number, piece in enumerate(pieces, start=1)
    )


def frames_of(data: bytes) -> Iterator[Frame]:
    """Yield the frames in a byte string."""
    at = 0
    while at < len(data):
        word, flags, stream_id = frames.HEAD.unpack_from(data, at)
        at += frames.HEAD_BYTES + (word >> 8)
        assert at <= len(data)
        yield Frame(word & 0xFF, flags, stream_id, data[at - (word >> 8) : at])


def messages_of(data: bytes) -> list[bytes]:
    """Return the messages in DATA payloads."""
    found = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 5], "big")
        at += 5 + size
        found.append(data[at - size : at])
    return found
