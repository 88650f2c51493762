"""Rare requests get the same code from our broker as from Apache RocketMQ."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from broker_core.config.keys import ALIASES, KEYS
from broker_core.config.unsupported_keys import ONE_VALUE, WITHOUT_EFFECT
from broker_core.processors import registry
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.conftest import require_java
from tests.interop import request_cases, request_parts
from tests.interop.rows import Rows, wait_for_messages
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import Answer, RawClient, pull_fields, send_fields, topic_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

TOPIC = "same-answers"
ODD_TOPIC = "odd-properties"
MESSAGES = 10
MESSAGE_BYTES_MAX = 65_536
GET_MIN_OFFSET = 31
SEARCH_OFFSET_BY_TIMESTAMP = 29
QUERY_CONSUMER_OFFSET = 14
VIEW_BROKER_STATS_DATA = 315
GET_CONSUMER_LIST_BY_GROUP = 38
GET_TOPIC_STATS_INFO = 202
GET_ROUTE_BY_TOPIC = 105
SAMPLED_SECONDS_MAX = 45
"""Within the minute that a counter shows."""


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
    Case("send to a missing queue", raw_remoting.SEND_MESSAGE, {**SEND, "queueId": "77"}, b"x"),
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
    # 5.x's rule, deliberately: one past the last message, where 4.9 returns the last one.
    Case(
        "offset in the future", SEARCH_OFFSET_BY_TIMESTAMP, {**QUEUE, "timestamp": "9999999999999"}
    ),
    Case("offset of a group", QUERY_CONSUMER_OFFSET, {**QUEUE, "consumerGroup": "nobody"}),
    Case("members of a missing group", GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"}),
    Case("statistics, unknown", GET_TOPIC_STATS_INFO, {"topic": "unknown"}),
]


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, Peer]]:
    """Our broker and the real one, with the same topic and messages."""
    require_java()
    keys = {
        "maxMessageSize": MESSAGE_BYTES_MAX,
        "enablePropertyFilter": "true",
        # Only messages with a delay of a second are delivered during the test.
        "messageDelayLevel": " ".join(["1s", *["2h"] * 17]),
        "transactionCheckInterval": 3_600_000,
    }
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
                    wait_for_messages(client, TOPIC, 1, MESSAGES)
            yield ours, theirs
        finally:
            ours.stop()


def ask(port: int, case: Case | request_parts.Case) -> Answer:
    with RawClient(port) as client:
        return client.ask(case.code, case.fields, case.body)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_broker_answers_like_the_real_one(
    brokers: tuple[BrokerProcess, Peer], case: Case
) -> None:
    ours, theirs = (ask(each.port, case) for each in brokers)

    assert ours.code == theirs.code, f"theirs: {theirs.remark}\nours: {ours.remark}"
    assert {key: ours.fields.get(key) for key in case.same} == {
        key: theirs.fields.get(key) for key in case.same
    }


@pytest.mark.parametrize("topic", [TOPIC, "unknown", "TBW102", ""])
def test_the_name_server_answers_like_the_real_one(
    brokers: tuple[BrokerProcess, Peer], topic: str
) -> None:
    case = Case("route", GET_ROUTE_BY_TOPIC, {"topic": topic})
    ours, theirs = (ask(each.namesrv_port, case) for each in brokers)

    assert ours.code == theirs.code, f"theirs: {theirs.remark}\nours: {ours.remark}"


ASKED_ELSEWHERE = {
    RequestCode.SEND_REPLY_MESSAGE_V2,  # the Java clients reply with it
    # Administration of accounts: the answers depend on the existing accounts.
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    # No broker of 4.9 has these.
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.TRACE_WATCH,
    RequestCode.TRACE_UNWATCH,
    RequestCode.TRACE_LEVEL,
    RequestCode.TRACE_RECORDED,
    RequestCode.GET_BROKER_SAMPLE,
    RequestCode.RESET_OFFSETS,
    RequestCode.GET_HALF_MESSAGES,
    RequestCode.CHECK_HALF_MESSAGE,
    RequestCode.GET_TIMER_MESSAGES,
    RequestCode.RECALL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.EXPLAIN_ACCESS,
    RequestCode.DISCONNECT_CLIENT,
    RequestCode.UPDATE_DELAY_OFFSET,
    RequestCode.UPDATE_CONSUMER_FILTER,
    RequestCode.DELETE_CONSUMER_FILTER,
    RequestCode.GET_BROKER_INTERNALS,
    RequestCode.GET_ALL_CONSUMER_FILTER,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    RequestCode.GET_REPLICATION_STATE,
    RequestCode.PROMOTE_BROKER,
}


Answers = dict[str, list[tuple[Answer, Any]]]


@pytest.fixture(scope="module")
def answers(brokers: tuple[BrokerProcess, Peer]) -> Answers:
    """Our answer to each row, and the real broker's."""
    with Rows(brokers[0]) as ours, Rows(brokers[1]) as theirs:
        both = (ours, theirs)
        for each in both:
            each.wait_for_delivery()
        return {case.name: [each.ask(case) for each in both] for case in request_cases.CASES}


