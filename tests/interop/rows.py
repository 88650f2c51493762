"""The rows of request_cases.py, sent to one prepared broker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from tests.interop import request_parts
from tests.support import raw_remoting
from tests.support.raw_remoting import Answer, RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess
    from tests.support.peer import Peer

# Values specific to each broker, its clocks and its speed.
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
SECONDS = 120
LATE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Created by RocketMQ's first transaction check, which an interval delays here."""
ADDRESS = re.compile(r"/?127\.0\.0\.1:\d+")


def form(value: Any, key: str = "") -> Any:
    """Return the comparable part: no broker-specific values, and no order of sets."""
    if isinstance(value, dict):
        shown = {name: form(one, name) for name, one in value.items()}
        # RocketMQ also writes each time in a readable form.
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
        # The runtime info: the keys, one of which names a directory; ours has more.
        return {key for key in body["table"] if "/" not in key} - OUR_RUNTIME_KEYS
    for table in ("topicConfigTable", "offsetTable"):
        for key in [key for key in body.get(table, ()) if key.startswith("RMQ_SYS_TRANS")]:
            del body[table][key]
    # A name server that once had a table returns it empty.
    return form(body) if body != {"table": {}} else False


OUR_RUNTIME_KEYS = {
    "brokerActive",
    "brokerId",
    "brokerRole",
    "haEpoch",
    "haInSyncSlaveNums",
    "haSlaveNums",
    "plainRequestsLeft",
    "plainSends",
    "damagedRanges",
    "getTransferredTps",
    "slowConsumerGroups",
    "storeState",
    "unreachableMessages",
    "unreachableTopics",
}


def answer_of(client: RawClient, code: int, fields: dict[str, str], body: bytes) -> Answer:
    """Return the answer, after the notification that a heartbeat may trigger first."""
    client.send_request(code, fields, body)
    answer = client.read_answer()
    while answer.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
        answer = client.read_answer()
    return answer


def wait_for_messages(client: RawClient, topic: str, queues: int, count: int) -> None:
    """Wait until enough messages are readable: RocketMQ writes its queues after the answer."""

    def readable() -> int:
        requests = [{"topic": topic, "queueId": str(queue_id)} for queue_id in range(queues)]
        answers = [client.ask(raw_remoting.GET_MAX_OFFSET, fields) for fields in requests]
        return sum(int(answer.fields["offset"]) for answer in answers)

    until(lambda: readable() >= count, f"{count} messages in {topic}", seconds=SECONDS)


class Rows:
    """One broker with the messages and clients for the rows."""

    def __init__(self, broker: BrokerProcess | Peer) -> None:
        self._broker = broker
        self._member = RawClient(broker.port)
        self.places: dict[str, str] = {}
        """Values for the placeholders in the rows."""

    def __enter__(self) -> Rows:
        # A slave has its master's prepared data.
        self.places = self.places or self._prepare()
        self._join()
        return self

    def __exit__(self, *_: object) -> None:
        self._member.__exit__()

    def of_slave(self, slave: BrokerProcess | Peer) -> Rows:
        """Return the rows of a slave that has this broker's messages; its clients join there."""
        rows = Rows(slave)
        rows.places = self.places
        return rows

    def _prepare(self) -> dict[str, str]:
        port = self._broker.port
        raw_remoting.create_topic(port, request_parts.TOPIC, queues=request_parts.QUEUES)
        raw_remoting.create_topic(port, request_parts.ENDED_TOPIC, queues=1)
        with RawClient(port) as client:
            stored = [
                self._send(client, f"KEYS\x01k{n}\x02UNIQ_KEY\x01U{n}")
                for n in range(request_parts.MESSAGES)
            ]
            for level in (1, 2):
                self._send(client, f"DELAY\x01{level}")
            half = self._send(
                client,
                "TRAN_MSG\x01true\x02PGROUP\x01half-producers",
                topic=request_parts.ENDED_TOPIC,
            )
            for queue_id in range(request_parts.QUEUES):
                for group in (request_parts.GROUP, request_parts.LIVE_GROUP):
                    fields = {
                        "consumerGroup": group,
                        "topic": request_parts.TOPIC,
                        "queueId": str(queue_id),
                        "commitOffset": str(request_parts.COMMITTED * (queue_id == 0)),
                    }
                    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
            client.ask(raw_remoting.PULL_MESSAGE, request_parts.PULL)
        return {
            "msg_id": stored[0].fields["msgId"],
            "offset": str(int(stored[0].fields["msgId"][16:], 16)),
            "half_offset": str(int(half.fields["msgId"][16:], 16)),
            "half_queue_offset": half.fields["queueOffset"],
        }

    def _join(self) -> None:
        heartbeat = request_parts.heartbeat(request_parts.CLIENT_ID, request_parts.LIVE_GROUP)
        assert answer_of(self._member, RequestCode.HEART_BEAT, {}, heartbeat).code == 0

    def ask(self, case: request_parts.Case) -> tuple[Answer, Any]:
        """Return the answer and its comparable part."""
        fields = {name: self._at_its_place(value) for name, value in case.fields.items()}
        port = self._broker.namesrv_port if case.name_server else self._broker.port
        with RawClient(port) as client:
            answer = answer_of(client, case.code, fields, case.body)
        shown = {
            name: "its own" if name in ITS_OWN_FIELDS else value
            for name, value in answer.fields.items()
        }
        return answer, (answer.code, shown, body_of(answer))

    def wait_for_delivery(self) -> None:
        """Wait until the first level's message is delivered, and its offset shows that."""
        with RawClient(self._broker.port) as client:
            until(
                lambda: b"{1:1" in client.ask(RequestCode.GET_ALL_DELAY_OFFSET).body,
                "the first level's delivery",
                seconds=SECONDS,
            )
            topic, queues = request_parts.TOPIC, request_parts.QUEUES
            wait_for_messages(client, topic, queues, request_parts.MESSAGES + 1)

    def _at_its_place(self, value: str) -> str:
        for name, place in self.places.items():
            value = value.replace(f"{{{name}}}", place)
        return value

    def _send(self, client: RawClient, properties: str, topic: str = request_parts.TOPIC) -> Answer:
        fields = {**request_parts.SEND, "topic": topic, "properties": properties}
        answer = client.ask(raw_remoting.SEND_MESSAGE, fields, b"body")
        assert answer.code == 0, answer
        return answer
