"""A slave of a pair: its own work while its master receives messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_core.protocol.codes import ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, messages
from tests.support.pair import running_slave, until_caught_up
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES = 1 << 18
NOTICED_SECONDS = 30.0
"""Half of the pull's maximum wait: only a notification can be as quick."""


async def test_a_parked_pull_at_a_slave_is_woken_by_replicated_messages(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        running_slave(tmp_path / "s", master) as slave,
    ):
        at_master = Client(f"127.0.0.1:{master.listen_port}")
        at_slave = Client(f"127.0.0.1:{slave.listen_port}")
        await at_master.send("T", b"first")
        await until_caught_up(master, slave)
        slave.metadata_sync.follow(f"127.0.0.1:{master.listen_port}")
        await slave.metadata_sync.sync()
        waiting = asyncio.create_task(at_slave.pull("T", 1, suspend_ms=60_000, timeout_s=90))
        await until_async(lambda: len(slave.storage.parked_pulls) == 1, "the pull to be parked")

        await at_master.send("T", b"second")

        answer = await asyncio.wait_for(waiting, NOTICED_SECONDS)
        assert answer.code == ResponseCode.SUCCESS
        assert [message.body for message in messages(answer)] == [b"second"]
        await at_master.shutdown()
        await at_slave.shutdown()


async def test_a_slave_deletes_its_own_expired_files(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m", mappedFileSizeCommitLog=FILE_BYTES) as master,
        running_slave(
            tmp_path / "s",
            master,
            mappedFileSizeCommitLog=FILE_BYTES,
            fileReservedTime=0,
            cleanResourceInterval=100,
        ) as slave,
    ):
        client = Client(f"127.0.0.1:{master.listen_port}")
        for _ in range(60):
            await client.send("T", b"x" * 10_000)
        await until_caught_up(master, slave)

        # Only flushed data is sent.
        assert await slave.storage.store.flush()
        slave.storage.store.delete_expired_files_soon()
        await slave.storage.store.retention.clean()

        assert slave.storage.store.min_commit_log_offset >= FILE_BYTES
        assert master.storage.store.min_commit_log_offset == 0
        await client.send("T", b"after")
        await until_caught_up(master, slave)
        await client.shutdown()
