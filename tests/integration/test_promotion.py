"""A slave is promoted and the old master restarts, as whole processes."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode
from tests.support import raw_remoting
from tests.support.broker_set import NAME, BrokerSet, promote
from tests.support.client import messages
from tests.support.pop_consumer import Popper
from tests.support.producer import COMMIT, ROLLBACK, Producer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until, until_async

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.fault

TOPIC = "T"
PROBE = b"probe"
CLOCK_MS = 5
"""A broker reads times once per turn of the loop."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[BrokerSet]:
    with BrokerSet(tmp_path) as made:
        yield made


def send(broker: BrokerProcess, *bodies: str) -> None:
    with RawClient(broker.port) as client:
        for body in bodies:
            fields = raw_remoting.send_fields(TOPIC, properties=f"KEYS\x01{body}")
            answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body.encode())
            assert answer.code == raw_remoting.SUCCESS, answer


def is_acknowledged(broker: BrokerProcess) -> bool:
    with RawClient(broker.port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), PROBE)
    return answer.code == raw_remoting.SUCCESS


def stored(broker: BrokerProcess) -> list[str]:
    return [one.body.decode() for one in raw_remoting.read_queue(broker.port, TOPIC, 0)]


def test_a_slave_becomes_master_and_the_old_one_its_slave(pair: BrokerSet) -> None:
    old, new = pair.brokers
    raw_remoting.create_topic(old.port, TOPIC, queues=1)
    send(old, "a", "b")
    pair.until_same(old, new)
    old.kill()

    code, words = promote(new)

    assert code == 0, words
    assert "is ASYNC_MASTER in epoch 1" in words
    send(new, "c")
    assert stored(new) == ["a", "b", "c"]
    until(lambda: pair.master_in_route(TOPIC) == new.port, "the route to the new master")

    old.start()
    pair.until_role(old, "SLAVE")
    pair.until_same(old, new)
    assert stored(old) == ["a", "b", "c"]
    assert pair.state(old)["brokerId"] == 1
    assert pair.master_in_route(TOPIC) == new.port
    send(new, "d")
    pair.until_same(old, new)


def test_data_only_on_the_old_master_is_saved_and_truncated(pair: BrokerSet) -> None:
    old, new = pair.brokers
    raw_remoting.create_topic(old.port, TOPIC, queues=1)
    send(old, "a")
    end = pair.until_same(old, new)
    new.kill()
    send(old, "lost-1", "lost-2")
    old.kill()
    new.start()
    code, words = promote(new)
    assert code == 0, words
    send(new, "b", "c", "d")

    old.start()

    pair.until_role(old, "SLAVE")
    pair.until_same(old, new)
    assert stored(old) == stored(new) == ["a", "b", "c", "d"]
    (place,) = (old.store / "diverged").iterdir()
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest["from"] == end
    assert manifest["mastersEpochs"] == [{"epoch": 1, "startOffset": end}]
    lines = [json.loads(line) for line in (place / "messages.jsonl").read_text().splitlines()]
    assert [(one["topic"], one["queueOffset"], one["keys"]) for one in lines] == [
        (TOPIC, 1, "lost-1"),
        (TOPIC, 2, "lost-2"),
    ]


def test_a_promotion_is_rejected_while_the_master_is_alive(pair: BrokerSet) -> None:
    old, new = pair.brokers
    raw_remoting.create_topic(old.port, TOPIC, queues=1)
    send(old, "a")
    pair.until_same(old, new)

    code, words = promote(new)

    assert code == 1
    assert "is alive" in words
    assert "(--force)" in words
    assert pair.role(new) == "SLAVE"

    code, words = promote(new, "--force", "--role", "SYNC_MASTER")
    assert code == 0, words
    # The old master notices it, and no longer accepts messages.
    pair.until_role(old, "SLAVE")
    pair.until_same(old, new)
    assert pair.role(new) == "SYNC_MASTER"
    until(lambda: pair.master_in_route(TOPIC) == new.port, "the route to the new master")


