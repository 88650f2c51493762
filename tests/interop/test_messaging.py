"""Delays, retries, transactions and replies: our answers to Java clients equal RocketMQ's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.interop.client_steps import STEPS
from tests.support import outcome_page, raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.outcome_page import OURS, THEIRS
from tests.support.peer import Peer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.java_clients import JavaClients

    Either = BrokerProcess | Peer

pytestmark = pytest.mark.interop

DELAYS_S = (1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
KEYS = {
    # With the defaults, sixteen retries take hours, and a check comes after a minute.
    "messageDelayLevel": " ".join(f"{delay}s" for delay in DELAYS_S),
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    # No client answers while its JVM starts.
    "transactionCheckMax": 100,
}
LATE_MS_MAX = 20_000
"""Both share the machine with a starting JVM; test_delay_lateness measures our lateness."""
SECONDS = 150
RUN_SECONDS = 300
"""For a program that waits for SECONDS at most."""


@pytest.fixture(scope="module", params=["ours", "theirs"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Either]:
    require_java()
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "theirs":
        with Peer("4.9.7", directory, **KEYS) as theirs:
            yield theirs
        return
    ours = BrokerProcess(directory, **KEYS)
    ours.start()
    yield ours
    ours.stop()


def require_outcome(java: JavaClients, broker: Either, step: str, text: str) -> None:
    """Compare an outcome with the table of outcomes."""
    kind = THEIRS if isinstance(broker, Peer) else OURS
    outcome_page.require(STEPS, step, f"Java {java.version}", kind, text)


def topic_of(java: JavaClients, broker: Either, name: str) -> str:
    topic = f"{name}-{java.version.replace('.', '_')}"
    raw_remoting.create_topic(broker.port, topic)
    return topic


def read_topic(broker: Either, topic: str, count: int, queues: int = 4) -> list[str]:
    """Return the bodies in a topic once there are enough: some are stored after the answer."""
    found: list[str] = []

    def has_all() -> bool:
        stored = [raw_remoting.read_queue(broker.port, topic, queue) for queue in range(queues)]
        found[:] = sorted(record.body.decode() for queue in stored for record in queue)
        return len(found) >= count

    until(has_all, f"{count} messages in {topic}", seconds=SECONDS)
    return found


def test_delayed_messages_arrive_once_each_and_never_early(
    java: JavaClients, broker: Either
) -> None:
    topic = topic_of(java, broker, "delayed")

    lines = java.run(
        "DelayedMessages",
        broker.namesrv,
        topic,
        f"{topic}-group",
        60,
        3,
        SECONDS,
        seconds=RUN_SECONDS,
    )

    received = [line[1:] for line in lines if line[0] == "received"]
    assert Counter(line[0] for line in received) == {f"d-{n}": 1 for n in range(60)}
    for _, level, born, stored, arrived in received:
        delay_ms = DELAYS_S[int(level) - 1] * 1_000
        assert int(born) + delay_ms <= int(stored) <= int(arrived)
        assert int(stored) <= int(born) + delay_ms + LATE_MS_MAX
    levels = Counter(line[1] for line in received)
    text = f"{len(received)} received once each, none early: {sorted(levels.items())} by level"
    require_outcome(java, broker, "delayed messages", text)


def test_a_failing_message_is_redelivered_until_it_is_consumed(
    java: JavaClients, broker: Either
) -> None:
    topic = topic_of(java, broker, "retried")
    group = f"{topic}-group"
    sent = java.send(broker.namesrv, topic, modes="sync", count=5, tags="A", prefix="r")

    lines = java.run(
        *("RetryConsumer", broker.namesrv, topic, group, 2, 16, 5 * 3, 2_500, SECONDS),
        seconds=RUN_SECONDS,
    )

    received = [line[1:] for line in lines if line[0] == "received"]
    places = {key: msg_id for key, *_, msg_id in sent}
    assert len(received) == 5 * 3
    for key in places:
        mine = [line for line in received if line[0] == key]
        assert [line[1] for line in mine] == ["0", "1", "2"]
        # The library shows the subscribed topic, whatever queue the message came from.
        assert {line[3] for line in mine} == {topic}
        assert mine[0][4] == "-"
        assert mine[1][4] == mine[2][4] != "-"
        times = [int(line[2]) for line in mine]
        assert times[1] - times[0] >= DELAYS_S[2] * 1_000
        assert times[2] - times[1] >= DELAYS_S[3] * 1_000
    attempts = Counter(line[1] for line in received)
    text = f"attempts {sorted(attempts.items())}, each after its delay"
    require_outcome(java, broker, "a failing message", text)


def test_a_message_that_always_fails_is_dead_once(java: JavaClients, broker: Either) -> None:
    topic = topic_of(java, broker, "dead")
    group = f"{topic}-group"
    java.send(broker.namesrv, topic, modes="sync", count=3, tags="A", prefix="x")

    lines = java.run(
        *("RetryConsumer", broker.namesrv, topic, group, 99, 2, 3 * 3, 3_000, SECONDS),
        seconds=RUN_SECONDS,
    )

    received = [line[1:] for line in lines if line[0] == "received"]
    attempts = Counter((line[0], line[1]) for line in received)
    assert attempts == {(f"x-sync-{n}", str(times)): 1 for n in range(3) for times in range(3)}
    dead = read_topic(broker, f"%DLQ%{group}", 3, queues=1)
    assert dead == [f"body of x-sync-{n}" for n in range(3)]
    text = f"{sum(attempts.values())} attempts, dead {dead}"
    require_outcome(java, broker, "an always failing message", text)


def test_transactions_end_as_the_producer_decides(java: JavaClients, broker: Either) -> None:
    topic = topic_of(java, broker, "transacted")
    group = f"{topic}-producers"

    lines = java.run(
        "Transactions", broker.namesrv, topic, group, 40, "t", 20, SECONDS, seconds=RUN_SECONDS
    )

    halves = [line[1] for line in lines if line[0] == "half"]
    checked = {line[1] for line in lines if line[0] == "checked"}
    assert halves == [f"t-{n}" for n in range(40)]
    assert checked == {f"t-{n}" for n in range(40) if n % 4 >= 2}
    committed = read_topic(broker, topic, 20)
    assert committed == sorted(f"body of t-{n}" for n in range(40) if n % 2 == 0)
    text = f"{len(halves)} prepared, {len(checked)} asked about, {len(committed)} committed"
    require_outcome(java, broker, "transactions", text)


def test_another_producer_of_the_group_answers_for_a_lost_one(
    java: JavaClients, broker: Either
) -> None:
    topic = topic_of(java, broker, "orphaned")
    group = f"{topic}-producers"
    java.run("Transactions", broker.namesrv, topic, group, 8, "o", 0, 0)

    lines = java.run(
        "Transactions", broker.namesrv, topic, group, 0, "o", 4, SECONDS, seconds=RUN_SECONDS
    )

    checked = {line[1] for line in lines if line[0] == "checked"}
    assert checked <= {"o-2", "o-3", "o-6", "o-7"}
    committed = read_topic(broker, topic, 4)
    assert committed == [f"body of o-{n}" for n in (0, 2, 4, 6)]
    text = f"committed {committed}"
    require_outcome(java, broker, "transactions of a lost producer", text)


def test_a_request_gets_its_reply_or_times_out(java: JavaClients, broker: Either) -> None:
    topic = topic_of(java, broker, "asked")

    lines = java.run(
        "RequestReply", broker.namesrv, topic, f"{topic}-group", 6, seconds=RUN_SECONDS
    )

    assert lines[-1] == ["timeout", "q-5"]
    assert [line for line in lines if line[0] == "replied"] == [
        ["replied", f"q-{n}", f"answer-to-q-{n}"] for n in range(5)
    ]
    text = "; ".join(" ".join(line) for line in lines)
    require_outcome(java, broker, "request and reply", text)
