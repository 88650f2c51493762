"""Requests that clients do not send every day get the same code from us as from Apache RocketMQ."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from broker_core import config
from broker_core.processors import registry
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from tests.conftest import require_java
from tests.interop import request_cases
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import Answer, RawClient, pull_fields, send_fields, topic_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

TOPIC = "same-answers"
MESSAGES = 10
MESSAGE_BYTES_MAX = 65_536
GET_MIN_OFFSET = 31
SEARCH_OFFSET_BY_TIMESTAMP = 29
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
HEART_BEAT = 34
VIEW_BROKER_STATS_DATA = 315
NOTIFY_CONSUMER_IDS_CHANGED = 40
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
    keys = {
        "maxMessageSize": MESSAGE_BYTES_MAX,
        "enablePropertyFilter": "true",
        # Nothing moves by itself while both are asked, but what waits a second.
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
            yield ours, theirs
        finally:
            ours.stop()


def ask(port: int, case: Case | request_cases.Case) -> Answer:
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


# What each of the two says of itself, of its clocks and of its speed.
ITS_OWN = frozenset(
    {"timestamp", "counter", "sum", "tps", "avgpt", "consumeTps", "delayTime"}
    | {
        "physicOffset",
        "lastUpdateTimestamp",
        "lastTimestamp",
        "consumeTimeStamp",
        "maxTimeStamp",
        "minTimeStamp",
    }
)
ITS_OWN_FIELDS = frozenset(
    {"msgId", "version", "timestamp", "indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
)
SAMPLED_SECONDS_MAX = 25
LATE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Made by the original's first check of transactions, by ours with the first of them."""
ADDRESS = re.compile(r"/?127\.0\.0\.1:\d+")


def form(value: Any, key: str = "") -> Any:
    """Return what must be alike: all but the values that are one's own, and orders of sets."""
    if isinstance(value, dict):
        shown = {name: form(one, name) for name, one in value.items()}
        # The original writes each time a second time, for people.
        return {name: one for name, one in shown.items() if not name.endswith("TimeStampStr")}
    if isinstance(value, list):
        return sorted((form(one, key) for one in value if one != LATE_TOPIC), key=repr)
    if key in ITS_OWN:
        return "its own"
    return "an address" if isinstance(value, str) and ADDRESS.fullmatch(value) else value


def body_of(answer: Answer) -> Any:
    if not answer.body.startswith(b"{"):
        return len(answer.body) > 0
    body = java_json.decode(answer.body)
    if "brokerVersionDesc" in body.get("table", ()):
        # The runtime info: the keys, of which one names a directory; ours has more.
        return {key for key in body["table"] if "/" not in key} - OUR_RUNTIME_KEYS
    for table in ("topicConfigTable", "offsetTable"):
        for key in [key for key in body.get(table, ()) if key.startswith("RMQ_SYS_TRANS")]:
            del body[table][key]
    # A name server that had a table once says that it is empty.
    return form(body) if body != {"table": {}} else False


ASKED_ELSEWHERE = {
    RequestCode.SEND_REPLY_MESSAGE_V2,  # the Java clients reply with it
    # Administration of accounts: what it answers depends on the accounts there are.
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    # No broker of 4.9 has these.
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.TRACE_WATCH,
    RequestCode.TRACE_UNWATCH,
}
OUR_RUNTIME_KEYS = {
    "brokerActive",
    "damagedRanges",
    "getTransferredTps",
    "slowConsumerGroups",
    "storeState",
}


def answer_of(client: RawClient, code: int, fields: dict[str, str], body: bytes) -> Answer:
    """Return the answer, behind the notice that a heartbeat may bring first."""
    client.send_request(code, fields, body)
    answer = client.read_answer()
    while answer.code == NOTIFY_CONSUMER_IDS_CHANGED:
        answer = client.read_answer()
    return answer


