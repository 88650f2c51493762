"""The live trace of a whole broker: a watcher's view of clients' actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.message import properties
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.builders import batch_item
from tests.support.trace_watch import Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.client import Client

BATCH: dict[str, Any] = {
    "a": "pg",
    "b": "T",
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1,
    "h": 0,
    "m": "true",
}


@pytest.fixture
async def watched(client: Client) -> AsyncIterator[Watched]:
    made = Watched(client.address)
    yield made
    await made.shutdown()


async def test_each_message_of_a_batch_is_reported_with_its_own_tag_and_id(
    client: Client, watched: Watched
) -> None:
    await watched.begin(topic="T")
    items = b"".join(
        batch_item(b"body", properties.encode({"TAGS": tag, "UNIQ_KEY": f"U-{tag}"}).encode())
        for tag in ("a", "b")
    )

    await client.ask(RequestCode.SEND_BATCH_MESSAGE, items, **BATCH)

    events = await watched.next(2)
    assert [(event["tags"], event["uniqKey"], event["bodySize"]) for event in events] == [
        ("a", "U-a", 4),
        ("b", "U-b", 4),
    ]


async def commit(client: Client, queue_offset: int) -> None:
    await client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup="g",
        topic="T",
        queueId=0,
        commitOffset=queue_offset,
    )


async def test_an_acknowledgement_names_each_delivered_message(
    client: Client, watched: Watched
) -> None:
    for number in range(5):
        await client.send("T", tags="A" if number < 4 else "B", UNIQ_KEY=f"U{number}")
    await watched.begin(stages=["acknowledged"])

    await client.pull("T", 2, subscription="A")
    await commit(client, 5)

    events = await watched.next(4)
    assert [
        (event["queueOffset"], event.get("acknowledgedFrom"), event.get("uniqKey"))
        for event in events
    ] == [
        ("2", "0", None),
        ("2", None, "U2"),
        ("3", None, "U3"),
        ("5", "4", None),
    ]
    assert events[1]["latencyUs"] > 0


async def test_a_message_filter_also_finds_the_acknowledgement(
    client: Client, watched: Watched
) -> None:
    await watched.begin(properties={"colour": "red"}, sample=1)
    await client.send("T", colour="blue")
    await client.send("T", colour="red")
    await client.pull("T")

    await commit(client, 2)

    events = await watched.next(3)
    assert [(event["stage"], event["queueOffset"]) for event in events] == [
        ("stored", "1"),
        ("delivered", "1"),
        ("acknowledged", "1"),
    ]
    assert not any("colour" in str(event) for event in events)


async def test_a_rejected_send_is_reported_with_its_reason(
    client: Client, watched: Watched
) -> None:
    await watched.begin(errorsOnly=True)

    answer = await client.send("no such topic!", b"body", tags="A", keys="k", UNIQ_KEY="U")

    [event] = await watched.next(1)
    assert answer.remark
    assert answer.remark.startswith(event.pop("remark"))
    assert event.pop("timeMs")
    assert event.pop("atUs")
    assert event.pop("client").startswith("127.0.0.1:")
    assert event.pop("latencyUs") >= 0
    assert event == {
        "seq": "1",
        "stage": "refused",
        "steps": {"received": 0},
        "topic": "no such topic!",
        "queueId": 0,
        "messageId": "U",
        "uniqKey": "U",
        "tags": "A",
        "keys": "k",
        "bodySize": 4,
        "producerGroup": "pg",
        "request": "SEND_MESSAGE_V2",
        "code": answer.code,
        "codeName": ResponseCode(answer.code).name,
    }


async def test_rejected_reads_and_returns_are_reported_by_their_group(
    client: Client, watched: Watched
) -> None:
    await client.send("T")
    await client.heartbeat("me", consumer_groups={"g": {"T": "*"}})
    await watched.begin(group="g", stages=["refused"])

    await client.pull("U")
    await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK, offset=10**9, group="g", delayLevel=0, originTopic="T"
    )

    events = await watched.next(2)
    assert [(event["request"], event["topic"], event["clientId"]) for event in events] == [
        ("PULL_MESSAGE", "U", "me"),
        ("CONSUMER_SEND_MSG_BACK", "T", "me"),
    ]


async def test_other_rejected_requests_are_not_events(client: Client, watched: Watched) -> None:
    await watched.begin()

    await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="nobody")
    await client.send("T", UNIQ_KEY="U")

    [event] = await watched.next(1)
    assert event["stage"] == "stored"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"b": "T", "e": "\u0663"},
        {"b": "T", "e": "9" * 400},
        {"b": "T" * 9_000, "e": "-1", "i": "\x01\x02\x01"},
    ],
)
async def test_an_invalid_send_gets_a_readable_rejection(
    client: Client, watched: Watched, fields: dict[str, Any]
) -> None:
    await watched.begin()

    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"", **fields)

    [event] = await watched.next(1)
    assert answer.code == event["code"]
    assert event["stage"] == "refused"
    assert len(event["topic"]) <= 255
    assert -1 <= event.get("queueId", -1) < 2**31
