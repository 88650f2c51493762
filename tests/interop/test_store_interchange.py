"""A store directory moves from the real broker to ours and back without loss."""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

import pytest

from broker_core.verify.verifier import verify
from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.interop

VERSION = "4.9.7"
TOPIC = "interchange"
GROUP = "interchange-group"
QUEUES = 4
ROUND = 400
BATCH = 7
SECONDS = 120
QUERY_MESSAGE = 12
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
GET_ALL_TOPIC_CONFIG = 21
VIEW_MESSAGE_BY_ID = 33
SEND_BATCH_MESSAGE = 320
KEYS = {
    # Small files, so that there are several of each kind.
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 500,
    "messageDelayLevel": "1s 2s 3s",
    "brokerIP1": "127.0.0.1",
}
OUR_STORE_LINE = re.compile(r" (WARNING|ERROR|CRITICAL) broker_core\.store")
THEIR_STORE_LINE = re.compile(
    r"recover|CommitLog|ConsumeQueue|consume queue|mapped ?file|Index|checkpoint|magic|offset",
    re.IGNORECASE,
)
# RocketMQ's log messages for stores that only it has written, at starts and while it runs.
THEIR_USUAL_WORDS = re.compile(
    r"maxPhyOffsetOfConsumeQueue\(\d+\) >= processOffset\(\d+\)"
    r"|found a illegal magic code 0x0$"  # the end of the log
    r"|The commitlog files are deleted, and delete the consume queue files"  # an empty store
    r"|Over index file capacity|is full, trying to create another one"
    r"|Offset not matched\. Request offset: (\d+), firstOffset: \d+, lastOffset: \1,"  # full
    r"|TransactionalMessageCheckService"  # it reads a store that is already closed
    r"|interrupted, (this may caused|possibly) by shutdown"
    r"|create mappedFile spent time\(ms\) \d+"  # a busy machine
)


class Sent(NamedTuple):
    """Messages that a broker has acknowledged."""

    queue_id: int
    queue_offset: int
    offset_msg_id: str
    body: bytes
    key: str


def text(properties: dict[str, str]) -> str:
    return "\x02".join(f"{key}\x01{value}" for key, value in properties.items())


def send_round(port: int, name: str) -> list[Sent]:
    """Send messages of many kinds, to each queue in turn."""
    sent = []
    with RawClient(port) as client:
        for number in range(ROUND):
            key = f"{name}-{number}"
            body = (key + "." * (number * 37 % 900)).encode()
            properties = {"KEYS": f"{key} all-{name}", "TAGS": f"T{number % 5}", "名": "值 🎉"}
            fields = raw_remoting.send_fields(
                TOPIC, queue_id=number % QUEUES, properties=text(properties)
            )
            if number % 50 == 49:
                body = zlib.compress(body)
                fields["sysFlag"] = "1"
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body)
            assert answer.code == raw_remoting.SUCCESS, answer
            sent.append(_sent(answer.fields, answer.fields["msgId"], 0, body, key))
        sent += _send_batch(client, name)
    return sent


def _send_batch(client: RawClient, name: str) -> list[Sent]:
    keys = [f"{name}-batch-{number}" for number in range(BATCH)]
    items = []
    for key in keys:
        properties = text({"KEYS": key}).encode()
        size = 22 + len(key) + len(properties)
        head = b"".join(part.to_bytes(4, "big") for part in (size, 0, 0, 0, len(key)))
        items.append(head + key.encode() + len(properties).to_bytes(2, "big") + properties)
    fields = raw_remoting.send_fields(TOPIC, queue_id=1) | {"batch": "true"}
    short = dict(zip("abcdefghijkm", fields.values(), strict=True))
    answer = client.ask(SEND_BATCH_MESSAGE, short, b"".join(items))
    assert answer.code == raw_remoting.SUCCESS, answer
    ids = answer.fields["msgId"].split(",")
    return [
        _sent(answer.fields, one, number, key.encode(), key)
        for number, (one, key) in enumerate(zip(ids, keys, strict=True))
    ]


def _sent(fields: dict[str, str], msg_id: str, step: int, body: bytes, key: str) -> Sent:
    return Sent(int(fields["queueId"]), int(fields["queueOffset"]) + step, msg_id, body, key)


def send_delayed(port: int, count: int) -> list[bytes]:
    """Send delayed messages; return their bodies."""
    bodies = [b"delayed-%d" % number for number in range(count)]
    with RawClient(port) as client:
        for body in bodies:
            fields = raw_remoting.send_fields(TOPIC, properties=text({"DELAY": "1"}))
            assert client.ask(raw_remoting.SEND_MESSAGE, fields, body).code == 0
    return bodies


def wait_for_delayed(port: int, bodies: list[bytes]) -> None:
    """Wait until all were delivered to their queue."""
    until(
        lambda: set(bodies) <= {one.body for one in raw_remoting.read_queue(port, TOPIC, 0)},
        "the delayed messages",
        seconds=SECONDS,
    )


def wait_for_all(port: int, sent: list[Sent], delayed: list[bytes]) -> None:
    """Wait until all are readable: RocketMQ writes queues and index after the answer."""

    def is_readable() -> bool:
        with RawClient(port) as client:
            last = client.ask(QUERY_MESSAGE, _query_fields(sent[-1].key))
        stored = sum(len(raw_remoting.read_queue(port, TOPIC, each)) for each in range(QUEUES))
        return last.code == raw_remoting.SUCCESS and stored >= len(sent) + len(delayed)

    until(is_readable, "all messages to be readable", seconds=SECONDS)


