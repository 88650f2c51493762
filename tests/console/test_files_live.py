"""The files that only our brokers can change, edited on the pages of a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway import access
from console.gateway.remote.brokers import RemoteBrokers
from console.people.audit.models import Entry
from tests.console.plans import token_on
from tests.support.broker_process import BrokerProcess
from tests.support.long_timeouts import PATIENCE_S
from tests.support.raw_remoting import SEND_MESSAGE, Answer, RawClient, create_topic, send_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import Client

    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

DELAYS, FILTERS = "delayOffset.json", "consumerFilter.json"
EXPRESSION = "price > 10"
SUB_VERSION = 7


@pytest.fixture
def broker(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BrokerProcess]:
    """A broker whose first level waits a second, and whose second an hour."""
    process = BrokerProcess(
        tmp_path / "broker",
        enablePropertyFilter="true",
        messageDelayLevel="1s 1h",
        flushDelayOffsetInterval=500,
    )
    process.start()
    remote = RemoteBrokers([process.namesrv], PATIENCE_S)
    settings.TREBUCHET_CONFIRMED_BROKERS_FILE = tmp_path / "confirmed_brokers.json"
    settings.TREBUCHET_GATEWAY = "console.gateway.remote.gateway.remote_gateway"
    monkeypatch.setattr("console.gateway.remote.gateway.RemoteBrokers", lambda *_: remote)
    access.gateway.cache_clear()
    yield process
    access.gateway.cache_clear()
    remote.close()
    process.kill()


def send(port: int, body: bytes, **properties: str) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    with RawClient(port) as client:
        answer = client.ask(SEND_MESSAGE, send_fields("Orders", properties=text), body)
    assert answer.code == ResponseCode.SUCCESS, answer


def max_offset(port: int) -> int:
    with RawClient(port) as client:
        fields = {"topic": "Orders", "queueId": "0"}
        return int(client.ask(RequestCode.GET_MAX_OFFSET, fields).fields["offset"])


def offsets_in(broker: BrokerProcess) -> dict[str, int]:
    document = java_json.decode((broker.store / "config" / DELAYS).read_bytes())
    return {level: int(offset) for level, offset in document["offsetTable"].items()}


def edit_of(file: str) -> str:
    return reverse("files:edit", args=["broker-a", file])


def planned(client: Client, file: str, *changes: tuple[str, str]) -> Any:
    answer = client.get(edit_of(file))
    text = answer.context["text"]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return client.post(edit_of(file), {"base": str(answer.context["base"]), "text": text})


def applied(client: Client, file: str, plan: Any) -> None:
    answer = client.post(edit_of(file), {"token": token_on(plan), "accepted": "on"})
    assert answer.status_code == 302, answer.content.decode()


def heartbeat(client: RawClient) -> None:
    subscription = {
        "topic": "Orders",
        "subString": EXPRESSION,
        "expressionType": "SQL92",
        "subVersion": SUB_VERSION,
        "tagsSet": [],
        "codeSet": [],
        "classFilterMode": False,
    }
    group = {
        "groupName": "billing",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": "worker", "consumerDataSet": [group], "producerDataSet": []}
    answer = ask(client, RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
    assert answer.code == ResponseCode.SUCCESS, answer


def ask(client: RawClient, code: int, fields: dict[str, str], body: bytes = b"") -> Answer:
    """Send requests as a member of a group, which the broker also notifies of members."""
    opaque = client.send_request(code, fields, body)
    while (answer := client.read_answer()).opaque != opaque:
        assert answer.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    return answer


def pull(client: RawClient) -> tuple[int, bytes]:
    fields = {
        "consumerGroup": "billing",
        "topic": "Orders",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "0",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "",
        "subVersion": str(SUB_VERSION),
    }
    answer = ask(client, RequestCode.PULL_MESSAGE, fields)
    return answer.code, answer.body


def test_a_moved_delay_level_delivers_from_its_new_offset_even_after_a_kill(
    actors: Actors, broker: BrokerProcess
) -> None:
    create_topic(broker.port, "Orders", queues=1)
    for number in range(2):
        send(broker.port, b"soon-%d" % number, DELAY="1")
    for number in range(3):
        send(broker.port, b"later-%d" % number, DELAY="2")
    until(lambda: max_offset(broker.port) == 2, "both messages of level 1")

    beyond = planned(actors.admin, DELAYS, ("1:2", "1:3"))
    (shown,) = beyond.context["shown"]
    assert shown.refusals == ("Level 1 has offsets from 0 to 2.",)
    plan = planned(actors.admin, DELAYS, ("1:2", "1:1,2:2"))
    (shown,) = plan.context["shown"]
    assert shown.costs == (
        "Level 1: 1 delayed message will be delivered again, as a new message.",
        "Level 2: 2 delayed messages will be skipped and never delivered.",
    )
    applied(actors.admin, DELAYS, plan)

    until(lambda: max_offset(broker.port) == 3, "the redelivered message")
    until(lambda: offsets_in(broker) == {"1": 2, "2": 2}, "both offsets in the file")
    broker.kill()
    broker.start()
    document = access.gateway().files.read(shown.file, ["broker-a"])["broker-a"]
    assert document == {"offsetTable": {"1": 2, "2": 2}}
    assert max_offset(broker.port) == 3


def test_a_filter_changed_on_its_page_applies_to_pulls_until_it_is_undone(
    actors: Actors, broker: BrokerProcess
) -> None:
    create_topic(broker.port, "Orders", queues=1)
    for price in (5, 15, 25):
        send(broker.port, b"price-%d" % price, price=str(price))
    with RawClient(broker.port) as member:
        heartbeat(member)
        assert b"price-15" in pull(member)[1]

        bad = planned(actors.admin, FILTERS, (EXPRESSION, "price >"))
        plan = planned(actors.admin, FILTERS, (EXPRESSION, "price > 20"))
        applied(actors.admin, FILTERS, plan)
        heartbeat(member)
        _code, changed = pull(member)

        undo = reverse("files:undo", args=[Entry.objects.get().pk])
        shown = actors.admin.get(undo)
        actors.admin.post(undo, {"token": token_on(shown), "accepted": "on"})
        _code, undone = pull(member)

        opened = actors.admin.get(edit_of(FILTERS)).context["base"]
        fields = {"base": str(opened), "text": '{"filterDataByTopic":{}}'}
        applied(actors.admin, FILTERS, actors.admin.post(edit_of(FILTERS), fields))
        refused, _body = pull(member)

    (problem,) = bad.context["problems"]
    assert "at character" in problem.text
    assert (b"price-25" in changed, b"price-15" in changed) == (True, False)
    assert (b"price-25" in undone, b"price-15" in undone) == (True, True)
    assert refused == ResponseCode.FILTER_DATA_NOT_EXIST
    kept = (broker.store / "config" / FILTERS).read_text()
    assert "billing" not in kept