def test_a_promotion_survives_a_restart(pair: BrokerSet) -> None:
    old, new = pair.brokers
    raw_remoting.create_topic(old.port, TOPIC, queues=1)
    send(old, "a")
    pair.until_same(old, new)
    old.kill()
    assert promote(new)[0] == 0
    send(new, "b")
    new.kill()

    new.start()

    assert pair.role(new) == "ASYNC_MASTER"
    assert "role differs from the configuration file" in new.words()
    send(new, "c")
    assert stored(new) == ["a", "b", "c"]


def test_a_stopped_slave_is_promoted_in_its_store(pair: BrokerSet) -> None:
    old, new = pair.brokers
    raw_remoting.create_topic(old.port, TOPIC, queues=1)
    send(old, "a")
    pair.until_same(old, new)
    old.kill()
    assert new.stop() == 0

    code, words = promote(new)

    assert code == 0, words
    new.start()
    assert pair.role(new) == "ASYNC_MASTER"
    send(new, "b")
    old.start()
    pair.until_role(old, "SLAVE")
    pair.until_same(old, new)


def test_mastership_can_go_back_and_forth(pair: BrokerSet) -> None:
    one, other = pair.brokers
    raw_remoting.create_topic(one.port, TOPIC, queues=1)
    sent = ["0"]
    send(one, "0")
    for number in range(1, 4):
        pair.until_same(one, other)
        one.kill()
        code, words = promote(other)
        assert code == 0, words
        send(other, str(number))
        sent.append(str(number))
        one.start()
        one, other = other, one
        pair.until_role(other, "SLAVE")

    pair.until_same(one, other)
    assert stored(one) == stored(other) == sent
    assert [epoch["epoch"] for epoch in pair.state(one)["epochs"]] == [1, 2, 3]


@pytest.mark.parametrize("is_in_sync", [False, True])
def test_leases_survive_a_promotion(pair: BrokerSet, *, is_in_sync: bool) -> None:
    """The new master may lack the last leases: it delivers their messages again, without loss."""
    old, new = pair.brokers
    raw_remoting.create_topic(old.port, TOPIC, queues=1)
    send(old, "a", "b", "c", "d", "e")
    with RawClient(old.port) as client:
        popper = Popper(client, "g", TOPIC, NAME)
        done, kept = popper.pop(2, 4_000)
        popper.acknowledge(done)
        pair.until_same(old, new)
        until(lambda: has_offset(new, 2), "the slave to have the group's offset", seconds=60.0)
        until(lambda: knows_topic(new), "the slave to copy the topic", seconds=60.0)
        if not is_in_sync:
            new.kill()
        lost = popper.pop(1)
        if not is_in_sync:
            popper.acknowledge(lost[0])
        else:
            pair.until_same(old, new)
    old.kill()
    if not is_in_sync:
        new.start()

    code, words = promote(new)

    assert code == 0, words
    with RawClient(new.port) as client:
        popper = Popper(client, "g", TOPIC, NAME)
        if is_in_sync:
            popper.acknowledge(lost[0])
        expected = ["b", "d", "e"] if is_in_sync else ["b", "c", "d", "e"]
        found = popper.drain(60.0, len(expected))
        assert sorted(held.body for held in found) == expected
        assert [held.reconsume_times for held in found if held.body == kept.body] == [1]
        assert popper.pop() == []


def knows_topic(broker: BrokerProcess) -> bool:
    topics = broker.store / "config/topics.json"
    return topics.exists() and f'"{TOPIC}"' in topics.read_text()


def has_offset(broker: BrokerProcess, offset: int) -> bool:
    with RawClient(broker.port) as client:
        fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return answer.fields.get("offset") == str(offset)


