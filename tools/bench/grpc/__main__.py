"""Measure the cost of the parts of a gRPC call, in microseconds of CPU time.

    python -m tools.bench.grpc

No socket and no storage: the field block of a call as grpc-go sends it, the messages of a 1 KiB
send, and whole calls on an in-memory connection, one or 64 per received buffer. Each figure is the
minimum of several runs, so that a busy machine disturbs it little.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING, Any

import hpack as library

from broker_core.clock import SystemClock
from broker_core.grpc_messages import codec
from broker_core.grpc_messages.codec import PYTHON, Codec
from broker_core.grpc_messages.receiving import ReceiveMessageResponse
from broker_core.grpc_messages.sending import (
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from broker_core.grpc_messages.shared import (
    Digest,
    Message,
    Resource,
    Status,
    SystemProperties,
    Timestamp,
)
from broker_core.http2 import frames
from broker_core.http2.connection import Connection
from broker_core.http2.engine import PYTHON as PYTHON_ENGINE, Engine
from broker_core.http2.limits import Http2Limits
from broker_core.http2.methods import Unary
from broker_core.http2.wire import Wire
from broker_core.listening.budgets import Budgets
from broker_core.listening.peer_log import PeerLog
from broker_core.native.loading import load_grpc
from broker_core.service import Service
from tests.support.http2_peer import data_frame
from tools import protos
from tools.fuzz.grpc_port import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.http2.call import Call

RUNS = 7
CALLS = 6_400
PATH = "/apache.rocketmq.v2.MessagingService/SendMessage"
ID = "0102FC000000012B4B0B1B7E4400000001"
DIGEST = "D41D8CD98F00B204E9800998ECF8427E"
HANDLE = "0 1795810414934 15000 0 0 broker-a 1 0 0"
TIME = Timestamp(1_795_810_372, 123_000_000)
SENT = SystemProperties(
    tag="TagA", keys=["k1"], message_id=ID, body_encoding=1, message_type=1, born_timestamp=TIME,
    born_host="host-1",
)  # fmt: skip
RECEIVED = SystemProperties(
    tag="TagA", keys=["k1"], message_id=ID, body_digest=Digest(2, DIGEST), body_encoding=1,
    message_type=1, born_timestamp=TIME, born_host="host-1", store_timestamp=TIME,
    store_host="127.0.0.1:10911", delivery_timestamp=TIME, receipt_handle=HANDLE, queue_id=3,
    queue_offset=12_345, delivery_attempt=1,
)  # fmt: skip
ORDERS = Resource(name="orders")
REQUEST = SendMessageRequest([Message(ORDERS, {"a": "1"}, SENT, bytes(1024))])
DELIVERY = ReceiveMessageResponse(message=Message(ORDERS, {"a": "1"}, RECEIVED, bytes(1024)))
OK = Status(20_000, "OK")
ANSWER = SendMessageResponse(OK, [SendResultEntry(OK, ID, ID, 17)])


def fields(number: int) -> list[tuple[str, str]]:
    """Return the fields of a call: three change every time, one every second."""
    return [
        (":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "127.0.0.1:8081"),
        ("content-type", "application/grpc"), ("user-agent", "grpc-go/1.85.0"), ("te", "trailers"),
        ("grpc-timeout", f"{2_999_876 - number % 50_000}u"), ("x-mq-language", "GO"),
        ("x-mq-protocol", "v2"), ("x-mq-client-version", "5.1.4"), ("x-mq-client-id", "vm@1@0@abc"),
        ("x-mq-namespace", ""), ("x-mq-date-time", f"20261127T2016{number // 1000 % 60:02}Z"),
        ("x-mq-request-id", f"0-{1_795_810_414_934_123_456 + number * 7_919}"),
    ]  # fmt: skip


def least(work: Callable[[], int]) -> float:
    """Return the lowest cost in microseconds of one of a run's work items."""
    found = []
    for _ in range(RUNS):
        began = time.process_time_ns()
        done = work()
        found.append((time.process_time_ns() - began) / done / 1_000)
    return min(found)


def repeated(function: Callable[[], object]) -> Callable[[], int]:
    def work() -> int:
        for _ in itertools.repeat(None, CALLS):
            function()
        return CALLS

    return work


def reading(make: Callable[[int], Any]) -> Callable[[], int]:
    encoder = library.Encoder()
    blocks = [encoder.encode(fields(number)) for number in range(CALLS)]

    def work() -> int:
        decode = make(1 << 14).decode
        for block in blocks:
            decode(block)
        return CALLS

    return work