class Rows:
    """One broker with the messages and clients that the rows ask about."""

    def __init__(self, broker: BrokerProcess | Peer) -> None:
        self._broker = broker
        self._member = RawClient(broker.port)
        self._places: dict[str, str] = {}

    def __enter__(self) -> Rows:
        port = self._broker.port
        raw_remoting.create_topic(port, request_cases.TOPIC, queues=request_cases.QUEUES)
        raw_remoting.create_topic(port, request_cases.ENDED_TOPIC, queues=1)
        with RawClient(port) as client:
            stored = [
                self._send(client, f"KEYS\x01k{n}\x02UNIQ_KEY\x01U{n}")
                for n in range(request_cases.MESSAGES)
            ]
            for level in (1, 2):
                self._send(client, f"DELAY\x01{level}")
            half = self._send(
                client,
                "TRAN_MSG\x01true\x02PGROUP\x01half-producers",
                topic=request_cases.ENDED_TOPIC,
            )
            for queue_id in range(request_cases.QUEUES):
                for group in (request_cases.GROUP, request_cases.LIVE_GROUP):
                    fields = {
                        "consumerGroup": group,
                        "topic": request_cases.TOPIC,
                        "queueId": str(queue_id),
                        "commitOffset": str(request_cases.COMMITTED * (queue_id == 0)),
                    }
                    assert client.ask(UPDATE_CONSUMER_OFFSET, fields).code == 0
            client.ask(raw_remoting.PULL_MESSAGE, request_cases.PULL)
        heartbeat = request_cases.heartbeat(request_cases.CLIENT_ID, request_cases.LIVE_GROUP)
        assert answer_of(self._member, HEART_BEAT, {}, heartbeat).code == 0
        self._places = {
            "msg_id": stored[0].fields["msgId"],
            "offset": str(int(stored[0].fields["msgId"][16:], 16)),
            "half_offset": str(int(half.fields["msgId"][16:], 16)),
            "half_queue_offset": half.fields["queueOffset"],
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._member.__exit__()

    def ask(self, case: request_cases.Case) -> tuple[Answer, Any]:
        """Return the answer and what of it must be alike."""
        fields = {name: self._at_its_place(value) for name, value in case.fields.items()}
        port = self._broker.namesrv_port if case.name_server else self._broker.port
        with RawClient(port) as client:
            answer = answer_of(client, case.code, fields, case.body)
        shown = {
            name: "its own" if name in ITS_OWN_FIELDS else value
            for name, value in answer.fields.items()
        }
        return answer, (answer.code, shown, body_of(answer))

    def has_delivered(self) -> bool:
        """Say whether what waited at the first level has come, and that is told."""
        with RawClient(self._broker.port) as client:
            return b"{1:1" in client.ask(RequestCode.GET_ALL_DELAY_OFFSET).body

    def _at_its_place(self, value: str) -> str:
        for name, place in self._places.items():
            value = value.replace(f"{{{name}}}", place)
        return value

    def _send(self, client: RawClient, properties: str, topic: str = request_cases.TOPIC) -> Answer:
        fields = {**request_cases.SEND, "topic": topic, "properties": properties}
        answer = client.ask(raw_remoting.SEND_MESSAGE, fields, b"body")
        assert answer.code == 0, answer
        return answer


Told = dict[str, list[tuple[Answer, Any]]]


@pytest.fixture(scope="module")
def told(brokers: tuple[BrokerProcess, Peer]) -> Told:
    """What ours answers to each row, and what the real one does."""
    with Rows(brokers[0]) as ours, Rows(brokers[1]) as theirs:
        both = (ours, theirs)
        until(lambda: all(each.has_delivered() for each in both), "the first level's delivery")
        return {case.name: [each.ask(case) for each in both] for case in request_cases.CASES}


def counted(broker: BrokerProcess | Peer) -> dict[str, Any]:
    """Return the minute's sum and average of each counter, None for one that there is not."""
    table = {}
    with RawClient(broker.port) as client:
        for name, key in request_cases.STATS.items():
            fields = {"statsName": name, "statsKey": key}
            answer = client.ask(VIEW_BROKER_STATS_DATA, fields)
            minute = json.loads(answer.body)["statsMinute"] if answer.code == 0 else {}
            table[name] = [minute.get("sum"), minute.get("avgpt")]
    # A pull out of memory takes ours no millisecond.
    del table["GROUP_GET_LATENCY"]
    return table


@pytest.mark.usefixtures("told")
def test_the_counters_are_the_real_ones(brokers: tuple[BrokerProcess, Peer]) -> None:
    ours, theirs = brokers
    # The original shows what it has counted at its next sample, within ten seconds.
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
    known = {*config.KNOWN, *config.INERT, *config.ONLY, *config.ALIASES}

    # The original prints one of its fields under a name that it does not read.
    assert theirs - known == {"isEnableBatchPush"}


def test_every_row_of_the_table_is_asked() -> None:
    cases = request_cases.CASES
    asked = {int(case.code) for case in cases if not case.name_server}

    assert len({case.name for case in cases}) == len(cases)
    assert set(registry.handlers(Mock())) - asked == ASKED_ELSEWHERE


@pytest.mark.parametrize("case", request_cases.CASES, ids=lambda case: case.name)
def test_every_row_is_answered_as_by_the_real_one(told: Told, case: request_cases.Case) -> None:
    (our_answer, ours), (their_answer, theirs) = told[case.name]

    remarks = f"theirs: {their_answer.remark}\nours: {our_answer.remark}"
    if case.differs:
        assert ours != theirs, f"no longer true: {case.differs}\n{remarks}"
    else:
        assert ours == theirs, remarks
