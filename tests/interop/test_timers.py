"""Timer messages of the published 5.3.3 client, compared between Trebuchet and RocketMQ."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.java_clients import JavaClients
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
TOPIC = "T_timers"
MAX_DELAY_SECONDS = 259_200
LATE_MS = 20
ADDED_BY_5 = {"MSG_REGION", "TRACE_ON", "WAIT", "__transactionId__"}
"""5.x stores these properties with every message; 4.9 and Trebuchet don't."""
LOST = "RocketMQ loses a transactional message with a delivery time; Trebuchet rejects it"
CANCELS_NOTHING = "RocketMQ stores a message that cancels nothing; Trebuchet rejects the handle"
OURS_DIFFERS = {
    **{
        f"transaction {outcome} {setter}": (
            "13 a transactional message can't have a delivery time "
            f"({name}); send it without one, or outside a transaction",
            LOST,
        )
        for outcome in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE")
        for setter, name in (
            ("setDelayTimeMs", "TIMER_DELAY_MS"),
            ("setDeliverTimeMs", "TIMER_DELIVER_MS"),
        )
    },
    "recall of an unknown message": (
        "604 recall failed, no pending message matches the handle",
        CANCELS_NOTHING,
    ),
}
"""Trebuchet's different answers, each with its reason."""


@pytest.fixture(scope="module")
def java_5(tmp_path_factory: pytest.TempPathFactory) -> JavaClients:
    require_java()
    clients = JavaClients(VERSION, tmp_path_factory.mktemp("java"))
    clients.build()
    return clients


def outcomes(java_5: JavaClients, namesrv: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return the outcome of each step, and the lateness of deliveries in milliseconds."""
    results, late = {}, {}
    for words in java_5.run("Timers", namesrv, TOPIC, MAX_DELAY_SECONDS):
        line = " ".join(word for word in words if word not in ADDED_BY_5)
        if words[0] == "late":
            late[" ".join(words[2:])] = int(words[1])
        else:
            name, _, result = line.partition(": ")
            if name == "overdue recall":
                which, _, result = result.partition(": ")
                name = f"{name}: {which}"
            results[name] = result
    return results, late


def test_the_client_gets_the_originals_outcomes_and_messages_on_time(
    java_5: JavaClients, tmp_path: Path
) -> None:
    with Peer(VERSION, tmp_path / "theirs", recallMessageEnable="true") as peer:
        theirs, _ = outcomes(java_5, peer.namesrv)
    broker = BrokerProcess(tmp_path / "ours", recallMessageEnable="true")
    broker.start()
    try:
        ours, late = outcomes(java_5, broker.namesrv)
    finally:
        broker.stop()

    expected = {**theirs, **{name: text for name, (text, _) in OURS_DIFFERS.items()}}
    assert ours == expected
    assert {name for name, text in theirs.items() if ours[name] != text} == set(OURS_DIFFERS)
    # The client's and the broker's clocks are the same machine's.
    assert len(late) == 4
    assert all(value >= 0 for value in late.values()), late
    on_time = {name: late[name] for name in ("delivery time", "delivery time on a second")}
    assert min(on_time.values()) <= LATE_MS, late


def send(client: RawClient, body: bytes, **properties: str) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    fields = raw_remoting.send_fields(TOPIC, properties=text)
    answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body)
    assert answer.code == raw_remoting.SUCCESS, answer


def bodies(port: int) -> list[bytes]:
    return [each.body for each in raw_remoting.read_queue(port, TOPIC, 0)]


def test_pending_timers_in_a_store_of_the_original_are_delivered_once(
    tmp_path: Path,
) -> None:
    require_java()
    keys = {"mappedFileSizeCommitLog": 1 << 20, "brokerIP1": "127.0.0.1"}
    directory = tmp_path / "theirs"
    with Peer(VERSION, directory, **keys) as peer:
        peer.ends_in_order = True
        raw_remoting.create_topic(peer.port, TOPIC, queues=1)
        with RawClient(peer.port) as client:
            for number in range(20):
                send(client, b"early", TIMER_DELAY_MS="500", UNIQ_KEY=f"early-{number}", TAGS="a")
            for number in range(20):
                send(client, b"late", TIMER_DELAY_SEC="60", UNIQ_KEY=f"late-{number}")
        until(lambda: len(bodies(peer.port)) == 20, "the early timers", seconds=60)
        # RocketMQ writes its checkpoint every second.
        time.sleep(3)

    broker = BrokerProcess(tmp_path / "ours", **keys, storePathRootDir=directory / "store")
    broker.start()
    try:
        until(lambda: len(bodies(broker.port)) >= 40, "the late timers", seconds=120)
        time.sleep(2)
        assert sorted(bodies(broker.port)) == [b"early"] * 20 + [b"late"] * 20
    finally:
        broker.stop()
