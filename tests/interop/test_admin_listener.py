"""mqadmin works on the administration listener, and public ports point to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.support.broker_process import BrokerProcess
from tests.support.mqadmin import MqAdmin, compile_programs
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

VERSION = "4.9.7"
IN_CLUSTER = ("-c", "DefaultCluster")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", adminListenAddress=f"127.0.0.1:{free_port()}")
    process.start()
    yield process
    process.stop()


def test_mqadmin_administers_only_at_the_listener(broker: BrokerProcess, tmp_path: Path) -> None:
    require_java()
    jars = compile_programs(VERSION, tmp_path)
    keys = dict(line.split("=", 1) for line in broker.file.read_text().splitlines())
    listener, public = keys["adminListenAddress"], f"127.0.0.1:{broker.port}"

    with MqAdmin(jars, tmp_path, listener) as mqadmin:
        made = mqadmin.run("updateTopic", *IN_CLUSTER, "-t", "T").text
        grouped = mqadmin.run("updateSubGroup", "-b", listener, "-g", "g").text
        shown = mqadmin.run("getBrokerConfig", *IN_CLUSTER).text
        refused = mqadmin.run("getBrokerConfig", "-b", public).text
        deleted = mqadmin.run("deleteTopic", *IN_CLUSTER, "-t", "T").text

    assert f"create topic to {listener} success" in made
    assert f"create subscription group to {listener} success" in grouped
    assert "brokerName" in shown
    assert f"the administration listener at {listener}" in refused
    assert "delete topic [T] from cluster [DefaultCluster] success" in deleted