def counted(broker: BrokerProcess | Peer) -> dict[str, Any]:
    """Return the minute's sum and average of each counter, None for a missing one."""
    table = {}
    with RawClient(broker.port) as client:
        for name, key in request_parts.STATS.items():
            fields = {"statsName": name, "statsKey": key}
            answer = client.ask(VIEW_BROKER_STATS_DATA, fields)
            minute = json.loads(answer.body)["statsMinute"] if answer.code == 0 else {}
            table[name] = [minute.get("sum"), minute.get("avgpt")]
    # A pull from memory takes ours less than a millisecond.
    del table["GROUP_GET_LATENCY"]
    return table


@pytest.mark.usefixtures("answers")
def test_the_counters_match_the_real_ones(brokers: tuple[BrokerProcess, Peer]) -> None:
    ours, theirs = brokers
    # RocketMQ shows its counts at its next sample, within ten seconds.
    deadline = time.monotonic() + SAMPLED_SECONDS_MAX
    while counted(theirs) != counted(ours) and time.monotonic() < deadline:
        time.sleep(0.2)

    assert counted(theirs) == counted(ours)
    assert counted(ours)["QUEUE_GET_NUMS"] == [1, 1.0]
    assert counted(ours)["SNDBCK_PUT_NUMS"] == [4, 1.0]


def test_every_key_of_the_real_configuration_is_known(
    brokers: tuple[BrokerProcess, Peer],
) -> None:
    with RawClient(brokers[1].port) as client:
        text = client.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
    theirs = {line.partition("=")[0] for line in text.splitlines() if line}
    known = {*KEYS, *WITHOUT_EFFECT, *ONE_VALUE, *ALIASES}

    # RocketMQ prints one of its fields under a name that it doesn't read.
    assert theirs - known == {"isEnableBatchPush"}


def test_every_row_of_the_table_is_requested() -> None:
    cases = request_cases.CASES
    requests = {int(case.code) for case in cases if not case.name_server}

    assert len({case.name for case in cases}) == len(cases)
    assert set(registry.handlers(Mock())) - requests == ASKED_ELSEWHERE


@pytest.mark.parametrize("case", request_cases.CASES, ids=lambda case: case.name)
def test_every_row_is_answered_like_by_the_real_one(
    answers: Answers, case: request_parts.Case
) -> None:
    (our_answer, ours), (their_answer, theirs) = answers[case.name]

    remarks = f"theirs: {their_answer.remark}\nours: {our_answer.remark}"
    if case.differs:
        assert ours != theirs, f"no longer true: {case.differs}\n{remarks}"
    else:
        assert ours == theirs, remarks


@pytest.mark.parametrize(
    ("name", "text", "differs"),
    [
        ("an empty value", "a\x01", ""),
        ("an empty pair", "a\x01b\x02\x02c\x01d\x02", ""),
        ("a name twice", "a\x01b\x02a\x01c", ""),
        ("a NUL", "a\x01b\0c", "a NUL stands for a torn write in ours"),
        ("U+0001 in a value", "a\x01b\x01c", "not every client reads the property"),
        ("U+0001 in a name", "a\x01b\x01c\x02d\x01e", "clients read another name"),
        ("U+0002 in a value", "a\x01b\x02c", "clients read the value up to there"),
        ("no name", "\x01b", "clients drop the property"),
    ],
)
def test_only_our_broker_rejects_ambiguous_properties(
    brokers: tuple[BrokerProcess, Peer], name: str, text: str, differs: str
) -> None:
    """The last test here: RocketMQ stores messages that ours rejects."""
    sent = Case(name, raw_remoting.SEND_MESSAGE, send_fields(ODD_TOPIC, properties=text), b"x")

    ours, theirs = (ask(each.port, sent).code for each in brokers)

    assert theirs == ResponseCode.SUCCESS
    assert ours == (ResponseCode.MESSAGE_ILLEGAL if differs else ResponseCode.SUCCESS)
