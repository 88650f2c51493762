"""The unmodified Go client with our broker, and with the real one by the same program."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.interop.client_steps import STEPS
from tests.support import outcome_page, raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.outcome_page import OURS, THEIRS
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

RUN_SECONDS = 300
SECONDS = 150
COUNT = 60
QUEUES = 4
QUERY_CONSUMER_OFFSET = 14
SEND_OK = "0"
REFUSAL = re.compile(r"CODE: 1, DESC: push reply message fail, channel of <.+@asking> not found\.")
VERSION = "4.9.7"
DELAYS_S = (1, 2, 3, *(1,) * 15)
KEYS = {
    # With the defaults retries take minutes, and so does the first transaction check.
    "messageDelayLevel": " ".join(f"{delay}s" for delay in DELAYS_S),
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
}


@pytest.fixture(scope="module", params=["ours", "theirs"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, program: Path
) -> Iterator[BrokerProcess | Peer]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "theirs":
        require_java()
        with Peer(VERSION, directory / "peer", **KEYS) as theirs:
            yield theirs
        return
    ours = BrokerProcess(directory, **KEYS)
    ours.start()
    yield ours
    ours.stop()


def require_outcome(broker: BrokerProcess | Peer, step: str, text: str) -> None:
    """Compare an outcome with the table of outcomes."""
    kind = THEIRS if isinstance(broker, Peer) else OURS
    outcome_page.require(STEPS, step, "Go", kind, text)


def run(program: Path, *arguments: object) -> list[list[str]]:
    """Run the program to its end; return the words of each line."""
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


def topic_with(broker: BrokerProcess | Peer, name: str) -> str:
    raw_remoting.create_topic(broker.port, name, queues=QUEUES)
    return name


def send(broker: BrokerProcess | Peer, program: Path, topic: str, prefix: str) -> list[list[str]]:
    lines = run(program, "send", broker.namesrv, topic, f"{topic}-producer", COUNT, prefix)
    return [line[1:] for line in lines if line[0] == "sent"]


def receive(
    broker: BrokerProcess | Peer, program: Path, topic: str, expression: str, count: int
) -> list[list[str]]:
    arguments = (broker.namesrv, topic, f"{topic}-group", expression, count, 2_000, SECONDS)
    lines = run(program, "receive", *arguments)
    return [line[1:] for line in lines if line[0] == "received"]


def test_each_message_is_received_once_from_its_stored_location(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-all")

    sent = send(broker, program, topic, "m")
    received = receive(broker, program, topic, "*", len(sent))

    assert len(sent) == 3 * COUNT + 1
    assert Counter(line[0] for line in received) == Counter(line[0] for line in sent)
    places = {line[0]: line[2:4] for line in received}
    assert all(places[key] == place for key, *place in sent if place)
    assert all(key == body for key, _, _, _, body in received)


def test_a_tag_expression_only_passes_its_tags(broker: BrokerProcess | Peer, program: Path) -> None:
    topic = topic_with(broker, "go-tagged")
    send(broker, program, topic, "t")

    received = receive(broker, program, topic, "A || C", 2 * COUNT)

    tags = Counter(line[1] for line in received)
    assert tags == {"A": COUNT + 1, "C": COUNT}


def test_a_restarted_consumer_continues_where_it_stopped(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-offsets")
    first = send(broker, program, topic, "first")
    receive(broker, program, topic, "*", len(first))
    second = send(broker, program, topic, "second")

    received = receive(broker, program, topic, "*", len(second))

    assert {line[0] for line in received} == {line[0] for line in second}


def test_a_pull_consumer_reads_from_an_offset_and_stores_its_offset(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-pulled")
    sent = send(broker, program, topic, "p")
    in_queue_0 = sorted(int(line[2]) for line in sent if line[1:2] == ["0"])
    assert len(in_queue_0) > 5
    until(
        lambda: len(raw_remoting.read_queue(broker.port, topic, 0)) >= len(in_queue_0),
        "the messages to be readable",
        seconds=SECONDS,
    )

    lines = run(program, "pull", broker.namesrv, topic, "go-pull", "broker-a", 0, 2, 3)

    assert [int(line[2]) for line in lines if line[0] == "pulled"] == [2, 3, 4]
    places = next(line for line in lines if line[0] == "next")
    assert places[1:4] == ["5", "min", "0"]
    fields = {"consumerGroup": "go-pull", "topic": topic, "queueId": "0"}

    def stored() -> bool:
        with RawClient(broker.port) as client:
            return client.ask(QUERY_CONSUMER_OFFSET, fields).fields.get("offset") == "5"

    until(stored, "the consumer's offset to be stored")


def consume(
    broker: BrokerProcess | Peer, program: Path, topic: str, count: int, *, failures: int = 0
) -> list[tuple[str, int, int]]:
    """Return (key, reconsume_times, milliseconds from born to stored) of each delivery."""
    arguments = (broker.namesrv, topic, f"{topic}-group", failures, count, 2_500, SECONDS)
    lines = run(program, "consume", *arguments)
    return [(line[1], int(line[2]), int(line[3])) for line in lines if line[0] == "consumed"]


def test_delayed_messages_arrive_once_each_and_never_early(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-delayed")
    lines = run(program, "delay", broker.namesrv, topic, "go-delay-producer", 12, 2)

    consumed = consume(broker, program, topic, 12)

    assert Counter(key for key, _, _ in consumed) == {line[1]: 1 for line in lines}
    assert all(waited >= DELAYS_S[1] * 1_000 for _, _, waited in consumed)
    require_outcome(broker, "delayed messages", f"{len(consumed)} received once each, none early")


def test_a_failing_message_is_redelivered_until_it_is_consumed(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-retried")
    run(program, "delay", broker.namesrv, topic, "go-retry-producer", 4, 0)

    consumed = consume(broker, program, topic, 4 * 3, failures=2)

    for key in {key for key, _, _ in consumed}:
        assert [times for one, times, _ in consumed if one == key] == [0, 1, 2]
    assert len(consumed) == 4 * 3
    attempts = Counter(times for _, times, _ in consumed)
    require_outcome(broker, "a failing message", f"attempts {sorted(attempts.items())}")


def test_committed_transactions_arrive_once_and_rolled_back_ones_never(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-transacted")
    lines = run(program, "transact", broker.namesrv, topic, "go-transact-producer", 9, SECONDS)
    requests = {line[1] for line in lines if line[0] == "asked"}

    consumed = consume(broker, program, topic, 6)

    committed = {f"go-half-{n}" for n in range(9) if n % 3 != 1}
    assert requests >= {f"go-half-{n}" for n in range(9) if n % 3 == 2}
    assert Counter(key for key, _, _ in consumed) == dict.fromkeys(committed, 1)
    text = f"9 prepared, committed {sorted(committed)}"
    require_outcome(broker, "transactions", text)


def test_a_request_gets_its_reply_or_times_out(broker: BrokerProcess | Peer, program: Path) -> None:
    topic = topic_with(broker, "go-asked")

    lines = run(program, "request", broker.namesrv, topic, "go-asked-group", 5, 60_000)

    keys = [f"{kind}-{n}" for kind in ("sync", "async") for n in range(5)]
    assert {tuple(line) for line in lines if line[0] == "replied"} == {
        ("replied", key, f"reply-to-{key}") for key in keys
    }
    assert {tuple(line) for line in lines if line[0] == "answered"} == {
        ("answered", key, SEND_OK) for key in keys
    }
    # The broker can deliver replies only after the requester's first heartbeat.
    refused = {" ".join(line[2:]) for line in lines if line[0] == "refused"}
    assert all(REFUSAL.fullmatch(reason) for reason in refused), refused
    ((_, unanswered, waited_ms),) = [line for line in lines if line[0] == "timeout"]
    assert unanswered == "sync-silent"
    assert 1_000 <= int(waited_ms) < 60_000
    # The library calls back twice for each reply, and for a missing one after ten minutes or never.
    assert {tuple(line) for line in lines if line[0] == "called"} == {
        ("called", key, "2") for key in keys if key.startswith("async")
    }
    replied = sorted(line[1] for line in lines if line[0] == "replied")
    text = f"replied {replied}, unanswered {unanswered}"
    require_outcome(broker, "request and reply", text)
