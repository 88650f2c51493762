"""The disk of a running broker fails: it acknowledges nothing more, and reads still work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.syscall_faults import injected
from tests.support.waiting import until
from tools.faults import syscalls

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "failing"
SERVICE_NOT_AVAILABLE = 14
SENDS = 8


def send(port: int, count: int) -> list[int]:
    """Return the codes of the answers."""
    fields = raw_remoting.send_fields(TOPIC)
    with RawClient(port) as client:
        return [
            client.ask(raw_remoting.SEND_MESSAGE, fields, b"m%d" % number).code
            for number in range(count)
        ]


def store_state(port: int) -> str:
    with RawClient(port) as client:
        answer = client.ask(raw_remoting.GET_BROKER_RUNTIME_INFO)
    return str(json.loads(answer.body)["table"]["storeState"])


@pytest.mark.fault
@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_after_a_failed_flush_no_send_is_acknowledged(tmp_path: Path, flush_disk_type: str) -> None:
    if syscalls.missing():
        pytest.skip(f"flushes cannot be made to fail here, that needs {syscalls.missing()}")
    broker = BrokerProcess(tmp_path, flushDiskType=flush_disk_type, flushCommitLogLeastPages=0)
    broker.start()
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=1)
        assert send(broker.port, 3) == [raw_remoting.SUCCESS] * 3
        until(lambda: _is_flushed(broker.port), "the log to be flushed")

        with injected(broker.pid, "fdatasync", "error=EIO", tmp_path / "trace"):
            codes = send(broker.port, 1)
            until(lambda: "failed write" in store_state(broker.port), "the failure to be noticed")
            refused = send(broker.port, SENDS)
        # The disk works again; dropped data stays lost.
        refused += send(broker.port, SENDS)

        assert flush_disk_type == "ASYNC_FLUSH" or codes == [SERVICE_NOT_AVAILABLE]
        assert refused == [SERVICE_NOT_AVAILABLE] * 2 * SENDS
        assert [one.body for one in raw_remoting.read_queue(broker.port, TOPIC, 0)] == [
            b"m0",
            b"m1",
            b"m2",
        ]
        assert broker.is_running
        broker.stop()
        broker.start()
        assert send(broker.port, 1) == [raw_remoting.SUCCESS]
        assert len(raw_remoting.read_queue(broker.port, TOPIC, 0)) >= 4
    finally:
        broker.kill()


def _is_flushed(port: int) -> bool:
    with RawClient(port) as client:
        answer = client.ask(raw_remoting.GET_BROKER_RUNTIME_INFO)
    return bool(json.loads(answer.body)["table"]["remainHowManyDataToFlush"].startswith("0.0"))
