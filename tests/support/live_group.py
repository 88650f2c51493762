"""A broker's answers about a consumer group whose only client is alive, then gone."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from typing import TYPE_CHECKING

from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.raw_remoting import Answer

QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
GET_CONSUMER_LIST_BY_GROUP = 38
GET_CONSUMER_CONNECTION_LIST = 203
INVOKE_BROKER_TO_RESET_OFFSET = 222
INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
GET_CONSUMER_RUNNING_INFO = 307
CONSUME_MESSAGE_DIRECTLY = 309
MESSAGES = 4
ATTEMPTS = 3
SECONDS = 180.0
RELAY_SECONDS = 60.0


class Follower:
    """A running client program and the keys that it received. A context manager."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.keys: list[str] = []
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        self._thread.join(SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.split()
            if word == "received":
                self.keys.append(rest[0])


def facts_of(port: int, topic: str, start: Callable[[], subprocess.Popen[str]]) -> dict[str, str]:
    """Send a broker every query about the group `TOPIC-group`, whose client `start` starts."""
    group = f"{topic}-group"
    raw_remoting.create_topic(port, topic, queues=1)
    facts: dict[str, str] = {}
    with RawClient(port, timeout=RELAY_SECONDS) as client:
        ids = []
        for number in range(MESSAGES):
            fields = raw_remoting.send_fields(topic, properties=f"KEYS\x01k{number}\x02TAGS\x01A")
            sent = client.ask(raw_remoting.SEND_MESSAGE, fields, b"body")
            ids.append(sent.fields["msgId"])
        with Follower(start()) as follower:
            until(lambda: len(set(follower.keys)) >= MESSAGES, "the messages", seconds=SECONDS)
            facts |= _of_a_live_group(client, topic, group, ids[1], follower)
        members = {"consumerGroup": group}
        until(
            # RocketMQ empties a group before it removes it.
            lambda: all(
                client.ask(code, members).code != 0
                for code in (GET_CONSUMER_LIST_BY_GROUP, GET_CONSUMER_CONNECTION_LIST)
            ),
            "the client to be removed",
            seconds=SECONDS,
        )
        facts["a group whose members left"] = (
            f"members {client.ask(GET_CONSUMER_LIST_BY_GROUP, members).code}, "
            f"connections {client.ask(GET_CONSUMER_CONNECTION_LIST, members).code}"
        )
        reset = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
        code = client.ask(INVOKE_BROKER_TO_RESET_OFFSET, reset).code
        place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
        # Tools do this next.
        client.ask(UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "2"})
        with Follower(start()) as follower:
            until(lambda: len(set(follower.keys)) >= MESSAGES - 2, "the rest", seconds=SECONDS)
        facts["reset of an absent group"] = (
            f"{code}, and from the new place {sorted(follower.keys)}"
        )
    return facts


def _of_a_live_group(
    client: RawClient, topic: str, group: str, msg_id: str, follower: Follower
) -> dict[str, str]:
    facts: dict[str, str] = {}
    members = _forwarded_answer(client, GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    (client_id,) = json.loads(members.body)["consumerIdList"]
    connections = client.ask(GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}).body.decode()
    known = [
        _value(connections, key)
        for key in ("language", "consumeType", "messageModel", "consumeFromWhere", "subString")
    ]
    facts["members of a group"] = f"1, {', '.join(known)}"

    fields = {"consumerGroup": group, "clientId": client_id}
    for step, jstack in (("running info", "false"), ("running info with stacks", "true")):
        answer = _forwarded_answer(
            client, GET_CONSUMER_RUNNING_INFO, {**fields, "jstackEnable": jstack}
        )
        facts[step] = _running_info(answer, topic)
    direct = {**fields, "msgId": msg_id, "brokerName": "broker-a"}
    answer = _forwarded_answer(client, CONSUME_MESSAGE_DIRECTLY, direct)
    result = _value(answer.body.decode(), "consumeResult")
    until(lambda: len(follower.keys) > MESSAGES, "the message itself", seconds=SECONDS)
    facts["direct consumption"] = (
        f"{answer.code} {result}, received {sorted(set(follower.keys[MESSAGES:]))}"
    )

    place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    until(
        lambda: client.ask(QUERY_CONSUMER_OFFSET, place).fields.get("offset") == str(MESSAGES),
        "the offset to be stored",
        seconds=SECONDS,
    )
    status = {"topic": topic, "group": group, "clientAddr": client_id}
    answer = _forwarded_answer(client, INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
    offsets = _OFFSET.findall(answer.body.decode())
    facts["consumer status"] = f"{answer.code}, offsets {offsets}"

    before = len(follower.keys)
    reset = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
    answer = client.ask(INVOKE_BROKER_TO_RESET_OFFSET, reset)
    offsets = _OFFSET.findall(answer.body.decode())
    until(
        lambda: len(set(follower.keys[before:])) >= MESSAGES,
        "all messages to be redelivered",
        seconds=SECONDS,
    )
    again = sorted(set(follower.keys[before:]))
    facts["reset of a live group"] = f"{answer.code} to {offsets}, received again {again}"
    return facts


def _forwarded_answer(client: RawClient, code: int, fields: dict[str, str]) -> Answer:
    """Return the answer to a request that the broker forwards to a client, which may be slow."""
    answer = client.ask(code, fields)
    for _ in range(ATTEMPTS - 1):
        if answer.code != 0:
            answer = client.ask(code, fields)
    return answer


def _running_info(answer: Answer, topic: str) -> str:
    """Return the running info as text, because Go's JSON with unescaped stacks is invalid."""
    body = answer.body.decode(errors="replace")
    names = sorted(set(re.findall(r'"(mqTable|properties|statusTable|subscriptionSet)":', body)))
    stacks = "with stacks" if re.search(r'"jstack":\s*"[^"]', body) else "without stacks"
    is_there = f'"{topic}"' in body
    return (
        f"{answer.code} {_value(body, 'PROP_CONSUME_TYPE')}, {', '.join(names)}, "
        f"the topic {'is' if is_there else 'is not'} in it, {stacks}"
    )


def _value(text: str, key: str) -> str:
    found = re.search(rf'"{key}":\s*"?([^",}}]*)', text)
    return found.group(1) if found else "-"


# A table key is a queue, and clients write its fields in any order.
_OFFSET = re.compile(r"\}:(\d+)")
