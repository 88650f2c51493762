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
