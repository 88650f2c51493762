"""A message whose lease ends reaches a waiting consumer within 50 ms."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.pop_consumer import Popper
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

TOPIC = "late"
LEASE_MS = 300
COUNT = 20
LATE_MS_MAX = 50


def test_an_expired_lease_is_redelivered_within_50_ms(tmp_path: Path) -> None:
    """The median counts: a busy machine delays single answers."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    late_ms = []
    try:
        raw_remoting.create_topic(broker.port, TOPIC, queues=1)
        with RawClient(broker.port) as client:
            popper = Popper(client, "g", TOPIC)
            for number in range(COUNT):
                fields = raw_remoting.send_fields(TOPIC)
                client.ask(raw_remoting.SEND_MESSAGE, fields, b"%d" % number)
                (leased,) = popper.pop(1, LEASE_MS)
                due_ms = int(leased.receipt.split(" ")[1]) + LEASE_MS
                (again,) = popper.pop(1, pollTime="5000")
                late_ms.append(time.time_ns() / 1e6 - due_ms)
                assert again.body == leased.body
                popper.acknowledge(again)
    finally:
        broker.kill()

    assert min(late_ms) >= -1
    assert sorted(late_ms)[COUNT // 2] <= LATE_MS_MAX
