"""deploy/up with several masters: one cluster, over which unmodified clients spread."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from deploy.brokers.cluster import PORT_STEP
from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.fault

TOPIC = "spread"
QUEUES = 4
COUNT = 64
SECONDS = 120.0


def queues_by_name(port: int) -> dict[str, int]:
    """Return a name server's number of queues of the topic, by broker."""
    with RawClient(port) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    if answer.code != raw_remoting.SUCCESS:
        return {}
    queues = java_json.decode(answer.body)["queueDatas"]
    return {one["brokerName"]: one["writeQueueNums"] for one in queues}


def messages_at(port: int) -> int:
    """Return how many messages of the topic a broker has, or -1 if it doesn't answer."""
    found = 0
    try:
        with RawClient(port) as client:
            for queue in range(QUEUES):
                fields = {"topic": TOPIC, "queueId": str(queue)}
                found += int(client.ask(RequestCode.GET_MAX_OFFSET, fields).fields["offset"])
    except OSError:
        return -1
    return found


def test_java_clients_use_two_masters_and_a_killed_one_returns(
    java_4: JavaClients, tmp_path: Path
) -> None:
    appliance = Appliance(tmp_path)
    appliance.set_keys(brokers=2)
    second = appliance.port + PORT_STEP
    appliance.start()
    try:
        assert f"broker-b     127.0.0.1:{second}" in appliance.words
        visitor = Visitor(appliance.url)
        visitor.sign_in()
        form = visitor.read("/topics/new/")
        names = re.findall(r'name="broker_names" value="([^"]+)"[^>]* checked', form)
        assert names == ["broker-a", "broker-b"]
        numbers = {"write_queue_nums": str(QUEUES), "read_queue_nums": str(QUEUES), "perm": "6"}
        page = visitor.post("/topics/new/", topic=TOPIC, broker_names=names, **numbers)
        token = re.search(r'name="token" value="([^"]+)"', page)
        assert token is not None, page
        visitor.post("/topics/new/", token=token[1])
        both = {"broker-a": QUEUES, "broker-b": QUEUES}
        until(
            lambda: queues_by_name(appliance.namesrv_port) == both,
            "the topic's route to have both brokers",
            seconds=SECONDS,
        )

        sent = java_4.send(
            appliance.namesrv, TOPIC, modes="sync", count=COUNT, tags="A", prefix="m"
        )
        received = java_4.receive(appliance.namesrv, TOPIC, "everybody", count=COUNT)

        assert len(sent) == COUNT
        assert sorted(line[0] for line in received) == sorted(line[0] for line in sent)
        parts = messages_at(appliance.port), messages_at(second)
        assert sum(parts) == COUNT
        assert min(parts) >= COUNT // 4, parts
        page = visitor.read("/")
        assert f"127.0.0.1:{appliance.port}" in page
        assert f"127.0.0.1:{second}" in page

        os.kill(appliance.pid_of("broker-b"), signal.SIGKILL)
        until(
            lambda: messages_at(second) == parts[1], "the second broker to restart", seconds=SECONDS
        )
        until(
            lambda: "broker-b ended and was restarted" in appliance.words,
            "the restart to be reported",
            seconds=SECONDS,
        )
        assert appliance.stop() == 0
    finally:
        appliance.stop()
