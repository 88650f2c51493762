"""The live trace of a whole broker: what a watcher sees of what clients do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.message import properties
from broker_core.protocol.codes import RequestCode
from tests.support.builders import batch_item
from tests.support.watched import Watched

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


async def test_each_message_of_a_batch_is_told_of_with_its_own_tag_and_id(
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


async def test_an_acknowledgement_names_each_message_that_was_seen_delivered(
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


async def test_a_filter_of_the_message_finds_its_acknowledgement_too(
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
