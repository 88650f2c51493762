"""Kafka's part of the comparison: its wire format, and the cells in its terms.

Frames are built once and sent repeatedly, like those of the other brokers, so that the load costs
about the same. Big-endian:

    +----------+-------+-----------+------------------+-------------+----------+------+
    | length 4 | API 2 | version 2 | correlation id 4 | client 2..  | tags 1   | body |
    +----------+-------+-----------+------------------+-------------+----------+------+

Produce 12 and Fetch 12, which name topics; CreateTopics 4, which has no tags.
Source: the protocol guide of Kafka 4.1, clients/src/main/resources/common/message/*.json.
"""

from __future__ import annotations

import functools
import socket
import struct
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.support.waiting import until
from tools.bench.cells import BATCH_ITEM_MORE, KAFKA, KIB, PAIR, REQUESTS, TOPIC, Request

if TYPE_CHECKING:
    from tools.bench.cells import Cell

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
VERSIONS = {PRODUCE: 12, FETCH: 12, CREATE_TOPICS: 4}
CLIENT = b"bench"
LEADER_ACKNOWLEDGES = 1
TIMEOUT_MS = 30_000
HEAD = struct.Struct(">ihhi")
LENGTH, ERROR, OFFSET = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">q")
TOPIC_HEAD = struct.pack(">B", 1 + len(TOPIC)) + TOPIC.encode()
"""A compact string; the encoded length is the length plus one."""
ANSWER_HEAD = 4 + 1
"""Correlation ID and tags."""
PRODUCED_ERROR_AT = ANSWER_HEAD + 1 + len(TOPIC_HEAD) + 1 + 4
FETCHED_ERROR_AT = ANSWER_HEAD + 4
FETCHED_PARTITION_AT = FETCHED_ERROR_AT + 2 + 4 + 1 + len(TOPIC_HEAD) + 1 + 4
FETCHED_ABORTED_AT = FETCHED_PARTITION_AT + 2 + 8 + 8 + 8
BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")
"""From the first offset to the number of records."""
BATCH_LENGTH_FROM = 12
CASTAGNOLI = 0x82F63B78
FETCH_MAX_BYTES = 50 << 20
UNKNOWN_TOPIC, NOT_AVAILABLE, NOT_LEADER = 3, 5, 6
NOT_YET = {UNKNOWN_TOPIC, NOT_LEADER, NOT_AVAILABLE}
TOPIC_SECONDS = 60.0


def crc32c(data: bytes) -> int:
    """Return the checksum of a record batch."""
    table = _table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.cache