def check_all(port: int, sent: list[Sent], delayed: list[bytes]) -> None:
    """Consume everything; find some messages by key and by ID."""
    wait_for_all(port, sent, delayed)
    for queue_id in range(QUEUES):
        stored = raw_remoting.read_queue(port, TOPIC, queue_id)
        assert [one.queue_offset for one in stored] == list(range(len(stored)))
        expected = {one.queue_offset: one.body for one in sent if one.queue_id == queue_id}
        found = {one.queue_offset: one.body for one in stored}
        assert expected.items() <= found.items()
        others = [body for offset, body in found.items() if offset not in expected]
        assert sorted(others) == sorted(delayed if queue_id == 0 else [])
    with RawClient(port) as client:
        for one in [*sent[::23], sent[-1]]:
            answer = client.ask(QUERY_MESSAGE, _query_fields(one.key))
            assert answer.code == raw_remoting.SUCCESS, (one, answer.remark)
            assert one.body in [r.body for r in raw_remoting.parse_records(answer.body)]
            offset = str(int(one.offset_msg_id[16:], 16))
            answer = client.ask(VIEW_MESSAGE_BY_ID, {"offset": offset})
            assert answer.code == raw_remoting.SUCCESS, (one, answer.remark)
            assert [r.body for r in raw_remoting.parse_records(answer.body)] == [one.body]


def _query_fields(key: str) -> dict[str, str]:
    return {
        "topic": TOPIC,
        "key": key,
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(1 << 60),
    }


def commit_offsets(port: int, queue_offset: int) -> None:
    with RawClient(port) as client:
        for queue_id in range(QUEUES):
            fields = {
                "consumerGroup": GROUP,
                "topic": TOPIC,
                "queueId": str(queue_id),
                "commitOffset": str(queue_offset + queue_id),
            }
            assert client.ask(UPDATE_CONSUMER_OFFSET, fields).code == 0


def check_offsets(port: int, queue_offset: int) -> None:
    with RawClient(port) as client:
        for queue_id in range(QUEUES):
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            answer = client.ask(QUERY_CONSUMER_OFFSET, fields)
            assert answer.code == 0, answer
            assert int(answer.fields["offset"]) == queue_offset + queue_id


def topic_of(port: int) -> dict[str, object]:
    with RawClient(port) as client:
        answer = client.ask(GET_ALL_TOPIC_CONFIG)
    table: dict[str, dict[str, object]] = json.loads(answer.body)["topicConfigTable"]
    return table[TOPIC]


def with_theirs(directory: Path, store: Path, use: Callable[[int], None]) -> None:
    """Run the real broker on a store; it must log nothing unusual about it."""
    keys = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog", **KEYS}
    with Peer(VERSION, directory, **keys) as theirs:
        theirs.ends_in_order = True
        use(theirs.port)
    lines = (directory / "broker.log").read_text(errors="replace").splitlines()
    unusual = [
        line
        for line in lines
        if THEIR_STORE_LINE.search(line) and not THEIR_USUAL_WORDS.search(line)
    ]
    assert unusual == []
    assert not (store / "abort").exists()


def with_ours(directory: Path, store: Path, use: Callable[[int], None]) -> None:
    """Run our broker on a store, which must be valid before and after."""
    assert verify(store).problems == []
    ours = BrokerProcess(directory, **{**KEYS, "storePathRootDir": store})
    ours.start()
    try:
        use(ours.port)
    finally:
        code = ours.stop()
    assert code == 0
    assert [line for line in ours.words().splitlines() if OUR_STORE_LINE.search(line)] == []
    report = verify(store)
    assert report.problems == []
    assert report.clean_exit


def test_a_store_moves_from_the_real_broker_to_ours_and_back(tmp_path: Path) -> None:
    require_java()
    store = tmp_path / "store"
    sent: list[Sent] = []
    delayed: list[bytes] = []
    topics: list[dict[str, object]] = []

    def fill(port: int) -> None:
        raw_remoting.create_topic(port, TOPIC, queues=QUEUES)
        sent.extend(send_round(port, "theirs"))
        delayed.extend(send_delayed(port, 5))
        wait_for_delayed(port, delayed)
        commit_offsets(port, 10)
        topics.append(topic_of(port))

    def use_and_go_on(port: int) -> None:
        check_all(port, sent, delayed)
        check_offsets(port, 10)
        assert topic_of(port) == topics[0]
        sent.extend(send_round(port, "ours"))
        check_all(port, sent, delayed)
        commit_offsets(port, 50)

    def use_again(port: int) -> None:
        check_all(port, sent, delayed)
        check_offsets(port, 50)
        assert topic_of(port) == topics[0]
        sent.extend(send_round(port, "theirs-again"))
        check_all(port, sent, delayed)

    with_theirs(tmp_path / "theirs", store, fill)
    with_theirs(tmp_path / "theirs-alone", store, lambda port: check_all(port, sent, delayed))
    with_ours(tmp_path / "ours", store, use_and_go_on)
    with_theirs(tmp_path / "theirs-again", store, use_again)
    with_ours(tmp_path / "ours-again", store, lambda port: check_all(port, sent, delayed))


def test_our_store_is_taken_over_by_the_real_broker(tmp_path: Path) -> None:
    require_java()
    store = tmp_path / "store"
    sent: list[Sent] = []

    def fill(port: int) -> None:
        raw_remoting.create_topic(port, TOPIC, queues=QUEUES)
        sent.extend(send_round(port, "ours"))
        commit_offsets(port, 20)

    def use(port: int) -> None:
        check_all(port, sent, [])
        check_offsets(port, 20)
        sent.extend(send_round(port, "theirs"))
        check_all(port, sent, [])

    store.mkdir()
    with_ours(tmp_path / "ours", store, fill)
    with_theirs(tmp_path / "theirs", store, use)
    with_ours(tmp_path / "ours-again", store, lambda port: check_all(port, sent, []))
