"""The op message: it marks the half message at a queue offset as decided.

The body is the queue offset in decimal digits; 5.x writes several in one message, each followed by
a comma. TAGS is "d". The queue_id is the half message's.

Source: broker/transaction/queue/TransactionalMessageBridge.java addRemoveTagInTransactionOp
(4.9.7), TransactionalOpBatchService.java (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from broker_core.message import names, properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.message.message import MessageExt

REMOVE_TAG = "d"
_PROPERTIES = {names.PROPERTY_WAIT_STORE_MSG_OK: "true", names.PROPERTY_TAGS: REMOVE_TAG}
PROPERTIES_TEXT = properties.encode(_PROPERTIES)


class PlainCommits(NamedTuple):
    """The parts of this package that the native turn needs for plain commits."""

    half_topic: bytes
    op_topic: str
    op_properties: bytes
    op_tag: bytes
    steady_ms: Callable[[], int]
    """Return the born time of an op message."""

    @classmethod
    def of(cls, steady_ms: Callable[[], int]) -> Self:
        return cls(
            names.RMQ_SYS_TRANS_HALF_TOPIC.encode(),
            names.RMQ_SYS_TRANS_OP_HALF_TOPIC,
            PROPERTIES_TEXT.encode(),
            REMOVE_TAG.encode(),
            steady_ms,
        )


def is_key(uniq_key: str) -> bool:
    """Return whether this can be an op message's only key."""
    return bool(uniq_key) and names.KEY_SEPARATOR not in uniq_key


def body_of(half_queue_offset: int) -> bytes:
    return b"%d" % half_queue_offset


def properties_text(keys: str | None) -> str:
    """Return the properties; keys add the message to the index."""
    if keys is None:
        return PROPERTIES_TEXT
    return properties.encode({**_PROPERTIES, names.PROPERTY_KEYS: keys})


def half_queue_offsets(message: MessageExt) -> list[int]:
    """Return the queue offsets that a message lists; empty if it isn't an op message."""
    if message.tags != REMOVE_TAG:
        return []
    parts = [part for part in message.body.split(b",") if part]
    if not all(part.isdigit() and len(part) <= 19 for part in parts):
        return []
    return [int(part) for part in parts]