def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (CASTAGNOLI if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


def _varint(value: int) -> bytes:
    """Encode a signed number as in records."""
    return _unsigned((value << 1) ^ (value >> 63))


def _unsigned(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


@functools.cache
def record_batch(count: int, size: int) -> bytes:
    """Return an uncompressed batch of `count` records of zeros without keys."""
    records = bytearray()
    for number in range(count):
        # attributes, timestamp, offset, no key, value, no headers
        record = b"\0" + _varint(0) + _varint(number) + _varint(-1) + _varint(size)
        record += bytes(size) + _varint(0)
        records += _varint(len(record)) + record
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    head = (0, count - 1, now_ms, now_ms, -1, -1, -1, count)
    behind_crc = struct.pack(">hiqqqhii", *head) + records
    length = 9 + len(behind_crc)
    return struct.pack(">qiibI", 0, length, -1, 2, crc32c(behind_crc)) + behind_crc


@dataclass(frozen=True, slots=True)
class KafkaRequest(Request):
    """One request that can be built for any correlation ID and partition.

    `code` is the API; the body comes before the partition's number, the tail after it.
    """

    tail: bytes = b""

    def frame(self, opaque: int, queue: int) -> bytes:
        partition = queue if self.queue is None else self.queue
        # no tags of the head
        rest = b"\0" + self.body + struct.pack(">i", partition) + self.tail
        return framed(self.code, opaque, rest)


def framed(api: int, correlation_id: int, rest: bytes) -> bytes:
    """Return a frame; `rest` follows the client's name."""
    client = struct.pack(">h", len(CLIENT)) + CLIENT
    length = HEAD.size - LENGTH.size + len(client) + len(rest)
    return HEAD.pack(length, api, VERSIONS[api], correlation_id) + client + rest


def produce(count: int, size: int) -> KafkaRequest:
    """Return a send of records of one size to one partition."""
    batch = record_batch(count, size)
    # no transaction; acknowledged by the leader; one topic with one partition
    head = b"\0" + struct.pack(">hi", LEADER_ACKNOWLEDGES, TIMEOUT_MS) + b"\2" + TOPIC_HEAD + b"\2"
    return KafkaRequest(PRODUCE, {}, head, tail=_unsigned(len(batch) + 1) + batch + bytes(3))


def fetch(max_bytes: int) -> KafkaRequest:
    """Return a pull of the first bytes of partition 0, without a session."""
    limits = struct.pack(">iiiibii", -1, 0, 1, FETCH_MAX_BYTES, 0, 0, -1)
    head = limits + b"\2" + TOPIC_HEAD + b"\2"
    tail = struct.pack(">iqiqi", -1, 0, -1, -1, max_bytes)
    # tags of partition and topic; nothing forgotten, no rack; tags
    return KafkaRequest(FETCH, {}, head, queue=0, tail=tail + b"\0\0\1\1\0")


def create_topic(port: int, partitions: int, batch: int) -> None:
    """Create the topic of the cells, and wait until each partition accepts records.

    A pull starts with the first of them, so they are sent in batches like all others.
    """
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    # one topic, one replica; no assignments, no configuration; not only validated
    body = struct.pack(">i", 1) + name + struct.pack(">ihii", partitions, 1, 0, 0)
    body += struct.pack(">i?", TIMEOUT_MS, False)
    answer = ask(port, framed(CREATE_TOPICS, 1, body))
    # correlation id, throttle time, one topic
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + len(name))
    assert error == 0, answer
    one = produce(batch, KIB)
    for partition in range(partitions):
        until(
            functools.partial(_takes_records, port, one.frame(1, partition)),
            f"partition {partition} to accept records",
            seconds=TOPIC_SECONDS,
        )


def _takes_records(port: int, request: bytes) -> bool:
    error = error_of(ask(port, request), PRODUCE)
    assert error in {0, *NOT_YET}, f"Kafka's error {error}"
    return error == 0


def ask(port: int, request: bytes) -> bytes:
    """Send one request on a new connection; return its answer, from its correlation ID on."""
    with socket.create_connection(("127.0.0.1", port), TOPIC_SECONDS) as peer:
        peer.sendall(request)
        with peer.makefile("rb") as file:
            (length,) = LENGTH.unpack(file.read(LENGTH.size))
            return file.read(length)


def error_of(answer: bytes, api: int) -> int:
    """Return the error of an answer for one partition, or the request's; 0 without an error."""
    for at in (PRODUCED_ERROR_AT,) if api == PRODUCE else (FETCHED_ERROR_AT, FETCHED_PARTITION_AT):
        (error,) = ERROR.unpack_from(answer, at)
        if error:
            return int(error)
    return 0


def high_watermark(port: int, partition: int) -> int:
    """Return the number of records in a partition."""
    answer = ask(port, replace(fetch(1), queue=partition).frame(1, partition))
    assert not error_of(answer, FETCH), answer[:400]
    return int(OFFSET.unpack_from(answer, FETCHED_PARTITION_AT + ERROR.size)[0])


def fetched(answer: bytes) -> int:
    """Return the number of records in an answer."""
    at = FETCHED_ABORTED_AT
    aborted, at = _read_unsigned(answer, at)
    assert aborted <= 1, "this benchmark doesn't abort transactions"
    # the preferred replica
    length, at = _read_unsigned(answer, at + 4)
    end = at + length - 1
    count = 0
    while at + BATCH_HEAD.size <= end:
        _, batch_length, *_, records = BATCH_HEAD.unpack_from(answer, at)
        at += BATCH_LENGTH_FROM + batch_length
        # The last batch may be truncated.
        count += records if at <= end else 0
    return count


def cell_of(cell: Cell, batch: int) -> Cell | None:
    """Return a cell in Kafka's terms with `batch` records a request, or None."""
    request = cell.requests[0]
    is_plain = cell.kind == REQUESTS and cell.setting != PAIR
    if not is_plain or TOPIC not in request.fields.values():
        return None
    if cell.is_pull:
        count = int(request.fields["maxMsgNums"])
        # Records that were sent together are fetched together.
        if count % batch:
            return None
        pull = fetch(len(record_batch(batch, KIB)) * count // batch)
        return replace(cell, requests=(pull,), kind=KAFKA)
    if cell.messages not in {1, batch}:
        return None
    size = len(request.body) // cell.messages - (BATCH_ITEM_MORE if cell.messages > 1 else 0)
    return replace(cell, requests=(produce(batch, size),), messages=batch, kind=KAFKA)
