"""Receipts, with which consumers identify leased messages (POP_CK, "extraInfo").

    startOffset popTimeMs invisibleMs reviveQueue topicKind brokerName queueId queueOffset

Source: remoting/protocol/header/ExtraInfoUtil.java (5.3.3).
"""

from __future__ import annotations

import re
from typing import NamedTuple

ORDERED_QUEUE = 999
"""The revive queue in receipts of ordered groups, which have no checkpoints."""
TOPIC_KIND, RETRY_KIND = "0", "1"
"""Whether a message is in the topic itself or in the group's retry topic for it."""
CHARS_MAX = 512
_NUMBER = re.compile(r"-?[0-9]{1,18}")


class Receipt(NamedTuple):
    """A receipt's fields."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDERED_QUEUE

    def text(self) -> str:
        return " ".join(map(str, self))


def parse_receipt(text: str) -> Receipt:
    """Return a receipt. Fields after the eighth belong to the gRPC protocol.

    Raises:
        ValueError: the text isn't a receipt.
    """
    parts = text.split(" ") if len(text) <= CHARS_MAX else []
    numbers = [*parts[:4], *parts[6:8]]
    if len(parts) < len(Receipt._fields) or not all(map(_NUMBER.fullmatch, numbers)):
        raise ValueError(
            f"{text[:64]!r} is not a receipt: it has eight fields, six of them numbers"
        )
    start, popped, invisible, revive_queue, queue_id, offset = map(int, numbers)
    return Receipt(start, popped, invisible, revive_queue, parts[4], parts[5], queue_id, offset)


def start_offsets(places: list[tuple[str, int, int]]) -> str:
    """Return startOffsetInfo of (kind, queue_id, start offset)."""
    return ";".join(f"{kind} {queue_id} {offset}" for kind, queue_id, offset in places)


def message_offsets(places: list[tuple[str, int, list[int]]]) -> str:
    """Return msgOffsetInfo of (kind, queue_id, offsets)."""
    return ";".join(
        f"{kind} {queue_id} {','.join(map(str, offsets))}" for kind, queue_id, offsets in places
    )


def order_counts(places: list[tuple[str, int, list[int], list[int]]]) -> str:
    """Return orderCountInfo of (kind, queue_id, offsets, previous deliveries of each)."""
    parts = []
    for kind, queue_id, offsets, times in places:
        parts += [
            f"{kind} qo{queue_id}%{offset} {count}"
            for offset, count in zip(offsets, times, strict=True)
            if count
        ]
        parts.append(f"{kind} {queue_id} {min(times)}")
    return ";".join(parts)
