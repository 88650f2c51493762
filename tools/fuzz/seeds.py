"""Seeds: the initial corpus, written by real clients and brokers.

    python -m tools.fuzz.seeds DIRECTORY

Writes DIRECTORY/TARGET/HASH for each input. `python -m tools.fuzz` does so at its start.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.formats import cq_ext_unit
from broker_core.formats.cq_unit import UNIT
from broker_core.formats.index_entry import file_size
from broker_core.message.topic_config import TopicConfig
from broker_core.protocol import command
from broker_core.protocol.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from broker_core.protocol.codes import RequestCode
from broker_core.store.index_file import IndexFile
from tests.support import frame_corpus, record_logs
from tests.support.archives import unpack
from tests.support.builders import batch_item
from tests.support.faulty_storage import FaultyStorage
from tools.fuzz import disk, documents, texts
from tools.fuzz.target import INPUT_BYTES_MAX
from tools.fuzz.trial import save_input

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(frame_corpus.DIRECTORY).parent
STORES = ("store-4.9.7", "data-9158c62", "data-bc07889")
OF_CODE: dict[int, int] = {
    RequestCode.HEART_BEAT: 0,
    RequestCode.CHECK_CLIENT_CONFIG: 1,
    RequestCode.LOCK_BATCH_MQ: 2,
    RequestCode.UNLOCK_BATCH_MQ: 2,
    RequestCode.REGISTER_BROKER: 3,
    RequestCode.QUERY_DATA_VERSION: 8,
}
"""The entry of texts.BODIES for each request."""
DOCUMENTS = {
    "topics.json": 0,
    "subscriptionGroup.json": 1,
    "consumerOffset.json": 2,
    "delayOffset.json": 3,
    "consumerFilter.json": 4,
}
"""The entry of documents.LOADERS for each file."""
WRITTEN_DOCUMENTS = (
    (1, {"dataVersion": {"counter": 1, "timestamp": 2}, "subscriptionGroupTable": {
        "g": {"groupName": "g", "retryMaxTimes": 16, "brokerId": 0}}}),
    (2, {"offsetTable": {"orders@g": {"0": 7, "1": 9}}}),
    (3, {"offsetTable": {"1": 7, "18": 9}}),
    (4, {"filterDataByTopic": {"orders": {"topic": "orders", "groupFilterData": {"g": {
        "consumerGroup": "g", "topic": "orders", "expression": "a > 1", "expressionType": "SQL92",
        "bornTime": 1, "clientVersion": 2, "deadTime": 0,
        "bloomFilterData": {"bitNum": 112, "bitPos": [1, 2, 3]}}}}}}),
    (5, {"configTable": {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:4"}}}),
    (6, {"epochs": [{"epoch": 1, "startOffset": 4096}], "cutAt": 4000, "peers": ["10.0.0.2:10911"],
         "role": {"brokerRole": "ASYNC_MASTER", "brokerId": 0, "configuredRole": "SLAVE",
                  "configuredId": 1, "formerId": 1}}),
    (7, {"deletedBefore": {"orders": 4096}}),
    (8, {"ranges": [{"from": 1, "to": 9, "reason": "damaged"}]}),
)  # fmt: skip
ACCOUNTS = (
    b"globalWhiteRemoteAddresses:\n- 10.10.103.*\n- 192.168.0.*\n\naccounts:\n- accessKey: RocketMQ"
    b"\n  secretKey: 12345678\n  whiteRemoteAddress:\n  admin: false\n  defaultTopicPerm: DENY\n"
    b"  defaultGroupPerm: SUB\n  topicPerms:\n  - topicA=DENY\n  - topicB=PUB|SUB\n  groupPerms:\n"
    b"  - groupA=DENY\n- accessKey: rocketmq2\n  secretKey: 12345678\n  whiteRemoteAddress: "
    b"192.168.1.*\n  admin: true\n",
    b"accounts: [{accessKey: application, secretKey: '12345678', defaultTopicPerm: PUB|SUB}]\n"
    b"dataVersion: [{counter: 1, timestamp: 1795251442181}]\n",
    b"accounts: &a [{accessKey: &k application, secretKey: *k}]\nother: *a\n",
    b"accounts:\n- {<<: {accessKey: application}, secretKey: 0x12345678}\n",
)
RULES = (
    *("", "*", "*.*.*.*", "10.1.2.3", "::1", "10.1.2.3,10.1.2.4", "10.1.2.{3,4}", "1::{3,4}"),
    *("10.1.2.*", "10.1.*.*", "10.1.2.1-9", "10.1.4-8.*", "1:2:3:4:5:6:7:*", "1:2:3:4:5:6:7:8-ff"),
)
WATCHES = (
    {"topic": "orders", "stages": ["stored", "delivered"], "sample": 10},
    {"topic": "or*s?", "group": "g", "tag": "a", "key": "k", "client": "127.0.0.1:1"},
    {"filters": {"a": {"errorsOnly": True}, "b": {"minLatencyUs": {"appended": 9}}},
     "eventsPerSecondMax": 10},
    {"message": {"topic": "orders", "queueId": 0, "queueOffset": "7", "uniqKey": "7F"},
     "properties": {"a": "b"}, "minTotalMs": 1, "minLatencyMs": 1},
    {"resume": {"watchId": "1", "lastSeq": "2", "received": "3"}},
)  # fmt: skip
PROXIES = (
    b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911\r\n",
    b"PROXY TCP6 2001:db8::7 ::1 56324 10911\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\1\x0a\0\0\2\0\1\0\2",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24" + bytes(15) + b"\1" + bytes(15) + b"\2\0\1\0\2",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
)
FOUND = (
    ("configuration", b"a=1\\\n  2\nb=3\n"),
    ("configuration", b"b=3\na=1\\"),
    ("configuration", b"a=1\\u000aother=2\nb=\\ud800\n"),
    ("configuration", b"k=" + b"a\\\n" * 1000 + b"b"),
    ("properties", b"a\x011\x02a\x011\x02b\x012"),
    ("trace_watch", b'{"\xff":1}'),
    ("trace_watch", b'{"a":' + b"[" * 2000),
    ("java_json", b'{"a":{"x":{"$ref":"$.b"}},"b":{"y":{"$ref":"$.a"}}}'),
    (
        "java_json",
        b'{"a":[1,2]'
        + b"".join(
            b',"%c":[%b]' % (after, b",".join([b'{"$ref":"$.%c"}' % before] * 30))
            for before, after in itertools.pairwise(b"abcdef")
        )
        + b"}",
    ),
    ("document", b'\7{"deletedBefore":{"a":Infinity}}'),
    ("document", b'\7{"deletedBefore":' + b"[" * 2000),
    ("document", b'\10{"ranges":[{"from":Infinity,"to":1,"reason":""}]}'),
    ("document", b'\6{"epochs":' + b"[" * 2000),
    ("op_message", "²".encode()),
)
"""Inputs that once failed, with their targets."""
FIELDS = (
    *("0", "-1", "+7", "2147483647", "-2147483648", "9223372036854775807", "true", "TRUE", "1_0"),
    *("7F00000100002A9F0000000000000ABC", "20010DB800000000000000000000000700002A9F" + "0" * 16),
)
CONFIGURATIONS = (
    b"brokerName=broker-a\nlistenPort = 10911\n# a comment\nstorePathRootDir=/data/st\\\n  ore\n",
    b"key\\ with\\=signs : value\\u00e9\\t\n!other\nflushDiskType SYNC_FLUSH\n",
    b"fileReservedTime=48\nmaxMessageSize=4194304\nlogLevel.store=DEBUG\n",
)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield (target, input)."""
    yield from _of_frames()
    yield from _of_stores()
    yield from _of_texts()
    yield from _of_records()
    yield from FOUND
    for line in (GOLDEN / "ha" / "pair-4.9.7.json").read_text().splitlines():
        whose, content = json.loads(line)
        if whose != "connect":
            yield "ha_frame", bytes.fromhex(content)


