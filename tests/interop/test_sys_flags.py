"""Bits that a broker sets: in topics of units, in messages of topics with several tags."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.first_start import topics_of
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient, send_fields, topic_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

HEART_BEAT = 34
SYS_FLAG_AT = 36
GROUP = "unit-consumers"


def heartbeat(group: str, *, is_unit: bool) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [],
        "unitMode": is_unit,
    }
    body = {"clientID": "10.0.0.1@1", "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(body).encode()


def send(client: RawClient, topic: str, **fields: str) -> None:
    answer = client.ask(raw_remoting.SEND_MESSAGE, send_fields(topic) | fields, b"x")
    assert answer.code == 0, answer


def sys_flag_of_first(port: int, topic: str) -> int:
    """Return the flag of the first stored message of a topic."""
    with RawClient(port) as client:
        answer = client.ask(raw_remoting.PULL_MESSAGE, raw_remoting.pull_fields(topic, 0, 0))
    assert answer.code == 0, answer
    return int.from_bytes(answer.body[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")


def facts_of(port: int) -> dict[str, Any]:
    """Create topics in every way; return their flags."""
    multi = topic_fields("multi", 1) | {"topicFilterType": "MULTI_TAG", "perm": "7"}
    with RawClient(port) as client:
        assert client.ask(raw_remoting.UPDATE_AND_CREATE_TOPIC, multi).code == 0
        send(client, "multi")
        send(client, "like-multi", defaultTopic="multi")
        send(client, "plain")
        send(client, "of-a-unit", unitMode="true")
    with RawClient(port) as member:
        # Notifications may arrive before the answers, so wait for the topics.
        member.send_request(HEART_BEAT, {}, heartbeat(GROUP, is_unit=True))
        member.send_request(HEART_BEAT, {}, heartbeat("others", is_unit=False))
        retry_topics = {f"%RETRY%{GROUP}", "%RETRY%others"}
        until(lambda: retry_topics <= topics_of(port).keys(), "the groups' retry topics")
    table = topics_of(port)
    made = ("multi", "like-multi", "plain", "of-a-unit", f"%RETRY%{GROUP}", "%RETRY%others")
    return {
        "topics": {topic: table[topic] for topic in made},
        "messages": {
            topic: sys_flag_of_first(port, topic) for topic in ("multi", "like-multi", "plain")
        },
    }


def test_the_bits_match_the_real_brokers(tmp_path: Path) -> None:
    require_java()
    ours = BrokerProcess(tmp_path / "ours")
    with Peer("4.9.7", tmp_path / "theirs") as theirs:
        ours.start()
        try:
            found = [facts_of(each.port) for each in (ours, theirs)]
        finally:
            ours.stop()

    assert found[0] == found[1]
    assert found[0]["topics"]["of-a-unit"]["topicSysFlag"] == 1
    assert found[0]["topics"][f"%RETRY%{GROUP}"]["topicSysFlag"] == 2
    assert found[0]["messages"] == {"multi": 2, "like-multi": 2, "plain": 0}