async def test_half_messages_survive_a_promotion_and_the_new_master_checks_them(
    tmp_path: Path,
) -> None:
    """Unacknowledged or present; delayed ones are delivered, and none of them early."""
    keys = {
        "brokerRole": "SYNC_MASTER",
        "flushDiskType": "SYNC_FLUSH",
        "transactionTimeOut": 500,
        "transactionCheckInterval": 500,
        "messageDelayLevel": "3s 4s",
    }
    with BrokerSet(tmp_path, keys) as pair:
        old, new = pair.brokers
        raw_remoting.create_topic(old.port, TOPIC, queues=1)
        until(lambda: is_acknowledged(old), "the slave to be in sync", seconds=60.0)
        until(lambda: knows_topic(new), "the slave to copy the topic", seconds=60.0)
        producer = Producer(f"127.0.0.1:{old.port}")
        acknowledged: set[str] = set()
        for number in range(6):
            answer = await producer.half(b"half-%d" % number, TOPIC, UNIQ_KEY=f"U{number}")
            if answer.code == raw_remoting.SUCCESS:
                acknowledged.add(f"U{number}")
        sent_ms = time.time_ns() // 1_000_000
        late = await producer.send(TOPIC, b"late", DELAY="1")
        await producer.shutdown()
        old.kill()
        assert len(acknowledged) == 6
        assert late.code == raw_remoting.SUCCESS

        code, words = await asyncio.to_thread(promote, new, "--role", "ASYNC_MASTER")
        assert code == 0, words

        producer = Producer(f"127.0.0.1:{new.port}")
        requests: set[str] = set()
        while requests < acknowledged:
            await producer.join()
            try:
                question = await producer.question()
            except TimeoutError:
                continue  # A round may come before the producer has joined.
            key = question.ext_fields["transactionId"]
            if key not in requests:
                requests.add(key)
                ended = await producer.answer(question, ROLLBACK if key == "U3" else COMMIT)
                assert ended.code == raw_remoting.SUCCESS
        await until_async(lambda: "late" in stored(new), "the delayed message", seconds=60.0)
        found = {one.body: one for one in messages(await producer.pull(TOPIC))}
        await producer.shutdown()
        assert sorted(set(found) - {PROBE}) == [
            b"half-0",
            b"half-1",
            b"half-2",
            b"half-4",
            b"half-5",
            b"late",
        ]
        assert found[b"late"].store_timestamp >= sent_ms + 3_000 - CLOCK_MS


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send_timer(client: RawClient, body: str, due_ms: int) -> str:
    """Send a timer message; return its recall handle."""
    text = f"TIMER_DELIVER_MS\x01{due_ms}\x02UNIQ_KEY\x01{body}"
    fields = raw_remoting.send_fields(TOPIC, properties=text)
    answer = client.ask(raw_remoting.SEND_MESSAGE, fields, body.encode())
    assert answer.code == raw_remoting.SUCCESS, answer
    # A message whose time has passed is delivered at once and gets no handle.
    return answer.fields.get("recallHandle", "")


def test_a_promoted_slave_delivers_pending_timers_once_and_recalled_ones_never(
    pair: BrokerSet,
) -> None:
    old, new = pair.brokers
    raw_remoting.create_topic(old.port, TOPIC, queues=1)
    with RawClient(old.port) as client:
        assert client.ask(25, body=b"recallMessageEnable=true\n").code == raw_remoting.SUCCESS
        for number in range(10):
            send_timer(client, f"early-{number}", now_ms() + 500)
        until(lambda: len(stored(old)) == 10, "the early timers to be delivered")
        due_ms = now_ms() + 8_000
        for number in range(10):
            send_timer(client, f"late-{number}", due_ms + number)
        handle = send_timer(client, "recalled", due_ms)
        answer = client.ask(370, {"topic": TOPIC, "recallHandle": handle})
        assert answer.code == raw_remoting.SUCCESS, answer
    pair.until_same(old, new)
    old.kill()

    code, words = promote(new)

    assert code == 0, words
    # The slave may not have copied the topic from its master yet.
    raw_remoting.create_topic(new.port, TOPIC, queues=1)
    until(lambda: len(stored(new)) >= 20, "the new master to deliver the late timers")
    time.sleep(1)
    expected = {f"early-{n}" for n in range(10)} | {f"late-{n}" for n in range(10)}
    assert sorted(stored(new)) == sorted(expected)
    # The old master becomes a slave and delivers nothing.
    old.start()
    pair.until_role(old, "SLAVE")
    pair.until_same(old, new)
    assert stored(old) == stored(new)
