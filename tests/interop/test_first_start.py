"""An unused broker: its topics, and how mqadmin 5.3.3 traces its first message."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.support.broker_process import BrokerProcess
from tests.support.first_start import topics_of
from tests.support.mqadmin import MqAdmin, compile_programs
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRACED_SECONDS = 30.0

KEYS = [
    {},
    {"traceTopicEnable": "true", "msgTraceTopicName": "TRACES", "brokerClusterName": "another"},
    {
        "autoCreateTopicEnable": "false",
        "clusterTopicEnable": "false",
        "brokerTopicEnable": "false",
        "messageDelayLevel": "1s 2s 3s",
    },
    {"defaultTopicQueueNums": "3"},
]
"""Configurations with which RocketMQ creates other topics at its start."""


def listed(broker: BrokerProcess | Peer) -> set[str]:
    with RawClient(broker.namesrv_port) as client:
        body = client.ask(GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body
    return set(json.loads(body)["topicList"])


@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_the_first_topics_match_the_real_ones(tmp_path: Path, keys: dict[str, str]) -> None:
    require_java()
    # RocketMQ creates the half topic at its first transaction check.
    table = {**keys, "transactionCheckInterval": "200"}
    ours = BrokerProcess(tmp_path / "ours", **table)
    with Peer("4.9.7", tmp_path / "theirs", **table) as theirs:
        ours.start()
        try:
            until(lambda: HALF_TOPIC in listed(theirs), "the original's half topic")

            assert topics_of(ours.port) == topics_of(theirs.port)
            assert listed(ours) == listed(theirs)
        finally:
            ours.stop()


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[list[BrokerProcess | Peer]]:
    """Our broker and the real one, each with a trace topic.

    Without that topic the client ends before it finds a route to it, and drops the trace.
    """
    require_java()
    keys = {"traceTopicEnable": "true"}
    ours = BrokerProcess(tmp_path / "ours", **keys)
    with Peer("4.9.7", tmp_path / "theirs", **keys) as theirs:
        ours.start()
        try:
            yield [ours, theirs]
        finally:
            ours.stop()


def test_mqadmin_5_finds_the_trace_of_its_message(
    tmp_path: Path, traced: list[BrokerProcess | Peer]
) -> None:
    jars = compile_programs("5.3.3", tmp_path)
    found = []
    for broker in traced:
        home = tmp_path / f"home-{broker.port}"
        home.mkdir()
        # As users run it: the process ends right after the send.
        with MqAdmin(jars, home, broker.namesrv) as mqadmin:
            sent = mqadmin.run("sendMessage", "-t", "traced", "-p", "hello", "-m", "true").text
            message_id = sent.split()[-1]
        with MqAdmin(jars, home, broker.namesrv) as mqadmin:
            queried = ("queryMsgTraceById", "-i", message_id)
            until(
                lambda: "success" in mqadmin.run(*queried).text,  # noqa: B023
                "the trace",
                seconds=TRACED_SECONDS,
            )
            found.append(mqadmin.run(*queried).text.split())

    ours, theirs = ([re.sub(r"\d+", "N", word) for word in words] for words in found)

    assert "Pub" in ours
    assert ours == theirs