def calling(engine: Engine, one: Codec, at_once: int) -> Callable[[], int]:
    """Return a run of whole calls: fields, request, answer."""
    encoder = library.Encoder()
    message = codec.encode(REQUEST)
    received = [
        b"".join(
            frames.headers(2 * each + 1, encoder.encode(fields(each)), ends=False)
            + data_frame(2 * each + 1, message)
            for each in range(first, first + at_once)
        )
        + frames.window_update(0, 100 * at_once)
        for first in range(0, CALLS, at_once)
    ]

    def send(_: Call, data: bytes) -> bytes:
        (sent,) = one.decode(SendMessageRequest, data).messages
        assert sent.system_properties is not None
        uniq_key = sent.system_properties.message_id
        return one.encode(SendMessageResponse(OK, [SendResultEntry(OK, uniq_key, uniq_key, 17)]))

    def work() -> int:
        clock = SystemClock()
        wire = Wire(
            methods={PATH: Unary(send)},
            clock=clock,
            limits=Http2Limits(turn_s=1e9),
            owner=Service(),
            budgets=Budgets(clock),
            peer_log=PeerLog(clock),
            on_made=lambda _: None,
            on_lost=lambda _: None,
            on_signed_in=lambda _: None,
            engine=engine,
        )
        connection = Connection(wire)
        sink = Sink()
        connection.connection_made(sink)
        for data in (frames.PREFACE + frames.settings({}), *received):
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
            sink.written.clear()
        return CALLS

    return work


def of_protobuf(request: bytes) -> dict[str, Callable[[], object]]:
    """Return the same work with Google's implementation."""
    sent_class, received_class = map(
        protos.message_class, ("SendMessageRequest", "ReceiveMessageResponse")
    )

    def read() -> object:
        (sent,) = sent_class.FromString(request).messages
        of = sent.system_properties
        return (
            *(sent.topic.name, dict(sent.user_properties), sent.body, of.message_id, of.tag),
            *(list(of.keys), of.body_encoding, of.message_type, of.born_host),
            *(of.born_timestamp.seconds, of.born_timestamp.nanos, of.HasField("message_group")),
        )

    def write() -> object:
        made = received_class()
        message, of = made.message, made.message.system_properties
        message.topic.name, message.body = ORDERS.name, DELIVERY.message.body  # type: ignore[union-attr]
        message.user_properties["a"] = "1"
        of.keys.append("k1")
        of.tag, of.message_id, of.body_encoding, of.message_type = "TagA", ID, 1, 1
        of.body_digest.type, of.body_digest.checksum = 2, DIGEST
        for each in (of.born_timestamp, of.store_timestamp, of.delivery_timestamp):
            each.seconds, each.nanos = TIME.seconds, TIME.nanos
        of.born_host, of.store_host, of.receipt_handle = "host-1", "127.0.0.1:10911", HANDLE
        of.queue_id, of.queue_offset, of.delivery_attempt = 3, 12_345, 1
        return made.SerializeToString()

    return {"read a send": read, "write a delivery": write}


def rows_of(name: str, engine: Engine, one: Codec) -> list[tuple[str, str, float]]:
    request = codec.encode(REQUEST)
    return [
        ("fields of a call", name, least(reading(engine.header_decoder))),
        ("read a send", name, least(repeated(lambda: one.decode(SendMessageRequest, request)))),
        ("write its answer", name, least(repeated(lambda: one.encode(ANSWER)))),
        ("write a delivery", name, least(repeated(lambda: one.encode(DELIVERY)))),
        ("a whole call, one per buffer", name, least(calling(engine, one, 1))),
        ("a whole call, 64 per buffer", name, least(calling(engine, one, 64))),
    ]


def main() -> None:
    native = load_grpc()
    rows = rows_of("Python", PYTHON_ENGINE, PYTHON)
    if native is not None:
        compiled = Codec(native.decode_message, native.encode_message)
        rows += rows_of("compiled", Engine(native.HeaderDecoder, native.take_frames), compiled)
    for what, work in of_protobuf(codec.encode(REQUEST)).items():
        rows.append((what, "protobuf (upb)", least(repeated(work))))
    for what, by, microseconds in sorted(rows):
        sys.stdout.write(f"{what:28} {by:16} {microseconds:6.2f} us\n")


if __name__ == "__main__":
    main()
