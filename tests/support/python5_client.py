"""Steps of RocketMQ 5's Python client, as a program: `python5_client.py STEPS HOST:PORT [tls]`.

Prints a JSON line for each outcome. It's a separate process because the client leaves threads
behind.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 60
IS_TLS = sys.argv[3:] == ["tls"]
WAIT_S = 15
"""How long a received message stays invisible."""


def report(**outcome: Any) -> None:
    sys.stdout.write(json.dumps(outcome) + "\n")
    sys.stdout.flush()


def message_for(topic: str, body: bytes, **more: Any) -> Message:
    message = Message()
    message.topic, message.body = topic, body
    for name, value in more.items():
        setattr(message, name, value)
    return message


def consumer_of(conf: Any, group: str, topic: str, expression: str = "*") -> SimpleConsumer:
    consumer = SimpleConsumer(
        conf, group, {topic: FilterExpression(expression)}, 5, tls_enable=IS_TLS
    )
    consumer.startup()
    return consumer


def producer_of(conf: Any, topic: str, checker: Any = None) -> Producer:
    producer = Producer(conf, (topic,), checker, tls_enable=IS_TLS)
    producer.startup()
    return producer


def received(consumer: SimpleConsumer, count: int, patience_s: float = PATIENCE_S) -> list[Any]:
    end = time.monotonic() + patience_s
    found: list[Any] = []
    while len(found) < count and time.monotonic() < end:
        found += consumer.receive(32, WAIT_S) or []
    return found


def send(conf: Any) -> None:
    producer = producer_of(conf, "plain")
    sent = message_for("plain", b"hello", tag="A", keys="k1")
    sent.add_property("colour", "red")
    report(message_id=producer.send(sent).message_id)
    producer.shutdown()


def simple(conf: Any) -> None:
    consumer = consumer_of(conf, "simple", "plain", "A || B")
    producer = producer_of(conf, "plain")
    for tag in "ABC":
        producer.send(message_for("plain", tag.encode(), tag=tag))
    found = received(consumer, 2)
    report(bodies=sorted(each.body.decode() for each in found))
    report(attempts=[each.delivery_attempt for each in found])
    consumer.change_invisible_duration(found[0], 1)
    (again,) = received(consumer, 1)
    report(again=again.body == found[0].body, attempt=again.delivery_attempt)
    for each in (again, found[1]):
        consumer.ack(each)
    report(left=len(received(consumer, 1, 1)))
    consumer.shutdown()
    producer.shutdown()


def fifo(conf: Any) -> None:
    producer = producer_of(conf, "ordered")
    for number in range(6):
        group = f"group-{number % 2}"
        producer.send(message_for("ordered", b"%d" % number, message_group=group))
    consumer = consumer_of(conf, "ordered_group", "ordered")
    by_group: dict[str, list[str]] = {}
    count = 0
    while count < 6:
        found = received(consumer, 1)
        count += len(found)
        for each in found:
            by_group.setdefault(each.message_group, []).append(each.body.decode())
            consumer.ack(each)
    report(by_group=by_group)
    consumer.shutdown()
    producer.shutdown()


class _Commits(TransactionChecker):  # type: ignore[misc]
    def check(self, message: Message) -> Any:
        report(checked=message.body.decode())
        return TransactionResolution.COMMIT


def transaction(conf: Any) -> None:
    producer = producer_of(conf, "halves", _Commits())
    consumer = consumer_of(conf, "halves_group", "halves")
    for body in (b"committed", b"rolled back", b"forgotten"):
        begun = producer.begin_transaction()
        producer.send(message_for("halves", body), begun)
        if body == b"committed":
            begun.commit()
        elif body == b"rolled back":
            begun.rollback()
    found = received(consumer, 2)
    for each in found:
        consumer.ack(each)
    report(bodies=sorted(each.body.decode() for each in found))
    consumer.shutdown()
    producer.shutdown()


class _FailsOnce(MessageListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.succeeded = threading.Event()

    def consume(self, message: Message) -> Any:
        report(consumed=message.body.decode(), attempt=message.delivery_attempt)
        if message.delivery_attempt == 1:
            return ConsumeResult.FAILURE
        self.succeeded.set()
        return ConsumeResult.SUCCESS


def push(conf: Any) -> None:
    listener = _FailsOnce()
    consumer = PushConsumer(conf, "pushed", listener, {"plain": FilterExpression("*")})
    consumer.startup()
    producer = producer_of(conf, "plain")
    producer.send(message_for("plain", b"retried"))
    listener.succeeded.wait(PATIENCE_S)
    consumer.shutdown()
    producer.shutdown()


def delay(conf: Any) -> None:
    producer = producer_of(conf, "delayed")
    due = int(datetime.now(UTC).timestamp()) + 3
    producer.send(message_for("delayed", b"delivered", delivery_timestamp=due))
    recalled = producer.send(message_for("delayed", b"recalled", delivery_timestamp=due))
    answer = producer.recall_message("delayed", recalled.recall_handle)
    report(recalled=bool(answer))
    time.sleep(4)
    producer.shutdown()


STEPS: dict[str, Callable[[Any], None]] = {
    each.__name__: each for each in (send, simple, fifo, transaction, push, delay)
}

if __name__ == "__main__":
    configuration = ClientConfiguration(sys.argv[2], Credentials())
    STEPS[sys.argv[1]](configuration)
