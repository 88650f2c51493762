"""Pending delayed, retried and half messages in a store after another broker starts on it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from broker_core.verify.verifier import verify
from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.java_clients import JavaClients

    Either = BrokerProcess | Peer

pytestmark = pytest.mark.interop

TOPIC, GROUP, PRODUCERS = "taken-over", "taken-over-group", "taken-over-producers"
RETRY_TOPIC = f"%RETRY%{GROUP}"
CONSUMER_SEND_MSG_BACK = 36
LONG_DELAY_S = 12
SECONDS = 150
KEYS = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
    "messageDelayLevel": f"1s {LONG_DELAY_S}s {LONG_DELAY_S}s",
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    # No client answers while a JVM starts.
    "transactionCheckMax": 100,
    "brokerIP1": "127.0.0.1",
}
OURS, THEIRS = "ours", "theirs"


@contextmanager
def running(kind: str, directory: Path, store: Path) -> Iterator[Either]:
    """Run our broker or RocketMQ's on a store, which must be valid before and after."""
    if kind == THEIRS:
        keys = {**KEYS, "storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
        with Peer("4.9.7", directory, **keys) as theirs:
            theirs.ends_in_order = True
            yield theirs
        return
    ours = BrokerProcess(directory, **{**KEYS, "storePathRootDir": store})
    ours.start()
    try:
        yield ours
    finally:
        assert ours.stop() == 0
    assert verify(store).problems == []


def send(port: int, body: bytes, properties: str = "") -> None:
    with RawClient(port) as client:
        fields = raw_remoting.send_fields(TOPIC, properties=properties)
        assert client.ask(raw_remoting.SEND_MESSAGE, fields, body).code == 0


def give_back(port: int, body: bytes) -> None:
    """Send a message and return it, as a consumer that failed to process it."""
    with RawClient(port) as client:
        sent = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), body)
        answer = client.ask(
            CONSUMER_SEND_MSG_BACK,
            {
                "offset": str(int(sent.fields["msgId"][16:], 16)),
                "group": GROUP,
                "delayLevel": "0",
                "originTopic": TOPIC,
                "unitMode": "false",
            },
        )
    assert answer.code == 0, answer


def bodies(port: int, topic: str, queues: int = 4) -> list[str]:
    stored = [raw_remoting.read_queue(port, topic, queue) for queue in range(queues)]
    return sorted(record.body.decode() for queue in stored for record in queue)


@pytest.mark.parametrize(("first", "second"), [(THEIRS, OURS), (OURS, THEIRS)])
def test_messages_waiting_in_a_store_are_delivered_and_decided_by_the_next_broker(
    tmp_path: Path, java_4: JavaClients, first: str, second: str
) -> None:
    require_java()
    store = tmp_path / "store"
    store.mkdir()
    committed = [f"body of h-{n}" for n in (0, 2, 4, 6)] + [f"body of young-{n}" for n in (0, 2)]
    expected = ["short", "long", "retried", *committed]
    with running(first, tmp_path / "first", store) as broker:
        raw_remoting.create_topic(broker.port, TOPIC)
        # A half message that was checked and not decided: its copies are in the store, too.
        arguments = (broker.namesrv, TOPIC, PRODUCERS)
        java_4.run("Transactions", *arguments, 8, "h", 0, 0)
        time.sleep(3)
        send(broker.port, b"short", "DELAY\x011")
        until(lambda: "short" in bodies(broker.port, TOPIC), "the short delay", seconds=SECONDS)
        sent_at = time.monotonic()
        send(broker.port, b"long", "DELAY\x012")
        give_back(broker.port, b"retried")
        java_4.run("Transactions", *arguments, 4, "young", 0, 0)
        # Outcomes aren't answered.
        decided = {"body of h-0", "body of h-4", "body of young-0"}
        until(
            lambda: decided <= set(bodies(broker.port, TOPIC)),
            "the immediately committed messages",
            seconds=SECONDS,
        )

    with running(second, tmp_path / "second", store) as broker:
        java_4.run(
            "Transactions",
            broker.namesrv,
            TOPIC,
            PRODUCERS,
            0,
            "h",
            6,
            SECONDS,
            seconds=2 * SECONDS,
        )
        until(lambda: "long" in bodies(broker.port, TOPIC), "the long delay", seconds=SECONDS)
        waited_s = time.monotonic() - sent_at
        until(
            lambda: "retried" in bodies(broker.port, RETRY_TOPIC, 1), "the retry", seconds=SECONDS
        )
        until(lambda: set(expected) <= set(bodies(broker.port, TOPIC)), "all", seconds=SECONDS)
        # Duplicates would arrive now.
        time.sleep(3)
        found = bodies(broker.port, TOPIC)
        retried = bodies(broker.port, RETRY_TOPIC, 1)

    assert waited_s >= LONG_DELAY_S
    assert retried == ["retried"]
    assert found == sorted(expected)
