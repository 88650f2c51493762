"""A small remoting client that can send requests no real client would send.

It shares no code with the broker, so that one bug can't hide another. One frame on the wire,
big-endian:

    +----------+----------------------------+-------------+----------+
    | length 4 | serializer 1, header len 3 | header JSON | body     |
    +----------+----------------------------+-------------+----------+
    `length` counts everything after itself.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, NamedTuple

from tests.support.long_timeouts import PATIENCE_S

SEND_MESSAGE = 10
PULL_MESSAGE = 11
UPDATE_AND_CREATE_TOPIC = 17
GET_BROKER_RUNTIME_INFO = 28
GET_MAX_OFFSET = 30
SUCCESS = 0
PULL_NOT_FOUND = 19
RECORD_HEAD = struct.Struct(">iiiiiqqiq8sq8siq")
assert RECORD_HEAD.size == 84


class Answer(NamedTuple):
    """An answer: the code, remark and fields of its header, and its body."""

    code: int
    remark: str
    fields: dict[str, str]
    body: bytes
    opaque: int


class Record(NamedTuple):
    """The parts of a stored message that tests check."""

    queue_id: int
    queue_offset: int
    body: bytes
    commit_log_offset: int = 0
    reconsume_times: int = 0
    stored_ms: int = 0


def frame(header: bytes, body: bytes = b"", *, serializer: int = 0) -> bytes:
    word = serializer << 24 | len(header)
    return struct.pack(">ii", 4 + len(header) + len(body), word) + header + body


def request(
    code: int, fields: dict[str, str] | None = None, body: bytes = b"", opaque: int = 1
) -> bytes:
    header: dict[str, Any] = {
        "code": code,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 399,
        "extFields": fields or {},
    }
    return frame(json.dumps(header).encode(), body)


class RawClient:
    """One blocking connection."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout: float = PATIENCE_S) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._opaque = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_request(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> int:
        self._opaque += 1
        self.send_bytes(request(code, fields, body, self._opaque))
        return self._opaque

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        opaque = self.send_request(code, fields, body)
        answer = self.read_answer()
        assert answer.opaque == opaque
        return answer

    def read_answer(self) -> Answer:
        (length,) = struct.unpack(">i", self._read(4))
        (header_length,) = struct.unpack(">i", self._read(4))
        assert header_length >> 24 == 0, "the answer to a JSON request is JSON"
        header = json.loads(self._read(header_length))
        body = self._read(length - 4 - header_length)
        fields = header.get("extFields") or {}
        return Answer(header["code"], header.get("remark") or "", fields, body, header["opaque"])

    def read_successes(self, count: int) -> None:
        """Read answers, which must be SUCCESS, many at a time so that a burst isn't slowed."""
        received = bytearray()
        while count:
            part = self._socket.recv(1 << 20)
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            received += part
            at = 0
            while len(received) - at >= 8:
                length, header_length = struct.unpack_from(">ii", received, at)
                if len(received) - at < 4 + length:
                    break
                header = bytes(received[at + 8 : at + 8 + header_length])
                assert b'"code":0' in header, header
                at += 4 + length
                count -= 1
            del received[:at]
        assert not received, "more answers than requests"

    def is_closed_by_peer(self) -> bool:
        """Wait for the peer to close; return False if it sends something first."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def create_topic(port: int, topic: str, *, queues: int = 4) -> None:
    with RawClient(port) as client:
        answer = client.ask(UPDATE_AND_CREATE_TOPIC, topic_fields(topic, queues))
    assert answer.code == SUCCESS, answer


def topic_fields(topic: str, queues: int = 4) -> dict[str, str]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def send_fields(topic: str, *, queue_id: int = 0, properties: str = "") -> dict[str, str]:
    return {
        "producerGroup": "raw-producer",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": properties,
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


def pull_fields(
    topic: str, queue_id: int, queue_offset: int, *, max_msg_nums: int = 32
) -> dict[str, str]:
    return {
        "consumerGroup": "raw-consumer",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(max_msg_nums),
        # Only "the subscription comes with the request": no commit, no long polling.
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }


def read_queue(port: int, topic: str, queue_id: int, *, host: str = "127.0.0.1") -> list[Record]:
    """Pull every message in a queue."""
    records: list[Record] = []
    with RawClient(port, host=host) as client:
        offset = 0
        while True:
            answer = client.ask(PULL_MESSAGE, pull_fields(topic, queue_id, offset))
            if answer.code == PULL_NOT_FOUND:
                return records
            assert answer.code == SUCCESS, answer
            records += parse_records(answer.body)
            offset = int(answer.fields["nextBeginOffset"])


def parse_records(data: bytes) -> list[Record]:
    """Parse the records of a pull's body (first version, IPv4)."""
    records = []
    at = 0
    while at < len(data):
        size, _, _, queue_id, _, queue_offset, commit_log_offset, *more = RECORD_HEAD.unpack_from(
            data, at
        )
        _, _, _, stored_ms, _, reconsume_times, _ = more
        (length,) = struct.unpack_from(">i", data, at + RECORD_HEAD.size)
        body_at = at + RECORD_HEAD.size + 4
        body = data[body_at : body_at + length]
        place = (queue_id, queue_offset, body, commit_log_offset)
        records.append(Record(*place, reconsume_times, stored_ms))
        at += size
    return records
