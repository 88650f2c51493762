"""Acknowledgement: decides when a put counts, and answers its sender.

With ASYNC_FLUSH a put counts at once. With SYNC_FLUSH it counts when the log is durable up to its
end. A SYNC_MASTER waits besides until inSyncReplicas brokers, itself included, have it. This module
alone knows that; everybody else asks `waits`, or waits for a future that gives a PutMessageStatus.

Source: store/CommitLog.java submitFlushRequest, submitReplicaRequest (4.9.8).
Differs: a slave that has gone no longer vouches for what it had.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from broker_core.clock import Clock, Timer
    from broker_core.config.store import StoreConfig
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.results import PutBatchResult, PutMessageResult

AnswerOf = Callable[[PutMessageStatus], Any]
Wait = tuple[int, float, asyncio.Future[Any], AnswerOf | None]
"""Up to which offset, until when, who waits, and what makes the answer from the status."""


NOBODY = -1


class Ending(Enum):
    """How the wait for an acknowledgement ends."""

    KEPT = "kept"
    FLUSH_IS_LATE = "flush is late"
    FLUSH_FAILED = "flush failed"
    SLAVE_IS_LATE = "slave is late"
    NO_SLAVE = "no slave"


OUTCOMES = {
    Ending.KEPT: PutMessageStatus.PUT_OK,
    # The message is stored; the disk is slow.
    Ending.FLUSH_IS_LATE: PutMessageStatus.FLUSH_DISK_TIMEOUT,
    Ending.FLUSH_FAILED: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    Ending.SLAVE_IS_LATE: PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    Ending.NO_SLAVE: PutMessageStatus.SLAVE_NOT_AVAILABLE,
}
"""The sender's status for each ending."""


def counts_when_flushed(config: StoreConfig) -> bool:
    """Return whether a put counts, and may be read, only after its flush."""
    return config.flush_disk_type == "SYNC_FLUSH"


class ReplicaTerms(Protocol):
    """What a SYNC_MASTER waits for."""

    @property
    def slaves(self) -> int:
        """How many slaves must have a message."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long a sender waits for them."""
        ...

    @property
    def fall_behind_max(self) -> int:
        """A slave that lacks more bytes than this is not waited for."""
        ...


