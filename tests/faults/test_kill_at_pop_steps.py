"""kill -9 at each step of a pop, an acknowledgement, a change of the time, and a redelivery."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode
from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.pop_consumer import Popper
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.fault

TOPIC, GROUP = "leased", "leasing-group"
RETRY, DLQ = f"%RETRY%{GROUP}_{TOPIC}", f"%DLQ%{GROUP}"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
ALL = {"a", "b", "c", "d"}
LEASE_MS = 500
SECONDS = 20.0
POP, ACK, CHANGE, CHANGED_ACK, REVIVED_ACK = range(1, 6)
"""The number of each step's put to the revive topic."""
KEYS = {"mappedFileSizeCommitLog": 4 << 20, "maxHashSlotNum": 1_000, "maxIndexNum": 100_000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, **KEYS)
    yield made
    made.kill()


def prepare(port: int, retries_max: int) -> None:
    raw_remoting.create_topic(port, TOPIC, queues=1)
    group = {"groupName": GROUP, "retryMaxTimes": retries_max}
    with RawClient(port) as client:
        client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
        for body in sorted(ALL):
            fields = raw_remoting.send_fields(TOPIC)
            assert client.ask(raw_remoting.SEND_MESSAGE, fields, body.encode()).code == 0


def consume_until_killed(port: int) -> tuple[set[str], set[str]]:
    """Do every step once; return the messages of sent and of answered acknowledgements."""
    request, answered = set(), set()
    with contextlib.suppress(OSError), RawClient(port) as client:
        popper = Popper(client, GROUP, TOPIC)
        first, second = popper.pop(2, LEASE_MS)
        request.add(first.body)
        popper.acknowledge(first)
        answered.add(first.body)
        popper.change(second, 2 * LEASE_MS)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            client.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
            time.sleep(0.02)
    return request, answered


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("topic", "nth", "retries_max"),
    [
        (REVIVE, POP, 16),
        (REVIVE, ACK, 16),
        (REVIVE, CHANGE, 16),
        (REVIVE, CHANGED_ACK, 16),
        (RETRY, 1, 16),
        (REVIVE, REVIVED_ACK, 16),
        (DLQ, 1, 0),
    ],
    ids=["pop", "ack", "change", "ack of the former lease", "retry", "ack of a retry", "bury"],
)
def test_a_kill_neither_loses_nor_hides_messages(
    broker: BrokerProcess, topic: str, nth: int, retries_max: int, when: str
) -> None:
    broker.module = ["tests.support.killed_at_step", when, topic, str(nth)]
    broker.start()
    prepare(broker.port, retries_max)

    request, answered = consume_until_killed(broker.port)
    is_stored = (topic, nth, when) == (REVIVE, ACK, "after")
    done = request if is_stored else answered

    assert broker.wait() == -9
    broker.module = ["broker_core"]
    broker.start()
    with RawClient(broker.port) as client:
        popper = Popper(client, GROUP, TOPIC)
        dead = dead_letters(broker.port) if retries_max == 0 else set()
        found = popper.drain(SECONDS, len(ALL - done - dead))
        seen = {held.body for held in found}
        dead = dead_letters(broker.port) if retries_max == 0 else set()
        assert seen | done | dead == ALL
        assert not seen & done
        assert popper.pop() == []
    assert broker.stop() == 0
    assert verify(broker.store).problems == []


def dead_letters(port: int) -> set[str]:
    return {one.body.decode() for one in raw_remoting.read_queue(port, DLQ, 0)}
