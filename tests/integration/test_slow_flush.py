"""A disk slower than syncFlushTimeout: the message is stored, and the answer has its offset."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.message import properties
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.builders import batch_item
from tests.support.client import Client, messages
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.gate import Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand

TIMEOUT_MS = 5_000
HEADER: dict[str, Any] = {
    "a": "pg",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1",
    "h": "0",
}


class SlowDisk:
    """A broker with SYNC_FLUSH, whose flushes end when the test triggers it."""

    def __init__(self, broker: Broker, clock: ManualClock, gate: Gate) -> None:
        self.client = Client(f"127.0.0.1:{broker.listen_port}")
        self._clock = clock
        self._gate = gate

    async def too_slow_for(self, request: Coroutine[Any, Any, RemotingCommand]) -> RemotingCommand:
        """Send a request whose flush doesn't end in time; return its answer."""
        waiting = asyncio.create_task(request)
        await self._gate.until_entered()
        assert not waiting.done()
        self._clock.advance_ms(TIMEOUT_MS)
        answer = await waiting
        self._gate.open.set()
        return answer


@pytest.fixture
async def slow_disk(tmp_path: Path) -> AsyncIterator[SlowDisk]:
    clock, storage = ManualClock(), FaultyStorage()
    async with running_broker(
        tmp_path,
        clock=clock,
        storage=storage,
        flushDiskType="SYNC_FLUSH",
        syncFlushTimeout=TIMEOUT_MS,
    ) as broker:
        gate = Gate(storage, "fdatasync")
        slow_disk = SlowDisk(broker, clock, gate)
        with contextlib.ExitStack() as stack:
            stack.callback(gate.open.set)
            yield slow_disk
        await slow_disk.client.shutdown()


async def test_a_message_with_a_late_flush_is_answered_with_its_offset(
    slow_disk: SlowDisk,
) -> None:
    client = slow_disk.client

    late = await slow_disk.too_slow_for(client.ask(RequestCode.SEND_MESSAGE_V2, b"late", **HEADER))

    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert (late.ext_fields["queueId"], late.ext_fields["queueOffset"]) == ("2", "0")
    assert late.ext_fields["MSG_REGION"] == "DefaultRegion"
    (stored,) = messages(await client.pull("T", queue_id=2, suspend_ms=5_000))
    assert stored.body == b"late"
    assert late.ext_fields["msgId"].endswith(f"{stored.commit_log_offset:016X}")


async def test_a_batch_with_a_late_flush_is_answered_with_all_its_ids(
    slow_disk: SlowDisk,
) -> None:
    client = slow_disk.client
    items = batch_item(b"one") + batch_item(b"two")

    late = await slow_disk.too_slow_for(client.ask(RequestCode.SEND_BATCH_MESSAGE, items, **HEADER))

    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert (late.ext_fields["queueId"], late.ext_fields["queueOffset"]) == ("2", "0")
    stored = messages(await client.pull("T", queue_id=2, suspend_ms=5_000))
    assert [message.body for message in stored] == [b"one", b"two"]
    ids = late.ext_fields["msgId"].split(",")
    assert [int(msg_id[-16:], 16) for msg_id in ids] == [one.commit_log_offset for one in stored]


async def test_a_reply_with_a_late_flush_has_its_offset(slow_disk: SlowDisk) -> None:
    header: dict[str, Any] = {**HEADER, "b": "DefaultCluster_REPLY_TOPIC", "e": "0"}
    text = properties.encode({"REPLY_TO_CLIENT": "nobody"})

    late = await slow_disk.too_slow_for(
        slow_disk.client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, b"late", i=text, **header)
    )

    assert late.code == ResponseCode.SYSTEM_ERROR
    assert "not found" in (late.remark or "")
    assert len(late.ext_fields["msgId"]) == 32
    assert late.ext_fields["queueOffset"] == "0"
