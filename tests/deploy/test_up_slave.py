"""deploy/up --slave: a pair that a new user can watch, and unplug."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from deploy.brokers.slave import PORT_STEP
from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.ports import accepts
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

TOPIC = "pair"
SECONDS = 120.0


def max_offset(port: int) -> int:
    """Return the number of readable messages, or -1 if it doesn't answer."""
    try:
        with RawClient(port) as client:
            answer = client.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
    except OSError:
        return -1
    return int(answer.fields["offset"])


def send(appliance: Appliance) -> None:
    with RawClient(appliance.port) as client:
        fields = raw_remoting.send_fields(TOPIC)
        assert client.ask(RequestCode.SEND_MESSAGE, fields, b"x").code == raw_remoting.SUCCESS


def test_a_slave_runs_beside_the_broker_and_returns(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, TREBUCHET_SLAVE="true")
    slave_port = appliance.port + PORT_STEP
    appliance.start()
    try:
        assert f"slave        127.0.0.1:{slave_port}" in appliance.words
        send(appliance)
        until(
            lambda: max_offset(slave_port) == 1, "the first message at the slave", seconds=SECONDS
        )
        with RawClient(appliance.namesrv_port) as client:
            info = java_json.decode(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        assert info["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {
            "0": f"127.0.0.1:{appliance.port}",
            "1": f"127.0.0.1:{slave_port}",
        }
        visitor = Visitor(appliance.url)
        visitor.sign_in()
        page = visitor.read("/")
        assert f"127.0.0.1:{slave_port}" in page
        assert "Replication" in page

        os.kill(appliance.pid_of("slave"), signal.SIGKILL)
        send(appliance)
        until(lambda: max_offset(slave_port) == 2, "the slave to restart", seconds=SECONDS)
        assert appliance.stop() == 0
    finally:
        appliance.stop()
    assert not accepts(slave_port)
