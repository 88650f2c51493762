"""The half message: sent, withheld from consumers, and not decided yet.

A half message is an ordinary record in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC; its properties contain
its destination topic and queue. A check puts a copy at the queue's end, with an incremented check
count: the original and its copies are one transaction and have the same key.

Source: broker/transaction/queue/TransactionalMessageBridge.java (4.9.7).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from broker_core.message import names
from broker_core.message.ids import parse_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.message.message import MessageExt

HALF_QUEUE_ID = 0
KEY_BYTES = 16
COUNT_MAX = 1_000_000_000
"""A property with a larger number is ignored."""


class Outcome(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


@dataclass(slots=True, eq=False)
class Half:
    """An undecided transaction: the last copy of its half message."""

    key: bytes
    queue_offset: int
    commit_log_offset: int
    uniq_key: str
    since_ms: int
    """When the transaction began, in steady time."""
    stored_ms: int
    """When this copy was put, in steady time."""
    check_times: int
    immunity_ms: int | None
    """How long it isn't checked; None means transactionTimeOut."""
    is_copy: bool = False
    """Whether the transaction has earlier half messages."""
    outcome: Outcome | None = None
    """The outcome, while its op message isn't written yet."""


class PlainHalf(NamedTuple):
    """A half message put by the native turn."""

    queue_offset: int
    commit_log_offset: int
    producer_group: str
    uniq_key: str
    topic: str
    queue_id: int
    born_timestamp: int
    body_crc: int
    body_size: int
    immunity: str | None
    """The property as the producer wrote it."""


def withhold(properties: dict[str, str], topic: str, queue_id: int) -> tuple[str, int]:
    """Return where to put a half message, after adding its destination to its properties.

    A delay is dropped, as clients drop it: a half message is never deferred as well.
    """
    properties.pop(names.PROPERTY_DELAY_TIME_LEVEL, None)
    properties[names.PROPERTY_REAL_TOPIC] = topic
    properties[names.PROPERTY_REAL_QUEUE_ID] = str(queue_id)
    return names.RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID


def key_of(
    properties: Mapping[str, str], body: bytes | memoryview, born_timestamp: int, born_host: bytes
) -> bytes:
    """Return the key that the original, its copies and the committed message share."""
    get = properties.get
    place = (get(names.PROPERTY_REAL_TOPIC, ""), get(names.PROPERTY_REAL_QUEUE_ID, ""))
    return _digest(
        (get(names.PROPERTY_PRODUCER_GROUP, ""), get(names.PROPERTY_UNIQ_KEY, ""), *place),
        f"{born_timestamp} {crc32(body)} {len(body)} ",
        born_host,
    )


def key_of_plain(half: PlainHalf, born_host: bytes) -> bytes:
    """Return the key of a half message put by the native turn."""
    return _digest(
        (half.producer_group, half.uniq_key, half.topic, str(half.queue_id)),
        f"{half.born_timestamp} {half.body_crc} {half.body_size} ",
        born_host,
    )


def _digest(names_and_place: tuple[str, ...], rest: str, born_host: bytes) -> bytes:
    text = "\x02".join((*names_and_place, rest))
    return hashlib.blake2b(text.encode() + born_host, digest_size=KEY_BYTES).digest()


def key_of_message(message: MessageExt) -> bytes:
    """Return the key of a stored message."""
    return key_of(
        message.properties, message.body, message.born_timestamp, parse_host(message.born_host)
    )


def real_place(message: MessageExt) -> tuple[str, int] | None:
    """Return the destination topic and queue_id of a half message, or None."""
    topic = message.properties.get(names.PROPERTY_REAL_TOPIC)
    queue_id = _count(message.properties.get(names.PROPERTY_REAL_QUEUE_ID))
    return None if topic is None or queue_id is None else (topic, queue_id)


def is_copy(properties: Mapping[str, str]) -> bool:
    """Return whether a broker put this half message to replace an earlier one."""
    return (
        names.PROPERTY_TRANSACTION_CHECK_TIMES in properties
        or names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET in properties
    )


def check_times(properties: Mapping[str, str]) -> int:
    """Return how often the producer was asked."""
    return _count(properties.get(names.PROPERTY_TRANSACTION_CHECK_TIMES)) or 0


def immunity_ms(properties: Mapping[str, str]) -> int | None:
    """Return how long the producer must not be asked, or None if it didn't set a time."""
    return immunity_ms_of(properties.get(names.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS))


def immunity_ms_of(text: str | None) -> int | None:
    """Return the value of the property."""
    seconds = _count(text)
    return None if seconds is None else seconds * 1000


def _count(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    number = int(text)
    return number if number <= COUNT_MAX else None
