"""The history of a message stored by RocketMQ's own broker, also by requests it supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.peer import Peer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import Client

pytestmark = [pytest.mark.interop, pytest.mark.django_db]

SEND_MESSAGE, UPDATE_CONSUMER_OFFSET, SEND_MSG_BACK, CREATE_GROUP = 10, 15, 36, 200
DEAD_AT_ONCE = "-1"
KEY = "0A01020300002A9F18B4AAC257A10001"
SECONDS = 120
POLL_S = 0.25


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Peer]:
    require_java()
    with Peer("4.9.7", tmp_path) as peer:
        yield peer


@pytest.fixture
def namesrv(original: Peer) -> str:
    return original.namesrv


def test_a_message_dead_on_the_real_broker_has_its_history_from_the_log(
    original: Peer, viewer: Client
) -> None:
    raw_remoting.create_topic(original.port, "Orders", queues=1)
    with raw_remoting.RawClient(original.port) as raw:
        raw.ask(CREATE_GROUP, body=b'{"groupName":"billing","retryQueueNums":1}')
        properties = f"UNIQ_KEY\x01{KEY}\x02KEYS\x01order-7\x02"
        sent = raw.ask(
            SEND_MESSAGE, raw_remoting.send_fields("Orders", properties=properties), b"x"
        )
        assert sent.code == 0, sent.remark
        (stored,) = raw_remoting.read_queue(original.port, "Orders", 0)
        # By the offset, the broker recognizes the group as a reader of the topic.
        read = {"consumerGroup": "billing", "topic": "Orders", "queueId": "0", "commitOffset": "1"}
        assert raw.ask(UPDATE_CONSUMER_OFFSET, read).code == 0
        back = {
            "group": "billing",
            "offset": str(stored.commit_log_offset),
            "delayLevel": DEAD_AT_ONCE,
        }
        given = raw.ask(SEND_MSG_BACK, back)
        assert given.code == 0, given.remark
    address = reverse("family:message", args=["broker-a", 0, 0, "Orders"])
    found: list[Any] = []

    def has_died() -> bool:
        answer = viewer.get(address)
        steps = [line.step for line in answer.context["waterfall"].lines]
        found[:] = [answer.context["relatives"].problems, steps]
        # The index lags behind the log.
        return "dead" in {step.stage for step in steps}

    until(has_died, "the broker to index the dead letter", seconds=SECONDS, every_s=POLL_S)

    problems, steps = found
    assert problems == []
    sure = {step.stage: str(step.certainty) for step in steps}
    assert (sure["stored"], sure["dead"]) == ("exact", "exact")
    assert (sure["dispatched"], sure["flushed"]) == ("inferred", "unknown")
    assert "recorder" not in {str(step.source) for step in steps}