class Acknowledgement:
    """Queues of waits, in the order of their offsets. Event loop only.

    Attributes:
        waits: whether a put may have to wait under the flush mode and the role in force.
        is_flush_awaited: whether a put counts only after its flush.
        on_promised: called when `promised_where` has moved.
        promised_where: up to here senders have been answered. A SYNC_MASTER shows nothing behind.
        replicated_where: up to here enough slaves have the log, -1 while there are too few.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        flush_up_to: Callable[[int], None],
    ) -> None:
        self.is_flush_awaited = counts_when_flushed(config)
        self.waits = self.is_flush_awaited
        self.on_promised: Callable[[], None] = _nothing
        self.promised_where = 0
        self.replicated_where = NOBODY
        self._config = config
        self._clock = clock
        self._log = commit_log
        self._flush_up_to = flush_up_to
        self._has_failed = False
        self._terms: ReplicaTerms | None = None
        self._for_flush = _Waits(clock, self._flush_is_late)
        self._for_slaves = _Waits(clock, self._slave_is_late)
        self._turn_ends = False
        self._unpromised: Timer | None = None

    @property
    def is_replicating(self) -> bool:
        """Whether puts wait for slaves."""
        return self._terms is not None

    @property
    def acknowledged_where(self) -> int:
        """Every put that ends at or before this offset of the log counts."""
        where = self._log.flushed_where if self.is_flush_awaited else self._log.max_offset
        return where if self._terms is None else min(where, self.promised_where)

    def replicate(self, terms: ReplicaTerms | None) -> None:
        """Wait for slaves from here on; None: for none."""
        self._terms = terms
        self.waits = self.is_flush_awaited or terms is not None
        self.promised_where = self._log.max_offset
        self.replicated_where = NOBODY
        if terms is None:
            self._for_slaves.end_all(Ending.NO_SLAVE)
            self._end_period()

    def until_acknowledged(
        self, result: PutMessageResult | PutBatchResult, answer_of: AnswerOf | None = None
    ) -> asyncio.Future[Any] | None:
        """Return a future that is done when a put counts, or is known not to.

        None when there is nothing to wait for. The future gives the PutMessageStatus, or what
        answer_of makes of it, which spares the caller a coroutine for each put.
        """
        if not self.waits or result.commit_log_offset < 0:
            return None
        end = result.commit_log_offset + result.wrote_size
        terms = self._terms
        if terms is not None and end > self.replicated_where and terms.slaves > 0:
            return self._until_replicated(end, terms, answer_of)
        if not self.is_flush_awaited or end <= self._log.flushed_where:
            return None
        return self.until_flushed(end, answer_of)

    def until_flushed(
        self, commit_log_offset: int, answer_of: AnswerOf | None = None
    ) -> asyncio.Future[Any]:
        """Flush the log up to an offset, whatever the flush mode; return as `until_acknowledged`.

        FLUSH_DISK_TIMEOUT after syncFlushTimeout.
        """
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._has_failed:
            _tell(waiter, answer_of, Ending.FLUSH_FAILED)
            return waiter
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout / 1000
        self._for_flush.add((commit_log_offset, deadline, waiter, answer_of))
        self._flush_up_to(commit_log_offset)
        return waiter

    def flushed(self) -> None:
        """End the waits for what is durable by now."""
        self._for_flush.end_up_to(self._log.flushed_where, Ending.KEPT)

    def replicated(self, commit_log_offset: int) -> None:
        """Take note up to where enough slaves have the log; -1 while there are too few."""
        self.replicated_where = commit_log_offset
        if self._terms is None:
            return
        for wait in self._for_slaves.take_up_to(commit_log_offset):
            self._when_flushed(wait)
        self._promise()

    def note_put(self) -> None:
        """Promise what nobody waits for, after what the loop does now."""
        if not self._turn_ends:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def fail(self) -> None:
        """End all waits, those to come as well: nothing gets durable any more."""
        self._has_failed = True
        self._for_flush.end_all(Ending.FLUSH_FAILED)
        self._for_slaves.end_all(Ending.FLUSH_FAILED)

    def close(self) -> None:
        """Stop the clock of the waits."""
        self._for_flush.close()
        self._for_slaves.close()
        self._end_period()

    def _until_replicated(
        self, end: int, terms: ReplicaTerms, answer_of: AnswerOf | None
    ) -> asyncio.Future[Any]:
        if self._has_failed:
            return self.until_flushed(end, answer_of)
        if not self._has_slaves(terms):
            told = _as_no_slave(answer_of)
            if self.is_flush_awaited and end > self._log.flushed_where:
                return self.until_flushed(end, told)
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            _tell(done, told, Ending.KEPT)
            return done
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        deadline = self._clock.monotonic() + terms.timeout_s
        self._for_slaves.add((end, deadline, waiter, answer_of))
        if self.is_flush_awaited:
            self._flush_up_to(end)
        return waiter

    def _has_slaves(self, terms: ReplicaTerms) -> bool:
        """Return whether enough slaves are connected and not too far behind."""
        where = self.replicated_where
        return where >= 0 and self._log.max_offset - where < terms.fall_behind_max

    def _when_flushed(self, wait: Wait) -> None:
        """End the wait of a put that the slaves have, when it is durable here, too."""
        end, _, waiter, answer_of = wait
        if not self.is_flush_awaited or end <= self._log.flushed_where:
            _tell(waiter, answer_of, Ending.KEPT)
            return
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout / 1000
        self._for_flush.add((end, deadline, waiter, answer_of))

    def _slave_is_late(self, wait: Wait) -> None:
        end, _, waiter, answer_of = wait
        _tell(waiter, answer_of, Ending.SLAVE_IS_LATE)
        # So was whatever lies before it.
        self._raise_promise(end)

    def _flush_is_late(self, wait: Wait) -> None:
        _, _, waiter, answer_of = wait
        _tell(waiter, answer_of, Ending.FLUSH_IS_LATE)

    def _end_turn(self) -> None:
        self._turn_ends = False
        self._promise()
        terms = self._terms
        if (
            terms is not None
            and self._unpromised is None
            and self.promised_where < self._log.max_offset
        ):
            # Puts that nobody waits for are shown no later than those that time out.
            mark = self._log.max_offset
            when = self._clock.monotonic() + terms.timeout_s
            self._unpromised = self._clock.call_at(when, lambda: self._end_mark(mark))

    def _end_mark(self, mark: int) -> None:
        self._unpromised = None
        self._raise_promise(mark)
        self._end_turn()

    def _end_period(self) -> None:
        if self._unpromised is not None:
            self._unpromised.cancel()
            self._unpromised = None

    def _promise(self) -> None:
        """Promise what enough slaves have; without them what nobody waits for any more."""
        terms = self._terms
        if terms is None:
            return
        where = self.replicated_where
        if self._for_slaves.is_empty and (terms.slaves <= 0 or not self._has_slaves(terms)):
            where = self._log.max_offset
        self._raise_promise(min(where, self._log.max_offset))

    def _raise_promise(self, where: int) -> None:
        if where > self.promised_where:
            self.promised_where = where
            self.on_promised()


class _Waits:
    """Waits in the order of their offsets, which is nearly that of their deadlines."""

    __slots__ = ("_clock", "_on_late", "_queue", "_timer")

    def __init__(self, clock: Clock, on_late: Callable[[Wait], None]) -> None:
        self._clock = clock
        self._on_late = on_late
        self._queue: deque[Wait] = deque()
        self._timer: Timer | None = None

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def add(self, wait: Wait) -> None:
        self._queue.append(wait)
        if self._timer is None:
            self._timer = self._clock.call_at(wait[1], self._expire)

    def take_up_to(self, commit_log_offset: int) -> list[Wait]:
        """Take out the waits for what ends at or before an offset."""
        queue = self._queue
        taken = []
        while queue and queue[0][0] <= commit_log_offset:
            taken.append(queue.popleft())
        return taken

    def end_up_to(self, commit_log_offset: int, ending: Ending) -> None:
        queue = self._queue
        while queue and queue[0][0] <= commit_log_offset:
            _, _, waiter, answer_of = queue.popleft()
            _tell(waiter, answer_of, ending)

    def end_all(self, ending: Ending) -> None:
        while self._queue:
            _, _, waiter, answer_of = self._queue.popleft()
            _tell(waiter, answer_of, ending)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        queue = self._queue
        while queue and (queue[0][1] <= now or queue[0][2].done()):
            self._on_late(queue.popleft())
        if queue:
            self._timer = self._clock.call_at(queue[0][1], self._expire)


def _as_no_slave(answer_of: AnswerOf | None) -> AnswerOf:
    """Return what answers SLAVE_NOT_AVAILABLE where the message is stored."""

    def told(status: PutMessageStatus) -> Any:
        if status is not PutMessageStatus.SERVICE_NOT_AVAILABLE:
            status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        return status if answer_of is None else answer_of(status)

    return told


def _nothing() -> None:
    """Nobody listens."""


def _tell(waiter: asyncio.Future[Any], answer_of: AnswerOf | None, ending: Ending) -> None:
    if not waiter.done():
        status = OUTCOMES[ending]
        waiter.set_result(status if answer_of is None else answer_of(status))
