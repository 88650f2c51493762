"""Consumer offsets past the ends of their queues, as after a power cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.broker import running_broker
from tests.support.builders import put

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.broker import Broker

GROUP, TOPIC = "blue", "TopicTest"
COUNT = 3
AHEAD = COUNT + 7
SLAVE: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:1"}


def offset(broker: Broker) -> int:
    return broker.storage.offsets.query(GROUP, TOPIC, 0)


async def fill(directory: Path) -> None:
    async with running_broker(directory) as broker:
        for _ in range(COUNT):
            put(broker.storage.store)
        broker.storage.offsets.commit(GROUP, TOPIC, 0, AHEAD)


async def test_a_start_lowers_offsets_beyond_the_end_so_that_no_new_message_is_skipped(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)

    async with running_broker(tmp_path) as broker:
        assert offset(broker) == COUNT
        assert put(broker.storage.store).queue_offset == COUNT


async def test_a_slave_keeps_offsets_beyond_its_end_until_it_becomes_master(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)

    async with running_broker(tmp_path, **SLAVE) as broker:
        assert offset(broker) == AHEAD
        await broker.foundation.role.changed("ASYNC_MASTER")
        assert offset(broker) == COUNT
