"""POP over remoting, step by step: each step is one line of a broker's answer."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import TYPE_CHECKING, Any

from broker_core.clock import SystemClock
from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient, send_fields

if TYPE_CHECKING:
    from tests.support.raw_remoting import Answer

POP, ACK, CHANGE = 200050, 200051, 200053
PEEK, NOTIFICATION, POLLING_INFO, BATCH_ACK = 200052, 200054, 200055, 200151
ASSIGNMENT, SET_MODE, QUERY_OFFSET = 400, 401, 14
TOPIC, ORDERED_TOPIC, GROUP, ORDERED_GROUP = "pop-steps", "pop-steps-fifo", "pop-g", "pop-o"
UPDATE_GROUP = 200
POLL_MS = 15_000
LEASE_MS = 60_000
OFFSET_S_MAX = 15.0
PAUSE_S = 0.05


CLOCK = SystemClock()


class Steps:
    """Both brokers get the same requests; times and addresses are replaced by words."""

    def __init__(self, port: int, broker_name: str = "broker-a") -> None:
        self._port = port
        self._broker = broker_name
        self.lines: list[str] = []

    def run(self) -> list[str]:
        raw_remoting.create_topic(self._port, TOPIC, queues=1)
        raw_remoting.create_topic(self._port, ORDERED_TOPIC, queues=1)
        with RawClient(self._port) as client:
            self._client = client
            self._group(GROUP, is_ordered=False)
            self._group(ORDERED_GROUP, is_ordered=True)
            self._send(TOPIC, 8)
            self._send(ORDERED_TOPIC, 5)
            self._concurrent()
            self._ordered()
            self._refusals()
            self._modes()
        return self.lines

    def ask(self, name: str, code: int, fields: dict[str, str], body: bytes = b"") -> Answer:
        began = time.monotonic()
        answer = self._client.ask(code, fields, body)
        waited = round(time.monotonic() - began)
        table = {
            key: self._plain(value) for key, value in sorted(answer.fields.items()) if value != ""
        }
        words = " ".join(f"{key}={value}" for key, value in table.items())
        got = (
            ",".join(self._record(each) for each in _records(answer.body))
            if code
            in (
                POP,
                PEEK,
            )
            else self._plain(answer.body.decode(errors="replace"))
        )
        remark = "" if answer.code == 0 else f" remark={self._plain(answer.remark)[:90]!r}"
        self.lines.append(
            f"{name}: {answer.code}{remark}"
            + (f" {words}" if words else "")
            + (f" body={got}" if got else "")
            + (f" after {waited} s" if waited else "")
        )
        return answer

    def pop(self, name: str, topic: str = TOPIC, group: str = GROUP, **more: str) -> Answer:
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": "0",
            "maxMsgNums": "2",
            "invisibleTime": str(LEASE_MS),
            "pollTime": "0",
            "bornTime": str(CLOCK.now_ms()),
            "initMode": "0",
            "expType": "TAG",
            "exp": "*",
            "order": "false",
            **more,
        }
        return self.ask(name, POP, fields)

    def handle(self, answer: Answer, offset: int, *, retry: int = 0, rq: str = "") -> str:
        start = re.search(rf"{retry} \d+ (\d+)", answer.fields["startOffsetInfo"])
        assert start
        revive = rq or answer.fields["reviveQid"]
        return " ".join(
            (
                start[1],
                answer.fields["popTime"],
                answer.fields["invisibleTime"],
                revive,
                str(retry),
                self._broker,
                "0",
                str(offset),
            )
        )

    def _handled(
        self, offset: int, handle: str, topic: str = TOPIC, group: str = GROUP, **more: str
    ) -> dict[str, str]:
        return {
            "consumerGroup": group,
            "topic": topic,
            "queueId": "0",
            "offset": str(offset),
            "extraInfo": handle,
            **more,
        }

    def _concurrent(self) -> None:
        first = self.pop("two messages")
        self.offset("offset after two", expected=2)
        self.ask("acknowledge one", ACK, self._handled(0, self.handle(first, 0)))
        self.ask("acknowledge it again", ACK, self._handled(0, self.handle(first, 0)))
        second = self.pop("two more")
        changed = self.ask(
            "change the time of the third",
            CHANGE,
            self._handled(2, self.handle(second, 2), invisibleTime="30000"),
        )
        del changed
        third = self.pop("three with one", maxMsgNums="1", queueId="-1")
        bits = base64.b64encode(b"\x01").decode()
        body = {
            "brokerName": self._broker,
            "acks": [
                {
                    "c": GROUP,
                    "t": TOPIC,
                    "r": "0",
                    "so": 4,
                    "q": 0,
                    "rq": int(third.fields.get("reviveQid", "0")),
                    "pt": int(third.fields.get("popTime", "0")),
                    "it": LEASE_MS,
                    "b": bits,
                }
            ],
        }
        self.ask("acknowledge a batch", BATCH_ACK, {}, json.dumps(body).encode())
        self.ask(
            "peek",
            PEEK,
            {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "2"},
        )
        self.ask("notification before the end", NOTIFICATION, self._waiting("0"))
        self.pop("the rest", maxMsgNums="32")
        self.offset("offset at the end", expected=8)
        self.ask("notification after the end", NOTIFICATION, self._waiting("0"))
        self.ask(
            "peek at the end",
            PEEK,
            {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "2"},
        )
        self.pop("no messages, without waiting")
        self.pop("no messages, with waiting", pollTime="1500")
        self.ask(
            "who waits", POLLING_INFO, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        )

    def _ordered(self) -> None:
        more = {"topic": ORDERED_TOPIC, "group": ORDERED_GROUP, "order": "true"}
        first = self.pop("a batch in order", attemptId="a", **more)
        self.offset("offset of the ordered group", ORDERED_TOPIC, ORDERED_GROUP)
        self.pop("another attempt waits", attemptId="b", **more)
        again = self.pop("the same attempt", attemptId="a", **more)
        rq = again.fields.get("reviveQid", "")
        for offset in (1, 0):
            self.ask(
                f"acknowledge {offset} in order",
                ACK,
                self._handled(
                    offset, self.handle(again, offset, rq=rq), ORDERED_TOPIC, ORDERED_GROUP
                ),
            )
            self.offset(f"offset after {offset}", ORDERED_TOPIC, ORDERED_GROUP)
        del first
        last = self.pop("the next batch", attemptId="c", **more)
        self.ask(
            "change an ordered time",
            CHANGE,
            self._handled(
                2,
                self.handle(last, 2, rq=rq),
                ORDERED_TOPIC,
                ORDERED_GROUP,
                invisibleTime="30000",
            ),
        )

    def _refusals(self) -> None:
        self.pop("too many messages at once", maxMsgNums="33")
        self.pop("a missing queue", queueId="7")
        self.pop("a missing topic", topic="pop-nowhere")
        self.pop("an invalid expression", exp="a is b c", expType="SQL92")
        self.pop("too late", pollTime="100", bornTime="1")
        handle = f"0 1 60000 0 0 {self._broker} 0 0"
        self.ask("acknowledge in a missing topic", ACK, self._handled(0, handle, "pop-nowhere"))
        self.ask("acknowledge in a missing queue", ACK, self._handled(0, handle, queueId="9"))
        self.ask("acknowledge beyond the end", ACK, self._handled(99, handle))
        self.ask("acknowledge an unleased message", ACK, self._handled(1, handle))
        self.ask(
            "change in no topic",
            CHANGE,
            self._handled(0, handle, "pop-nowhere", invisibleTime="1000"),
        )
        self.ask("change beyond the end", CHANGE, self._handled(99, handle, invisibleTime="1000"))
        self.ask("acknowledge with a short handle", ACK, self._handled(0, "0 1 2"))
        self.ask(
            "change an unleased message", CHANGE, self._handled(1, handle, invisibleTime="60000")
        )
        self.ask(
            "peek too many",
            PEEK,
            {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "33"},
        )
        self.ask(
            "peek in no queue",
            PEEK,
            {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "9", "maxMsgNums": "1"},
        )
        self.ask(
            "notification of a missing topic",
            NOTIFICATION,
            {**self._waiting("0"), "topic": "pop-nowhere"},
        )
        self.ask(
            "who waits in no topic",
            POLLING_INFO,
            {"consumerGroup": GROUP, "topic": "pop-nowhere", "queueId": "0"},
        )
        self.ask("batch without a body", BATCH_ACK, {})

    def _modes(self) -> None:
        self.ask("queues of a client", ASSIGNMENT, {}, self._assignment("pop-c1"))
        body: dict[str, Any] = {
            "topic": TOPIC,
            "consumerGroup": GROUP,
            "mode": "POP",
            "popShareQueueNum": 0,
        }
        self.ask("let a group pop", SET_MODE, {}, json.dumps(body).encode())
        self.ask("queues of a popping client", ASSIGNMENT, {}, self._assignment("pop-c1"))
        retry = {**body, "topic": f"%RETRY%{GROUP}"}
        self.ask("let its retries be popped", SET_MODE, {}, json.dumps(retry).encode())
        self.ask("a mode without a body", SET_MODE, {})

    def _assignment(self, client_id: str) -> bytes:
        return json.dumps(
            {
                "topic": TOPIC,
                "consumerGroup": GROUP,
                "clientId": client_id,
                "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            }
        ).encode()

    def offset(
        self, name: str, topic: str = TOPIC, group: str = GROUP, expected: int | None = None
    ) -> None:
        """Query an offset; RocketMQ commits those of its pops in the background."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
        deadline = time.monotonic() + OFFSET_S_MAX
        while expected is not None and time.monotonic() < deadline:
            if self._client.ask(QUERY_OFFSET, fields).fields.get("offset") == str(expected):
                break
            time.sleep(PAUSE_S)
        self.ask(name, QUERY_OFFSET, fields)

    def _waiting(self, poll_ms: str) -> dict[str, str]:
        return {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "pollTime": poll_ms,
            "bornTime": str(CLOCK.now_ms()),
        }

    def _group(self, group: str, *, is_ordered: bool) -> None:
        table = {
            "groupName": group,
            "consumeEnable": True,
            "consumeMessageOrderly": is_ordered,
            "retryQueueNums": 1,
            "retryMaxTimes": 16,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        answer = self._client.ask(UPDATE_GROUP, {}, json.dumps(table).encode())
        assert answer.code == 0, answer

    def _send(self, topic: str, count: int) -> None:
        for number in range(count):
            fields = {**send_fields(topic), "properties": f"UNIQ_KEY\x01K{number}\x02"}
            assert self._client.ask(raw_remoting.SEND_MESSAGE, fields, b"%d" % number).code == 0
        time.sleep(1)

    def _record(self, record: tuple[str, bytes, dict[str, str]]) -> str:
        topic, body, properties = record
        own = {
            key: self._plain(value)
            for key, value in sorted(properties.items())
            if key in ("POP_CK", "1ST_POP_TIME")
        }
        return f"{topic}/{body.decode()}" + (f"{own}" if own else "")

    def _plain(self, text: str) -> str:
        text = re.sub(r"\b1[78]\d{11}\b", "TIME", text)
        return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)


def _records(data: bytes) -> list[tuple[str, bytes, dict[str, str]]]:
    found = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        record = data[position : position + size]
        body_size = int.from_bytes(record[84:88], "big")
        body = record[88 : 88 + body_size]
        topic_from = 88 + body_size + 1
        topic = record[topic_from : topic_from + record[topic_from - 1]]
        rest = record[topic_from + len(topic) + 2 :].decode()
        table = dict(pair.split("\x01", 1) for pair in rest.split("\x02") if "\x01" in pair)
        found.append((topic.decode(), body, table))
        position += size
    return found
