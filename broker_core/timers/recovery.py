"""Find the pending timers when a master starts or a slave is promoted.

The ConsumeQueue unit of a timer contains its due time, so only messages stored by a RocketMQ broker
have to be read from the log. The completion records show which timers are finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError
from broker_core.formats import record
from broker_core.formats.cq_unit import FILLER_SIZE
from broker_core.message.names import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
    RMQ_SYS_TIMER_TOPIC,
    TIMER_COMPLETION_QUEUE_ID,
    TIMER_QUEUE_ID,
)
from broker_core.timers import completions
from broker_core.timers.completions import NO_COPY
from broker_core.timers.pending import PendingTimers, TimerClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.message.message import MessageExt
    from broker_core.timers.checkpoint import Checkpoint
    from broker_core.timers.completions import Completion
    from broker_core.timers.store import ReadStore

UNITS_PER_STEP = 1_024
RECORDS_PER_STEP = 64
HASH_MAX = (1 << 32) - 1
"""A larger tags code is a due time; any other is a hash of tags, which RocketMQ brokers store."""


class CompletionRecords:
    """The completion records of a store. Event loop only."""

    def __init__(self, store: ReadStore) -> None:
        self._store = store
        self.low = store.min_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_COMPLETION_QUEUE_ID)
        self.high = store.max_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_COMPLETION_QUEUE_ID)

    def last(self) -> Completion | None:
        """Return the last readable record, or None."""
        for queue_offset in range(self.high - 1, self.low - 1, -1):
            found = self.at(queue_offset)
            if found is not None:
                return found
        return None

    def at(self, queue_offset: int) -> Completion | None:
        """Return a record, or None if it is damaged."""
        units = self._store.units(RMQ_SYS_TIMER_TOPIC, TIMER_COMPLETION_QUEUE_ID, queue_offset, 1)
        message = None if not units else read_message(self._store, *units[0][:2])
        if message is None:
            return None
        try:
            return completions.decode(message.body)
        except ValueError:
            return None

    def first_after(self, first_offset: int) -> int:
        """Return the first record that can name a timer at or after `first_offset`."""
        low, high = self.low, self.high
        while low < high:
            middle = (low + high) // 2
            found = self.at(middle)
            # Reading a record too many, such as a damaged one, costs only time.
            if found is not None and found.end_offset <= first_offset:
                low = middle + 1
            else:
                high = middle
        return low


class TimerRecovery:
    """Collects the pending timers, one step at a time. Event loop only.

    Attributes:
        first_offset: the queue offset from which timers are read.
        pending: the timers found so far.
        unrecorded: queue offsets of finished timers that no completion record names.
    """

    def __init__(
        self, store: ReadStore, checkpoint: Checkpoint, claim: Callable[[MessageExt], bool]
    ) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._claim = claim
        self._records = CompletionRecords(store)
        last = self._records.last()
        # Without a record, any message may be RocketMQ's: recovery from the log writes due times
        # into the units of these, too.
        self._reads_all = last is None
        low = store.min_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID)
        self.first_offset = low if last is None else max(low, last.first_offset)
        self._next_record = self._records.first_after(self.first_offset)
        end = store.max_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID)
        self._finished = bytearray()
        if self._next_record < self._records.high:
            self._finished = bytearray(max(0, end - self.first_offset))
        self._foreign: dict[tuple[str, str], int] = {}
        """The newest queue offset for each topic and unique key of messages that RocketMQ stored.
        """
        self.pending = PendingTimers(self.first_offset)
        self.unrecorded: list[int] = []

    def step(self) -> bool:
        """Read the next portion; return whether more may follow."""
        if self._next_record < self._records.high:
            self._read_records()
            return True
        return self._read_units() > 0

    def finish(self) -> PendingTimers:
        """Return the pending timers, and free the memory that only the recovery needs."""
        self._finished = bytearray()
        self._foreign = {}
        return self.pending

    def _read_records(self) -> None:
        end = min(self._next_record + RECORDS_PER_STEP, self._records.high)
        for queue_offset in range(self._next_record, end):
            found = self._records.at(queue_offset)
            for each in () if found is None else found.timers:
                at = each.queue_offset - self.first_offset
                # If a power cut lost the copy, the timer is pending again.
                if 0 <= at < len(self._finished) and not self._is_lost(each.copy_offset):
                    self._finished[at] = 1
        self._next_record = end

    def _is_lost(self, copy_offset: int) -> bool:
        return copy_offset != NO_COPY and self._store.is_damaged(copy_offset)

    def _read_units(self) -> int:
        queue_offset = self.pending.next_offset
        count = RECORDS_PER_STEP if self._reads_all else UNITS_PER_STEP
        units = self._store.units(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, queue_offset, count)
        left = RECORDS_PER_STEP
        for commit_log_offset, size, code in units:
            if left == 0:
                break
            at = queue_offset - self.first_offset
            is_finished = at < len(self._finished) and self._finished[at]
            if is_finished or size == FILLER_SIZE:
                self.pending.skip(1)
            elif code > HASH_MAX and self._checkpoint.covers(queue_offset, code):
                self._skip(queue_offset)
            elif code > HASH_MAX and not self._reads_all:
                self.pending.add(queue_offset, code, TimerClock.WALL)
            else:
                left -= 1
                message = read_message(self._store, commit_log_offset, size)
                if code <= HASH_MAX:
                    self._add_foreign(queue_offset, message)
                elif message is not None and self._claim(message):
                    self._skip(queue_offset)
                else:
                    self.pending.add(queue_offset, code, TimerClock.WALL)
            queue_offset += 1
        return len(units)

    def _add_foreign(self, queue_offset: int, message: MessageExt | None) -> None:
        """Add a message of a RocketMQ broker, which rolls and deletes messages differently."""
        due_ms = None if message is None else due_ms_of(message.properties)
        if message is None or due_ms is None or self._checkpoint.covers(queue_offset, due_ms):
            self._skip(queue_offset)
            return
        if self._claim(message):
            self._skip(queue_offset)
            return
        properties = message.properties
        deleted = properties.get(PROPERTY_TIMER_DEL_UNIQKEY)
        if deleted is not None:
            topic, _, uniq_key = deleted.partition("+")
            self._drop(self._foreign.pop((topic, uniq_key), None))
            self._skip(queue_offset)
            return
        key = properties.get(PROPERTY_REAL_TOPIC, ""), message.uniq_key or ""
        if key[1]:
            # RocketMQ rolled the message: the later copy replaces the earlier one.
            self._drop(self._foreign.get(key))
            self._foreign[key] = queue_offset
        self.pending.add(queue_offset, due_ms, TimerClock.WALL)

    def _skip(self, queue_offset: int) -> None:
        self.pending.skip(1)
        self.unrecorded.append(queue_offset)

    def _drop(self, queue_offset: int | None) -> None:
        if queue_offset is not None and self.pending.remove(queue_offset):
            self.unrecorded.append(queue_offset)


def may_be_foreign(store: ReadStore) -> bool:
    """Return whether RocketMQ may have stored pending timers: a cheap check before a recovery."""
    low = store.min_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID)
    end = store.max_offset_in_queue(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID)
    if low >= end:
        return False
    units = store.units(RMQ_SYS_TIMER_TOPIC, TIMER_QUEUE_ID, end - 1, 1)
    is_hash = bool(units) and units[0][2] <= HASH_MAX
    return is_hash or CompletionRecords(store).last() is None


def read_message(store: ReadStore, commit_log_offset: int, size: int) -> MessageExt | None:
    """Return the message that a unit refers to, or None if it is missing or damaged."""
    view = None if size == FILLER_SIZE else store.look_message(commit_log_offset)
    if view is None:
        return None
    try:
        return record.decode(view)
    except CorruptRecordError:
        return None


def due_ms_of(properties: Mapping[str, str]) -> int | None:
    """Return a pending message's due time, or None if its properties don't contain a due time."""
    text = properties.get(PROPERTY_TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else None
