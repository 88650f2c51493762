"""A disk slower than syncFlushTimeout: how the Java client handles the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.formats.record import decode
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.syscall_faults import injected
from tests.support.waiting import until
from tools.faults import syscalls

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

TOPIC = "slow-flush"
BATCH = 3
VIEW_MESSAGE_BY_ID = 33
SYNC_FLUSH_TIMEOUT_MS = 300
FLUSH_US = 2_000_000


def test_the_client_gets_the_offset_of_a_message_with_a_late_flush(
    java: JavaClients, tmp_path: Path
) -> None:
    if syscalls.missing():
        pytest.skip(f"flushes cannot be made slow here, that needs {syscalls.missing()}")
    broker = BrokerProcess(
        tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=SYNC_FLUSH_TIMEOUT_MS
    )
    broker.start()
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=1)
        with injected(broker.pid, "fdatasync", f"delay_enter={FLUSH_US}", tmp_path / "trace"):
            single, batch = java.run("SendStatuses", broker.namesrv, TOPIC, "producers", BATCH)

        until(lambda: len(bodies(broker.port)) == 1 + BATCH, "the last flush to end")
        stored = bodies(broker.port)
        assert stored == [b"single", b"batch-0", b"batch-1", b"batch-2"]
        assert single[:4] == ["answered", "FLUSH_DISK_TIMEOUT", "0", "0"]
        assert batch[:4] == ["answered", "FLUSH_DISK_TIMEOUT", "0", "1"]
        ids = [single[4], *batch[4].split(",")]
        assert [body_of(broker.port, msg_id) for msg_id in ids] == stored
    finally:
        broker.kill()


def bodies(port: int) -> list[bytes]:
    return [one.body for one in raw_remoting.read_queue(port, TOPIC, 0)]


def body_of(port: int, offset_msg_id: str) -> bytes:
    """Return the body of the message with an ID."""
    fields = {"offset": str(int(offset_msg_id[-16:], 16))}
    with RawClient(port) as client:
        return decode(client.ask(VIEW_MESSAGE_BY_ID, fields).body).body
