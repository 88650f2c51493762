"""Names with a newline and a forged log line, sent by anonymous clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEART_BEAT = 34
REGISTER_BROKER = 103
SEND_REPLY_MESSAGE = 324
FORGED = "2026-11-22 03:00:00,000 WARNING broker_core - forged"
HOSTILE = f"x\n{FORGED}\r\x1b[2J\x9b1m\u2028\u202e"
SHOWN = rf"x\n{FORGED}\r\x1b[2J\x9b1m\u2028\u202e"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker")
    process.start()
    yield process
    process.stop()


def test_no_name_forges_a_log_line(broker: BrokerProcess) -> None:
    consumer = {
        "groupName": HOSTILE,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
    }
    reply = {"topic": "T", "producerGroup": HOSTILE, "defaultTopic": HOSTILE}
    broker_fields = {
        "brokerName": HOSTILE,
        "brokerAddr": "10.0.0.9:10911",
        "clusterName": HOSTILE,
        "haServerAddr": "",
        "brokerId": "0",
    }
    with RawClient(broker.port) as client, RawClient(broker.namesrv_port) as registrar:
        for group in (HOSTILE, "honest"):
            heartbeat = {"clientID": HOSTILE, "consumerDataSet": [consumer | {"groupName": group}]}
            client.send_request(HEART_BEAT, {}, json.dumps(heartbeat).encode())
        client.send_request(SEND_REPLY_MESSAGE, reply)
        registrar.send_request(REGISTER_BROKER, broker_fields)
        until(lambda: "client_id=x" in broker.words(), "the line about the client")

    # Split at newlines only: no other line separator may appear at all.
    lines = broker.log.read_text().split("\n")
    assert any(f"client_id={SHOWN} address=" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith(FORGED) for line in lines)
