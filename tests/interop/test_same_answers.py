"""Requests that clients do not send every day get the same code from us as from Apache RocketMQ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import Answer, RawClient, pull_fields, send_fields, topic_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

TOPIC = "same-answers"
MESSAGES = 10
MESSAGE_BYTES_MAX = 65_536
GET_MIN_OFFSET = 31
SEARCH_OFFSET_BY_TIMESTAMP = 29
QUERY_CONSUMER_OFFSET = 14
GET_CONSUMER_LIST_BY_GROUP = 38
GET_TOPIC_STATS_INFO = 202
GET_ROUTE_BY_TOPIC = 105


@dataclass(frozen=True, slots=True)
class Case:
    """One request; `same` are fields whose values must agree as well."""

    name: str
    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    same: tuple[str, ...] = ()


def without(fields: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}


SEND = send_fields(TOPIC)
QUEUE = {"topic": TOPIC, "queueId": "0"}
PULL_SAME = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")
CASES = [
    Case("unknown code", 9_999),
    *(
        Case(f"create {topic!r}", raw_remoting.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))
        for topic in ("", "with blank", "../escape", "x" * 128, "中文", "TBW102", "RMQ_SYS_X")
    ),
    *(
        Case(f"send to {topic!r}", raw_remoting.SEND_MESSAGE, send_fields(topic), b"x")
        for topic in ("", "with blank", "../escape", "x" * 128, "SCHEDULE_TOPIC_XXXX")
    ),
    *(
        Case(f"send without {name}", raw_remoting.SEND_MESSAGE, without(SEND, name), b"x")
        for name in ("topic", "queueId", "bornTimestamp")
    ),
    Case("send to a queue that is not", raw_remoting.SEND_MESSAGE, {**SEND, "queueId": "77"}, b"x"),
    Case(
        "send a body above the limit", raw_remoting.SEND_MESSAGE, SEND, b"x" * MESSAGE_BYTES_MAX * 2
    ),
    Case("pull", raw_remoting.PULL_MESSAGE, pull_fields(TOPIC, 0, 0), same=PULL_SAME),
    Case("pull some", raw_remoting.PULL_MESSAGE, pull_fields(TOPIC, 0, 7), same=PULL_SAME),
    Case("pull at the end", raw_remoting.PULL_MESSAGE, pull_fields(TOPIC, 0, MESSAGES)),
    Case(
        "pull beyond the end",
        raw_remoting.PULL_MESSAGE,
        pull_fields(TOPIC, 0, MESSAGES + 50),
        same=PULL_SAME,
    ),
    Case("pull an unknown topic", raw_remoting.PULL_MESSAGE, pull_fields("unknown", 0, 0)),
    Case("pull an unknown queue", raw_remoting.PULL_MESSAGE, pull_fields(TOPIC, 77, 0)),
    Case("max offset", raw_remoting.GET_MAX_OFFSET, QUEUE, same=("offset",)),
    Case("min offset", GET_MIN_OFFSET, QUEUE, same=("offset",)),
    Case("max offset, unknown", raw_remoting.GET_MAX_OFFSET, {**QUEUE, "topic": "unknown"}),
    Case(
        "offset long ago",
        SEARCH_OFFSET_BY_TIMESTAMP,
        {**QUEUE, "timestamp": "1000"},
        same=("offset",),
    ),
    # 5.x's rule on purpose: one past the last message, where 4.9 says the last one.
    Case(
        "offset in the future", SEARCH_OFFSET_BY_TIMESTAMP, {**QUEUE, "timestamp": "9999999999999"}
    ),
    Case("offset of a group", QUERY_CONSUMER_OFFSET, {**QUEUE, "consumerGroup": "nobody"}),
    Case("members of no group", GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"}),
    Case("statistics, unknown", GET_TOPIC_STATS_INFO, {"topic": "unknown"}),
]


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, Peer]]:
    """Ours, and the real one, with the same topic and messages."""
    require_java()
    keys = {"maxMessageSize": MESSAGE_BYTES_MAX}
    ours = BrokerProcess(tmp_path_factory.mktemp("ours"), **keys)
    with Peer("4.9.7", tmp_path_factory.mktemp("theirs"), **keys) as theirs:
        ours.start()
        try:
            for port in (ours.port, theirs.port):
                raw_remoting.create_topic(port, TOPIC, queues=1)
                with RawClient(port) as client:
                    for number in range(MESSAGES):
                        body = b"%d" % number
                        assert client.ask(raw_remoting.SEND_MESSAGE, SEND, body).code == 0
            yield ours, theirs
        finally:
            ours.stop()


def ask(port: int, case: Case) -> Answer:
    with RawClient(port) as client:
        return client.ask(case.code, case.fields, case.body)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_broker_answers_as_the_real_one(
    brokers: tuple[BrokerProcess, Peer], case: Case
) -> None:
    ours, theirs = (ask(each.port, case) for each in brokers)

    assert ours.code == theirs.code, f"theirs: {theirs.remark}\nours: {ours.remark}"
    assert {key: ours.fields.get(key) for key in case.same} == {
        key: theirs.fields.get(key) for key in case.same
    }


@pytest.mark.parametrize("topic", [TOPIC, "unknown", "TBW102", ""])
def test_the_name_server_answers_as_the_real_one(
    brokers: tuple[BrokerProcess, Peer], topic: str
) -> None:
    case = Case("route", GET_ROUTE_BY_TOPIC, {"topic": topic})
    ours, theirs = (ask(each.namesrv_port, case) for each in brokers)

    assert ours.code == theirs.code, f"theirs: {theirs.remark}\nours: {ours.remark}"