def _of_frames() -> Iterator[tuple[str, bytes]]:
    for one in frame_corpus.everything():
        word = int.from_bytes(one.frame[4:8], "big")
        header = one.frame[8 : 8 + (word & 0xFFFFFF)]
        body = one.frame[8 + len(header) :]
        yield "frame", b"\x80" + one.frame
        yield ("binary_header" if word >> 24 else "json_header"), header
        found = command.decode(word >> 24, header, body)
        for value in found.ext_fields.values():
            yield "header_field", value.encode()
        if "i" in found.ext_fields:
            yield "properties", found.ext_fields["i"].encode()
        if found.code == RequestCode.SEND_BATCH_MESSAGE:
            yield "batch", body
        if body[:1] in (b"{", b"["):
            yield "java_json", body
            kinds = [OF_CODE[found.code]] if found.code in OF_CODE else range(len(texts.BODIES))
            for kind in kinds:
                yield "body", bytes([kind]) + body
        if (
            found.code == RequestCode.REGISTER_BROKER
            and found.ext_fields.get("compressed") == "true"
        ):
            yield "registration", zlib.decompress(body)


def _of_stores() -> Iterator[tuple[str, bytes]]:
    for name in STORES:
        with tempfile.TemporaryDirectory() as temporary:
            unpack(GOLDEN / f"{name}.tar.xz", Path(temporary))
            (root,) = {path.parent for path in Path(temporary).rglob("checkpoint")}
            yield "checkpoint", (root / "checkpoint").read_bytes()[:64]
            for path in sorted((root / "config").glob("*.json")):
                yield "java_json", path.read_bytes()
                if path.name in DOCUMENTS:
                    yield "document", bytes([DOCUMENTS[path.name]]) + path.read_bytes()
            for path in sorted((root / "consumequeue").rglob("0" * 20)):
                yield "consume_queue", b"\0" + path.read_bytes()[:600].rstrip(b"\0")
            log = (root / "commitlog" / ("0" * 20)).read_bytes()
            yield "start", b"\1" + log[: INPUT_BYTES_MAX - 1]
            at = 0
            while (size := int.from_bytes(log[at : at + 4], "big")) and at < len(log):
                yield "record", log[at : at + size]
                if at % 3 == 0:
                    yield "record_columns", log[at : at + 1024]
                at += size


