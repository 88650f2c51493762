"""Messages deleted before a group had read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.trace_watch import Watched

if TYPE_CHECKING:
    from pathlib import Path


async def test_only_groups_that_had_not_read_expired_messages_are_named(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for _ in range(10):
            await client.send("T")
        for group, offset in (("behind", 3), ("done", 8), ("new", 0)):
            broker.storage.offsets.commit(group, "T", 0, offset)
        watched = Watched(client.address)
        await watched.begin(errorsOnly=True)
        assert broker.storage.store.retention.on_expired is not None

        broker.storage.store.retention.on_expired("T", 0, 0, 8)

        events = await watched.next(2)
        assert [
            (event["stage"], event["group"], event["fromOffset"], event["queueOffset"])
            for event in events
        ] == [("expired", "behind", "3", "8"), ("expired", "new", "0", "8")]
        await watched.shutdown()
        await client.shutdown()
