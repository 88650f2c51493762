"""The answer to a send while every buffer of the TransientStorePool is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.codes import ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.gate import Gate

if TYPE_CHECKING:
    from pathlib import Path

BUFFERS = 2
FILE_BYTES = 1 << 16
BODY = bytes(20_000)


async def test_a_send_without_a_buffer_is_answered_like_by_the_original(tmp_path: Path) -> None:
    """The clock stands still, so that no overload check rejects the send first."""
    storage = FaultyStorage()
    async with running_broker(
        tmp_path,
        clock=ManualClock(),
        storage=storage,
        transientStorePoolEnable="true",
        transientStorePoolSize=BUFFERS,
        mappedFileSizeCommitLog=FILE_BYTES,
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        gate = Gate(storage, "pwrite")
        sends = BUFFERS * FILE_BYTES // len(BODY) + 1
        answers = [await client.send("T", BODY) for _ in range(sends)]
        gate.open.set()
        await client.shutdown()

    assert answers[0].code == ResponseCode.SUCCESS
    # A real 4.9.7 with osPageCacheBusyTimeOutMills=0 answers with this code and remark.
    assert answers[-1].code == ResponseCode.SYSTEM_ERROR
    assert answers[-1].remark == "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