def _of_texts() -> Iterator[tuple[str, bytes]]:
    table = json.loads((GOLDEN / "sql92" / "table-4.9.7.json").read_text())
    properties = ["\x02".join(f"{k}\x01{v}" for k, v in one.items()) for one in table["properties"]]
    for number, row in enumerate(table["rows"]):
        of_one = properties[number % len(properties)]
        yield "sql92", f"{row[0]}\n\n{of_one}".encode("utf-8", "replace")
        yield "properties", of_one.encode()
    for expression in ("*", "a", "a || b", "||", " a||a ||  b ", "订单 || b"):
        yield "tag_expression", expression.encode()
    for kind, document in WRITTEN_DOCUMENTS:
        yield "document", bytes([kind]) + json.dumps(document).encode()
    for text in ACCOUNTS:
        yield "plain_acl", text
    for rule in RULES:
        yield "address_rule", f"{rule}\n10.1.2.3".encode()
    for watch in WATCHES:
        yield "trace_watch", json.dumps(watch).encode()
    for field in FIELDS:
        yield "header_field", field.encode()
    for header in PROXIES:
        yield "proxy_header", header
    yield "configuration", (GOLDEN / "config" / "4.9.7.txt").read_bytes()[:2048]
    for text in CONFIGURATIONS:
        yield "configuration", text
    registered = RegisterBrokerBody(
        filter_server_list=["10.0.0.2:1"],
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={"orders": TopicConfig(topic_name="orders")}
        ),
    )
    yield "registration", zlib.decompress(registered.encode(is_compressed=True))
    yield "op_message", b"7"
    yield "op_message", b"7,8,,9"
    for raw in (
        b'{0:"a",1:"b"}',
        b'{{"brokerName":"b","queueId":0}:3}',
        b'{"a":[1],"b":{"$ref":"$.a"}}',
    ):
        yield "java_json", raw


def _of_records() -> Iterator[tuple[str, bytes]]:
    rng = random.Random(7)
    for _ in range(20):
        log, places = record_logs.a_log(rng, 8)
        yield "record_columns", bytes(log)
        yield "record", bytes(log[: places[1]])
        kept_to = places[7]
        units = b"".join(
            UNIT.pack(start, end - start, 0) for start, end in itertools.pairwise(places)
        )
        alone = bytes(log[:kept_to])
        for kind in range(4):
            # Half of it is the log, half the queue.
            yield (
                "start",
                bytes([kind]) + alone + (units.ljust(kept_to, b"\0") if kind & 2 else b""),
            )
    yield "batch", batch_item(b"one", b"a\x01b") + batch_item(b"two", b"", 7)
    yield "consume_queue", b"\xff" + UNIT.pack(0, 100, 7) * 12 + UNIT.pack(0, 0x7FFFFFFF, 0)
    ext = [cq_ext_unit.encode(cq_ext_unit.CqExtUnit(n, 1000 + n, b"\5" * n)) for n in range(9)]
    yield "consume_queue_ext", b"\0\0" + b"".join(ext)
    yield "consume_queue_ext", b"\0\x14" + ext[0] * 2 + cq_ext_unit.END_MARK
    yield "index_file", _index_file()


def _index_file() -> bytes:
    storage = FaultyStorage()
    path = Path("/store/index/20261125000000000")
    size = file_size(disk.SLOTS, disk.ENTRIES)
    storage.write_atomically(path, bytes(size))
    index = IndexFile(storage.open(path), disk.SLOTS, disk.ENTRIES)
    index.make_room(30)
    for number in range(30):
        index.put(number * 7919 % 31, number * 100, 1_795_251_442_000 + number * 500)
    data = storage.read(path)
    assert data is not None
    return data.rstrip(b"\0")


def write(directory: Path) -> None:
    """Write all seeds, one directory per target."""
    for target, data in seeds():
        save_input(directory / target, data[:INPUT_BYTES_MAX])


def main() -> int:
    write(Path(sys.argv[1]))
    return 0


assert len(documents.LOADERS) == 1 + max(kind for kind, _ in WRITTEN_DOCUMENTS)

if __name__ == "__main__":
    sys.exit(main())
