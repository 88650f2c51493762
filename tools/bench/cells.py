"""The cells of the comparison: the load for each broker, and the targets for ours."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.support.raw_remoting import PULL_MESSAGE, frame, pull_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC, TAGGED_TOPIC, DELAYED_TOPIC = "Bench", "BenchTagged", "BenchDelayed"
QUEUES = 4
GROUP = "bench"
SEND_MESSAGE_V2, SEND_BATCH_MESSAGE = 310, 320
BATCH = 32
FIRST_OPAQUE = 100_000
"""Opaques have the same number of digits, so that each slot's frames are built once."""
KIB = 1024
GIB = 1 << 30
SETTLE = 0.05
ASYNC, FLUSH, PAIR = "ASYNC_FLUSH", "SYNC_FLUSH", "SYNC_MASTER"
REQUESTS, TRANSACTIONS, END_TO_END = "requests", "transactions", "end to end"
KAFKA = "requests of Kafka"
ONE_IN_TEN = 10
BATCH_ITEM_MORE = 22
"""Size of a message in a batch, excluding its body, without properties."""
END_TO_END_RATE = 2_000
TRANSACTED = "TRAN_MSG\1true\2PGROUP\1bench\2UNIQ_KEY\1AC11000100002A9F0000000000000001\2"


def framed(
    code: int, fields: dict[str, str], opaque: int, body: bytes = b"", flag: int = 0
) -> bytes:
    """Return a request as clients write it: in JSON without spaces."""
    header = {
        "code": code,
        "extFields": fields,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 407,
    }
    return frame(json.dumps(header, separators=(",", ":")).encode(), body)


@dataclass(frozen=True, slots=True)
class Request:
    """One request that can be built for any opaque and queue, unless it has a fixed queue."""

    code: int
    fields: dict[str, str]
    body: bytes = b""
    queue: int | None = None

    def frame(self, opaque: int, queue: int) -> bytes:
        queue_field = "queueId" if self.code == PULL_MESSAGE else "e"
        own = queue if self.queue is None else self.queue
        return framed(self.code, self.fields | {queue_field: str(own)}, opaque, self.body)


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load.

    Attributes:
        key: its name on the command line.
        requests: sent in turn, over all queues.
        messages: per request; for a pull, the messages found are counted.
        window: unanswered requests on each connection.
        setting: how the brokers run.
        cost, rate: targets for ours, as ratios to the real 4.9.7's; 0 without a target.
        settle: seconds of work after the last answer that the brokers are charged for.
    """

    key: str
    name: str
    requests: Sequence[Request]
    messages: int = 1
    connections: int = 1
    window: int = 1
    setting: str = ASYNC
    cost: float = 0.0
    rate: float = 2.0
    settle: float = SETTLE
    kind: str = REQUESTS

    @property
    def is_pull(self) -> bool:
        return self.kind == REQUESTS and self.requests[0].code == PULL_MESSAGE


def a_send(
    size: int, *, topic: str = TOPIC, tag: str = "", more: str = "", sys_flag: int = 0
) -> Request:
    """Return a send as a Java client writes it; `more` are extra properties."""
    properties = (f"TAGS\1{tag}\2" if tag else "") + more
    values = [GROUP, topic, "TBW102", "4", "0", str(sys_flag), "1700000000000", "0", properties]
    fields = dict(zip("abcdefghijk", [*values, "0", "false"], strict=True)) | {"m": "false"}
    return Request(SEND_MESSAGE_V2, fields, bytes(size))


def a_batch(size: int) -> Request:
    """Return a send of a batch of messages."""
    item = struct.pack(">iiiii", BATCH_ITEM_MORE + size, 0, 0, 0, size) + bytes(size) + b"\0\0"
    return Request(SEND_BATCH_MESSAGE, a_send(0).fields | {"m": "true"}, item * BATCH)


def a_pull(count: int, *, topic: str = TOPIC, expression: str = "*") -> Request:
    fields = pull_fields(topic, 0, 0, max_msg_nums=count) | {"subscription": expression}
    return Request(PULL_MESSAGE, fields, queue=0)


ONE_KIB = (a_send(KIB),)
TAGGED = tuple(
    replace(a_send(100, topic=TAGGED_TOPIC, tag=tag), queue=0)
    for tag in ("A", *"B" * (ONE_IN_TEN - 1))
)
"""The messages for the tag-filtered pull."""
DELAYED = tuple(
    a_send(KIB, topic=DELAYED_TOPIC, more="DELAY\0011\2" if number == 0 else "")
    for number in range(ONE_IN_TEN)
)
HALF = a_send(KIB, more=TRANSACTED, sys_flag=4)

CELLS = (
    Cell("send-1", "send 1 KiB, window 1", ONE_KIB, cost=0.2),
    Cell("send-64", "send 1 KiB, window 64", ONE_KIB, window=64, cost=0.25),
    Cell("send-256", "send 1 KiB, window 256", ONE_KIB, window=256, cost=0.25),
    Cell("send-16x16", "send 1 KiB, 16 x 16", ONE_KIB, connections=16, window=16, cost=0.3),
    Cell("send-64x1", "send 1 KiB, 64 x 1", ONE_KIB, connections=64, cost=0.35),
    Cell("small-4x64", "send 100 B, 4 x 64", (a_send(100),), connections=4, window=64, cost=0.15),
    Cell("batch-100", "batch 32 x 100 B", (a_batch(100),), BATCH, window=8, cost=0.4),
    Cell("batch-1k", "batch 32 x 1 KiB", (a_batch(KIB),), BATCH, window=8, cost=0.45),
    Cell("pull-32", "pull 32", (a_pull(32),), BATCH, cost=0.25),
    Cell("pull-1", "pull 1", (a_pull(1),), cost=0.3),
    Cell("pull-tag", "pull 32, tag of 1 in 10", (a_pull(32, topic=TAGGED_TOPIC, expression="A"),)),
    Cell("end-to-end", "end to end, 2,000/s", ONE_KIB, cost=0.35, rate=0.0, kind=END_TO_END),
    Cell("delay", "send 1 KiB, 1 in 10 delayed", DELAYED, window=64, settle=3.0),
    Cell("transaction", "transactions, 16 x 1", (HALF,), connections=16, kind=TRANSACTIONS),
    Cell("flush-1", "SYNC_FLUSH, window 1", ONE_KIB, setting=FLUSH, cost=0.3, rate=1.3),
    Cell(
        "flush-64", "SYNC_FLUSH, window 64", ONE_KIB, window=64, setting=FLUSH, cost=0.3, rate=1.3
    ),
    Cell(
        *("flush-16x16", "SYNC_FLUSH, 16 x 16", ONE_KIB),
        connections=16,
        window=16,
        setting=FLUSH,
        cost=0.3,
        rate=1.3,
    ),
    Cell("pair-64", "SYNC_MASTER, window 64", ONE_KIB, window=64, setting=PAIR, cost=0.35),
)
