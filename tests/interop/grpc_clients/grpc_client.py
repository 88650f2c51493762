"""Steps of the gRPC Python client: grpc_client.py HOST:PORT cleartext|tls KEY SECRET STEP..."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
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
from rocketmq.grpc_protocol import FilterType
from rocketmq.v5.exception import ClientException, InternalErrorException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ENDPOINTS, SECURITY, ACCESS_KEY, SECRET, *NAMES = sys.argv[1:]
IS_TLS = SECURITY == "tls"
PATIENCE_S = 60
INVISIBLE_S = 60


def configuration(secret: str = SECRET) -> Any:
    return ClientConfiguration(ENDPOINTS, Credentials(ACCESS_KEY, secret))


def listed(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


def text(message: Any) -> str:
    return message.body.decode()  # type: ignore[no-any-return]


@contextmanager
def producing(topic: str, checker: Any = None, secret: str = SECRET) -> Iterator[Any]:
    producer = Producer(configuration(secret), (topic,), checker, tls_enable=IS_TLS)
    producer.startup()
    try:
        yield producer
    finally:
        producer.shutdown()


@contextmanager
def consuming(topic: str, expression: Any = None) -> Iterator[Any]:
    subscriptions = {topic: expression or FilterExpression()}
    consumer = SimpleConsumer(
        configuration(), f"{topic}-group", subscriptions, 5, tls_enable=IS_TLS
    )
    consumer.startup()
    try:
        yield consumer
    finally:
        consumer.shutdown()


def message_for(topic: str, body: str, **more: Any) -> Any:
    message = Message()
    message.topic, message.body = topic, body.encode()
    for name, value in more.items():
        setattr(message, name, value)
    return message


def receive(consumer: Any, count: int) -> list[Any]:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            found = consumer.receive(count, INVISIBLE_S)
        except InternalErrorException:
            # The real proxy fails on a receive that arrives before the client's settings.
            time.sleep(0.2)
            continue
        if found:
            return list(found)
    raise TimeoutError(f"no message within {PATIENCE_S} s")


def acknowledged(consumer: Any, count: int) -> list[str]:
    bodies: list[str] = []
    while len(bodies) < count:
        for each in receive(consumer, 32):
            bodies.append(text(each))
            consumer.ack(each)
    return bodies


def send_and_receive(topic: str) -> str:
    with producing(topic) as producer:
        message = message_for(topic, "hello", tag="A")
        message.keys = "k1"
        message.keys = "k2"
        message.add_property("colour", "red")
        producer.send(message)
    with consuming(topic) as consumer:
        (got,) = receive(consumer, 1)
        consumer.ack(got)
        properties = ", ".join(f"{key}={value}" for key, value in sorted(got.properties.items()))
        return (
            f"{text(got)} {got.tag} {listed(sorted(got.keys))} {{{properties}}} "
            f"attempt {got.delivery_attempt}"
        )


def send() -> str:
    return send_and_receive("python-send")


def filtered(topic: str, expression: Any) -> str:
    with producing(topic) as producer, consuming(topic, expression) as consumer:
        for number, tag in enumerate("ABCD", 1):
            message = message_for(topic, tag, tag=tag)
            message.add_property("number", str(number))
            producer.send(message)
        return listed(sorted(acknowledged(consumer, 2)))


def tags() -> str:
    return filtered("python-tags", FilterExpression("A || B"))


def sql92() -> str:
    expression = FilterExpression("number >= 2 AND TAGS <> 'D'", FilterType.SQL)
    return filtered("python-sql92", expression)


def fifo() -> str:
    topic = "python-fifo"
    with producing(topic) as producer:
        for number in range(6):
            producer.send(message_for(topic, str(number), message_group=f"g{number % 2}"))
    groups: dict[str, list[str]] = {}
    with consuming(topic) as consumer:
        for _ in range(6):
            (got,) = receive(consumer, 1)
            groups.setdefault(got.message_group, []).append(text(got))
            consumer.ack(got)
    return "{" + ", ".join(f"{name}={listed(each)}" for name, each in sorted(groups.items())) + "}"


def delay() -> str:
    topic = "python-delay"
    with producing(topic) as producer, consuming(topic) as consumer:
        due = int(datetime.now(UTC).timestamp()) + 5
        recalled = producer.send(message_for(topic, "recalled", delivery_timestamp=due))
        producer.send(message_for(topic, "delivered", delivery_timestamp=due))
        is_same = producer.recall_message(topic, recalled.recall_handle) == recalled.message_id
        bodies = acknowledged(consumer, 1)
        when = "early" if datetime.now(UTC).timestamp() < due - 1 else "in time"
    same = str(is_same).lower()
    return f"{listed(bodies)} {when}, the recalled message has the same ID: {same}"


class _Commits(TransactionChecker):  # type: ignore[misc]
    def __init__(self) -> None:
        self.checked: list[str] = []

    def check(self, message: Any) -> Any:
        self.checked.append(text(message))
        return TransactionResolution.COMMIT


def transaction() -> str:
    topic = "python-half"
    checker = _Commits()
    with producing(topic, checker) as producer, consuming(topic) as consumer:
        for body in ("committed", "rolled back", "forgotten"):
            begun = producer.begin_transaction()
            producer.send(message_for(topic, body), begun)
            if body == "committed":
                begun.commit()
            elif body == "rolled back":
                begun.rollback()
        bodies = acknowledged(consumer, 2)
    return f"{listed(sorted(bodies))} checked {listed(checker.checked)}"


def invisible() -> str:
    topic = "python-invisible"
    with producing(topic) as producer, consuming(topic) as consumer:
        producer.send(message_for(topic, "postponed"))
        (first,) = receive(consumer, 1)
        consumer.change_invisible_duration(first, 1)
        (again,) = receive(consumer, 1)
        consumer.ack(again)
        return f"{text(again)} attempts {first.delivery_attempt}, {again.delivery_attempt}"


class _Listener(MessageListener):  # type: ignore[misc]
    """Collects `count` calls; the calls decide which messages succeed."""

    def __init__(self, count: int, succeeds: Callable[[Any, int], bool]) -> None:
        self.calls: list[str] = []
        self.finished = threading.Event()
        self._count = count
        self._succeeds = succeeds

    def consume(self, message: Any) -> Any:
        self.calls.append(f"{text(message)} attempt {message.delivery_attempt}")
        times = sum(call.startswith(text(message)) for call in self.calls)
        is_success = self._succeeds(message, times)
        if len(self.calls) >= self._count:
            self.finished.set()
        return ConsumeResult.SUCCESS if is_success else ConsumeResult.FAILURE


def pushed(topic: str, group: str, count: int, succeeds: Callable[[Any, int], bool]) -> str:
    """Send one message, or two of a message group, and consume until `count` calls are made."""
    with producing(topic) as producer:
        for body in ("first", "second") if group else ("first",):
            producer.send(message_for(topic, body, **({"message_group": group} if group else {})))
    listener = _Listener(count, succeeds)
    consumer = PushConsumer(
        configuration(),
        f"{topic}-group",
        listener,
        {topic: FilterExpression()},
        tls_enable=IS_TLS,
    )
    consumer.startup()
    listener.finished.wait(PATIENCE_S)
    # The client acknowledges the last message, or moves it to the dead letters, after the call.
    time.sleep(1)
    consumer.shutdown()
    return listed(listener.calls)


def push() -> str:
    return pushed("python-push", "", 2, lambda _, times: times > 1)


def fifo_push() -> str:
    return pushed(
        "python-fifo-push", "g", 3, lambda each, times: text(each) != "first" or times > 1
    )


def dead_letter() -> str:
    return pushed("python-dead", "g", 3, lambda each, _: text(each) != "first")


def tls() -> str:
    return send_and_receive("python-tls")


def wrong_secret() -> str:
    try:
        with producing("python-tls", secret="wrong secret") as producer:
            producer.send(message_for("python-tls", "hello"))
    except ClientException as error:
        return f"{type(error).__name__} {error.code}"
    except Exception as error:  # noqa: BLE001  the client hides the broker's code at its start
        return f"{type(error).__name__}: {error}"
    return "sent"


STEPS: dict[str, Callable[[], str]] = {
    "send": send,
    "tags": tags,
    "sql92": sql92,
    "fifo": fifo,
    "delay": delay,
    "transaction": transaction,
    "invisible": invisible,
    "push": push,
    "fifo push": fifo_push,
    "dead letter": dead_letter,
    "tls": tls,
    "wrong secret": wrong_secret,
}


def main() -> None:
    for name in NAMES:
        try:
            outcome = STEPS[name]()
        except Exception as error:  # noqa: BLE001  reported as the outcome
            outcome = f"broke off: {type(error).__name__}: {error}"
        sys.stdout.write(f"OUTCOME {name}: {' '.join(outcome.split(chr(10)))}\n")
        sys.stdout.flush()
    # The client leaves threads behind.
    os._exit(0)


if __name__ == "__main__":
    main()
