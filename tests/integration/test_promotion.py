"""A slave that becomes master, and a master that comes back: whole processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_set import BrokerSet, promote
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

TOPIC = "T"


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


def test_what_the_old_master_had_alone_is_saved_and_cut(pair: BrokerSet) -> None:
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


def test_a_promotion_is_refused_while_the_master_lives(pair: BrokerSet) -> None:
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
    # The old master learns of it by itself, and takes nothing any more.
    pair.until_role(old, "SLAVE")
    pair.until_same(old, new)
    assert pair.role(new) == "SYNC_MASTER"
    until(lambda: pair.master_in_route(TOPIC) == new.port, "the route to the new master")


def test_a_promotion_lasts_over_a_restart(pair: BrokerSet) -> None:
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
    assert "though its file says brokerRole=SLAVE" in new.words()
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


def test_mastership_goes_back_and_forth(pair: BrokerSet) -> None:
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
