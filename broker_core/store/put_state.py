"""The put state: where the next record goes, and counters of puts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap


class PutState:
    """Plain fields, shared by the put paths and the code that makes room for them.

    The CommitLog sets the first four when it rolls or reserves; `MessagePut` packs into `buffer` at
    `position` and moves `position` past each record. A put path that isn't written in Python needs
    only this and the ConsumeQueue's fields of the same names. Event loop only.

    Attributes:
        buffer: the mapping, or the pool's buffer, into which records are packed.
        file_from_offset: the log offset where the file of `buffer` begins.
        position: where the next record goes, in that file.
        limit: records fit up to here without `CommitLog.make_room`; -1 before the first.
        slow_at: a put that ends after this time of the monotonic clock is slow; see PutWatch.
        store_timestamp: of the last message put, in milliseconds since the epoch.
        is_writable: whether puts are accepted; `Availability` decides.
        put_times, put_bytes: messages and record bytes put since the start.
        put_failed_times: puts that were refused.
        is_timed: whether puts record the two times below.
        appended_at, dispatched_at: when the last record was in the log, and when it was also in its
            queue and the index; by the monotonic clock.
    """

    __slots__ = (
        "appended_at",
        "buffer",
        "dispatched_at",
        "file_from_offset",
        "is_timed",
        "is_writable",
        "limit",
        "position",
        "put_bytes",
        "put_failed_times",
        "put_times",
        "slow_at",
        "store_timestamp",
    )

    def __init__(self) -> None:
        self.buffer: mmap.mmap | bytearray = bytearray()
        self.file_from_offset = 0
        self.position = 0
        self.limit = -1
        self.slow_at = math.inf
        self.store_timestamp = 0
        self.is_writable = False
        self.put_times = 0
        self.put_bytes = 0
        self.put_failed_times = 0
        self.is_timed = False
        self.appended_at = 0.0
        self.dispatched_at = 0.0
