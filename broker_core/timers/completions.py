"""Completion records: which timers the broker delivered, recalled or moved.

The broker appends a record to queue 1 of rmq_sys_wheel_timer after the copies that it delivers in
one turn. The log, including a slave's, keeps this order, so after a kill or a promotion every
completion record still has its copies. A power cut can lose a copy and keep the record, because any
part of the unflushed log may be lost. Each record therefore names its copies, and at startup the
broker checks whether they are damaged. A record also contains the lowest queue offset that a
startup must read: every timer before it is finished, and its copy is flushed.

Body, big-endian: version (1 byte), that queue offset (8), the end of the timer queue at the time of
writing (8), then for each timer its queue offset (8) and the log offset of its copy (8; -1 for a
recalled timer, which has no copy).
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
NO_COPY = -1
_HEAD = struct.Struct(">BQQ")
_TIMER_SIZE = 16
TIMERS_MAX = 2_048


class FinishedTimer(NamedTuple):
    """A timer that is no longer pending."""

    queue_offset: int
    copy_offset: int = NO_COPY
    """The log offset of its copy."""


class Completion(NamedTuple):
    """The content of one record."""

    first_offset: int
    """Every timer before this queue offset is finished and need not be read again."""
    end_offset: int
    """The record names only timers before this queue offset; later records have a later one."""
    timers: tuple[FinishedTimer, ...]


def encode(completion: Completion) -> bytes:
    """Return the body of a record."""
    numbers = struct.Struct(f">{2 * len(completion.timers)}q")
    head = _HEAD.pack(VERSION, completion.first_offset, completion.end_offset)
    return head + numbers.pack(*chain.from_iterable(completion.timers))


def decode(body: bytes | memoryview) -> Completion:
    """Return the content of a record.

    Raises:
        ValueError: the body isn't a completion record.
    """
    try:
        version, first, end = _HEAD.unpack_from(body)
    except struct.error as error:
        raise ValueError(str(error)) from error
    count, rest = divmod(len(body) - _HEAD.size, _TIMER_SIZE)
    if version != VERSION or rest or first > end:
        raise ValueError("not a completion record")
    numbers = struct.Struct(f">{2 * count}q").unpack_from(body, _HEAD.size)
    timers = map(FinishedTimer._make, zip(numbers[::2], numbers[1::2], strict=True))
    return Completion(first, end, tuple(timers))


def batches(timers: Sequence[FinishedTimer]) -> list[Sequence[FinishedTimer]]:
    """Split timers into batches that each fit into one record."""
    return [timers[start : start + TIMERS_MAX] for start in range(0, len(timers), TIMERS_MAX)]
