"""kill -9 between an answer and its record: delays, timers, retries, transactions."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from broker_core.verify.verifier import verify
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.raw_remoting import Answer

pytestmark = pytest.mark.fault

TOPIC, GROUP, PRODUCERS = "stepped", "stepped-group", "stepped-producers"
RETRY_TOPIC, DLQ_TOPIC = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
SCHEDULE_TOPIC, OP_TOPIC = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
CONSUMER_SEND_MSG_BACK, END_TRANSACTION, RECALL_MESSAGE = 36, 37, 370
COMMIT, ROLLBACK = "8", "12"
SUCCESS, SYSTEM_ERROR = 0, 1
COUNT, KILLED_AT = 5, 3
KEYS = {
    "messageDelayLevel": "1s 2s",
    "mappedFileSizeCommitLog": 4 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 100_000,
    # So rarely that the kill comes before deliveries are recorded.
    "flushDelayOffsetInterval": 60_000,
}


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, flushDiskType=request.param, **KEYS)
    yield made
    made.kill()


def start_to_be_killed(broker: BrokerProcess, step: str, topic: str, nth: int) -> None:
    """Start the broker, which dies at its nth put to the topic."""
    broker.module = ["tests.support.killed_at_step", step, topic, str(nth)]
    broker.start()
    raw_remoting.create_topic(broker.port, TOPIC, queues=1)


def start_after_the_kill(broker: BrokerProcess) -> None:
    assert broker.wait() == -9
    broker.module = ["broker_core"]
    broker.start()


def send(client: RawClient, body: str, **properties: str) -> Answer:
    text = "\x02".join(f"{key}\x01{value}" for key, value in properties.items())
    fields = raw_remoting.send_fields(TOPIC, properties=text)
    answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body.encode())
    assert answer.code == SUCCESS, answer
    return answer


def commit_log_offset(sent: Answer) -> str:
    return str(int(sent.fields["msgId"][16:], 16))


def give_back(client: RawClient, sent: Answer, level: int) -> Answer:
    fields = {
        "offset": commit_log_offset(sent),
        "group": GROUP,
        "delayLevel": str(level),
        "originTopic": TOPIC,
    }
    return client.ask(CONSUMER_SEND_MSG_BACK, fields)


def end(client: RawClient, sent: Answer, outcome: str) -> Answer:
    fields = {
        "producerGroup": PRODUCERS,
        "tranStateTableOffset": sent.fields["queueOffset"],
        "commitLogOffset": commit_log_offset(sent),
        "commitOrRollback": outcome,
    }
    return client.ask(END_TRANSACTION, fields)


def ask_until_killed(broker: BrokerProcess, ask: Callable[[RawClient, int], Answer]) -> int:
    """Send the requests one by one; return how many were answered before the connection broke."""
    answered = 0
    with RawClient(broker.port) as client:
        while answered < COUNT:
            try:
                answer = ask(client, answered)
            except OSError:
                break
            assert answer.code == SUCCESS
            answered += 1
    return answered


def stored(broker: BrokerProcess, topic: str) -> Counter[str]:
    return Counter(one.body.decode() for one in raw_remoting.read_queue(broker.port, topic, 0))


def is_sound(broker: BrokerProcess) -> bool:
    return broker.stop() == 0 and verify(broker.store).problems == []


def bodies(indexes: range) -> set[str]:
    return {f"m-{index}" for index in indexes}


def test_a_kill_between_the_real_message_and_the_op_message_loses_nothing(
    broker: BrokerProcess,
) -> None:
    start_to_be_killed(broker, "before", OP_TOPIC, KILLED_AT)
    with RawClient(broker.port) as client:
        half = [
            send(client, f"m-{n}", TRAN_MSG="true", PGROUP=PRODUCERS, UNIQ_KEY=f"K{n}")
            for n in range(COUNT)
        ]

    answered = ask_until_killed(broker, lambda client, n: end(client, half[n], COMMIT))

    assert answered == KILLED_AT - 1
    start_after_the_kill(broker)
    once = dict.fromkeys(bodies(range(KILLED_AT)), 1)
    assert stored(broker, TOPIC) == once
    with RawClient(broker.port) as client:
        # The unacknowledged outcome stays, and repeating it commits nothing twice.
        for n in range(KILLED_AT):
            assert end(client, half[n], ROLLBACK).code == SYSTEM_ERROR
            assert end(client, half[n], COMMIT).code == SUCCESS
        assert stored(broker, TOPIC) == once
        assert end(client, half[KILLED_AT], ROLLBACK).code == SUCCESS
        assert end(client, half[KILLED_AT + 1], COMMIT).code == SUCCESS
    assert stored(broker, TOPIC) == {**once, f"m-{KILLED_AT + 1}": 1}
    assert is_sound(broker)


def test_a_kill_between_a_delivery_and_saving_its_offset_loses_nothing(
    broker: BrokerProcess,
) -> None:
    start_to_be_killed(broker, "after", TOPIC, KILLED_AT)
    with RawClient(broker.port) as client:
        for n in range(COUNT):
            send(client, f"m-{n}", DELAY="2")

    start_after_the_kill(broker)

    all_bodies = bodies(range(COUNT))
    until(lambda: set(stored(broker, TOPIC)) >= all_bodies, "the delayed messages")
    # As with RocketMQ, deliveries since the last written offset repeat.
    delivered = bodies(range(KILLED_AT))
    assert stored(broker, TOPIC) == {body: 2 if body in delivered else 1 for body in all_bodies}
    assert is_sound(broker)


def test_a_kill_between_a_retry_and_its_answer_loses_nothing(broker: BrokerProcess) -> None:
    start_to_be_killed(broker, "after", SCHEDULE_TOPIC, KILLED_AT)
    with RawClient(broker.port) as client:
        sent = [send(client, f"m-{n}") for n in range(COUNT)]

    answered = ask_until_killed(broker, lambda client, n: give_back(client, sent[n], 1))

    assert answered == KILLED_AT - 1
    start_after_the_kill(broker)
    with RawClient(broker.port) as client:
        # The consumer repeats the unanswered request.
        for n in range(answered, COUNT):
            assert give_back(client, sent[n], 1).code == SUCCESS
    all_bodies = bodies(range(COUNT))
    unanswered = f"m-{answered}"
    expected = {body: 2 if body == unanswered else 1 for body in all_bodies}
    until(lambda: stored(broker, RETRY_TOPIC) == expected, "the returned messages")
    assert is_sound(broker)


def test_a_kill_between_a_dead_letter_and_its_answer_loses_nothing(broker: BrokerProcess) -> None:
    start_to_be_killed(broker, "after", DLQ_TOPIC, KILLED_AT)
    with RawClient(broker.port) as client:
        sent = [send(client, f"m-{n}") for n in range(COUNT)]

    answered = ask_until_killed(broker, lambda client, n: give_back(client, sent[n], -1))

    start_after_the_kill(broker)
    assert answered == KILLED_AT - 1
    assert stored(broker, DLQ_TOPIC) == dict.fromkeys(bodies(range(KILLED_AT)), 1)
    assert is_sound(broker)


def send_timers(broker: BrokerProcess, due_ms: int) -> list[Answer]:
    with RawClient(broker.port) as client:
        return [
            send(client, f"m-{n}", TIMER_DELIVER_MS=str(due_ms), UNIQ_KEY=f"K{n}")
            for n in range(COUNT)
        ]


@pytest.mark.parametrize(
    ("step", "topic", "nth", "repeats"),
    [
        ("before", TOPIC, 1, 0),
        ("after", TOPIC, KILLED_AT, KILLED_AT),
        ("before", TIMER_TOPIC, COUNT + 1, COUNT),
        ("after", TIMER_TOPIC, COUNT + 1, 0),
    ],
)
def test_a_kill_at_each_step_of_a_timer_delivery_loses_nothing(
    broker: BrokerProcess, step: str, topic: str, nth: int, repeats: int
) -> None:
    """Only messages that the killed turn delivered are delivered twice."""
    start_to_be_killed(broker, step, topic, nth)
    send_timers(broker, now_ms() + 2_000)

    start_after_the_kill(broker)

    all_bodies = bodies(range(COUNT))
    until(lambda: set(stored(broker, TOPIC)) >= all_bodies, "the timers")
    # With SYNC_FLUSH, or on a slow machine, the kill may hit a later turn.
    found = stored(broker, TOPIC)
    assert set(found) == all_bodies
    assert all(times <= 2 for times in found.values())
    assert sum(found.values()) <= COUNT + repeats
    assert is_sound(broker)


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_kill_between_a_recall_and_its_answer_loses_nothing(
    broker: BrokerProcess, step: str
) -> None:
    start_to_be_killed(broker, step, TIMER_TOPIC, COUNT + KILLED_AT)
    with RawClient(broker.port) as client:
        assert client.ask(25, body=b"recallMessageEnable=true\n").code == SUCCESS
    due_ms = now_ms() + 6_000
    handles = [sent.fields["recallHandle"] for sent in send_timers(broker, due_ms)]

    def recall(client: RawClient, n: int) -> Answer:
        # Starts with the last timer: recalling the first pending one writes a second record.
        handle = handles[COUNT - 1 - n]
        return client.ask(RECALL_MESSAGE, {"topic": TOPIC, "recallHandle": handle})

    answered = ask_until_killed(broker, recall)

    assert answered == KILLED_AT - 1
    start_after_the_kill(broker)
    recalled = answered + (step == "after")
    kept = bodies(range(COUNT - recalled))
    until(lambda: set(stored(broker, TOPIC)) >= kept, "the timers that were not recalled")
    assert stored(broker, TOPIC) == dict.fromkeys(kept, 1)
    assert is_sound(broker)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
