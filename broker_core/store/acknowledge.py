"""Acknowledgement: decides when a put counts, and answers its sender.

With ASYNC_FLUSH a put counts immediately. With SYNC_FLUSH it counts when the log is durable up to
its end. A SYNC_MASTER also waits until inSyncReplicas brokers, including itself, have it. Only this
module implements these rules; other code reads `waits`, receives a PutMessageStatus, or awaits a
future for one.

Source: store/CommitLog.java submitFlushRequest, submitReplicaRequest (4.9.8).
Differs: a disconnected slave no longer counts for the data it had.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from broker_core.isolation import FAILURES
from broker_core.store.results import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock, Timer
    from broker_core.config.store import StoreConfig
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.results import PutBatchResult, PutMessageResult

NO_OFFSET = -1
NO_REACH = -1
NO_LIMIT = 1 << 62


class Waiter(Protocol):
    """Receives the acknowledgement of a put."""

    def end(self, status: PutMessageStatus) -> None:
        """Receive the final status of the put. Called once; must not raise."""
        ...


Wait = tuple[int, float, Waiter]
"""The end offset, the deadline and the waiter."""


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
"""The status that the sender gets for each ending."""


def counts_when_flushed(config: StoreConfig) -> bool:
    """Return whether a put counts, and becomes readable, only after its flush."""
    return config.flush_disk_type == "SYNC_FLUSH"


class ReplicaTerms(Protocol):
    """The conditions that a SYNC_MASTER waits for."""

    @property
    def slaves(self) -> int:
        """How many slaves must have a message."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long a sender waits for the slaves."""
        ...

    @property
    def fall_behind_max(self) -> int:
        """Senders don't wait for a slave that is more bytes behind than this."""
        ...


class Acknowledgement:
    """Queues of waits, ordered by offset. Event loop only.

    Attributes:
        waits: whether a put may have to wait under the current flush mode and role.
        is_flush_awaited: whether a put counts only after its flush.
        on_promised: called when `promised_where` has moved.
        promised_where: senders have been answered up to here. A SYNC_MASTER shows nothing after it.
        replicated_where: enough slaves have the log up to here; -1 while there are too few slaves.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_flush_up_to",
        "_for_flush",
        "_for_slaves",
        "_has_failed",
        "_log",
        "_reach",
        "_slave_timeout_s",
        "_slaves",
        "_terms",
        "_turn_ends",
        "_unpromised",
        "is_flush_awaited",
        "on_promised",
        "promised_where",
        "replicated_where",
        "waits",
    )

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
        self.replicated_where = NO_OFFSET
        self._config = config
        self._clock = clock
        self._log = commit_log
        self._flush_up_to = flush_up_to
        self._has_failed = False
        self._terms: ReplicaTerms | None = None
        self._slaves = 0
        self._slave_timeout_s = 0.0
        self._reach = NO_REACH
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
        """Every put that ends at or before this log offset counts."""
        where = self._log.flushed_where if self.is_flush_awaited else self._log.max_offset
        return where if self._terms is None else min(where, self.promised_where)

    def replicate(self, terms: ReplicaTerms | None) -> None:
        """Wait for slaves from now on, or stop waiting for them if `terms` is None."""
        self._terms = terms
        self._slaves = 0 if terms is None else terms.slaves
        self._reach = NO_REACH
        self.waits = self.is_flush_awaited or terms is not None
        self.promised_where = self._log.max_offset
        self.replicated_where = NO_OFFSET
        if terms is None:
            self._for_slaves.end_all(Ending.NO_SLAVE)
            self._end_period()

    def notify(
        self, result: PutMessageResult | PutBatchResult, waiter: Waiter, put_at: float
    ) -> bool:
        """Notify a waiter when a put counts, perhaps before this returns; put_at: monotonic time.

        Returns False, without calling the waiter, when there is nothing to wait for.
        """
        begin = result.commit_log_offset
        if begin < 0:
            return False
        end = begin + result.wrote_size
        if self._slaves > 0 and end > self.replicated_where:
            if self._has_failed:
                waiter.end(OUTCOMES[Ending.FLUSH_FAILED])
                return True
            if end < self._reach:
                self._for_slaves.add((end, put_at + self._slave_timeout_s, waiter))
                if self.is_flush_awaited:
                    self._flush_up_to(end)
                return True
            waiter = _WithoutSlave(waiter)
            if not self.is_flush_awaited or end <= self._log.flushed_where:
                waiter.end(PutMessageStatus.PUT_OK)
                return True
        if not self.is_flush_awaited or end <= self._log.flushed_where:
            return False
        self._report_when_flushed(end, waiter, put_at)
        return True

    @property
    def plain_limit(self) -> int:
        """If puts wait, a put that ends before this log offset waits in the usual way.

        The usual way is to wait for slaves that are near enough, or for the disk alone. 0: all puts
        need individual treatment.
        """
        if self._has_failed:
            return 0
        if self._slaves > 0:
            return self._reach if self.replicated_where <= self._log.max_offset else 0
        return NO_LIMIT if self.is_flush_awaited and self._terms is None else 0

    def report_together(self, end: int, waiter: Waiter, put_at: float) -> None:
        """Notify a waiter when all puts of a turn count; `end` is the end offset of the last.

        The puts wait in the usual way; see `plain_limit`.
        """
        if self._slaves > 0:
            self._for_slaves.add((end, put_at + self._slave_timeout_s, waiter))
            if self.is_flush_awaited:
                self._flush_up_to(end)
        else:
            self._report_when_flushed(end, waiter, put_at)

    def until_acknowledged(
        self, result: PutMessageResult | PutBatchResult
    ) -> asyncio.Future[PutMessageStatus] | None:
        """Return a future for the status of a put, or None when there is nothing to wait for.

        The future completes once the put counts, or once it has failed.
        """
        waiter = _FutureWaiter()
        return waiter.future if self.notify(result, waiter, self._clock.monotonic()) else None

    def until_flushed(self, commit_log_offset: int) -> asyncio.Future[PutMessageStatus]:
        """Flush the log up to an offset in any flush mode; return a future for the status.

        The status is FLUSH_DISK_TIMEOUT after syncFlushTimeout.
        """
        waiter = _FutureWaiter()
        self._report_when_flushed(commit_log_offset, waiter, self._clock.monotonic())
        return waiter.future

    def flushed(self) -> None:
        """End the waits for data that is now durable."""
        self._for_flush.end_up_to(self._log.flushed_where, Ending.KEPT)

    def replicated(self, commit_log_offset: int) -> None:
        """Record how far enough slaves have the log; -1 while there are too few slaves."""
        self.replicated_where = commit_log_offset
        terms = self._terms
        if terms is None:
            return
        # Read once per report, so that puts don't pay for it.
        self._slaves = terms.slaves
        self._slave_timeout_s = terms.timeout_s
        is_none = commit_log_offset < 0
        self._reach = NO_REACH if is_none else commit_log_offset + terms.fall_behind_max
        if self.is_flush_awaited:
            self._when_flushed(self._for_slaves.take_up_to(commit_log_offset))
        else:
            self._for_slaves.end_up_to(commit_log_offset, Ending.KEPT)
        self._promise()

    def note_put(self) -> None:
        """Schedule an update of `promised_where` for a put without a waiter."""
        if not self._turn_ends:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def fail(self) -> None:
        """End all current and future waits: no more data can become durable."""
        self._has_failed = True
        self._for_flush.end_all(Ending.FLUSH_FAILED)
        self._for_slaves.end_all(Ending.FLUSH_FAILED)

    def close(self) -> None:
        """Cancel the timers of the waits."""
        self._for_flush.close()
        self._for_slaves.close()
        self._end_period()

    def _report_when_flushed(self, commit_log_offset: int, waiter: Waiter, now: float) -> None:
        if self._has_failed:
            waiter.end(OUTCOMES[Ending.FLUSH_FAILED])
            return
        deadline = now + self._config.sync_flush_timeout / 1000
        self._for_flush.add((commit_log_offset, deadline, waiter))
        self._flush_up_to(commit_log_offset)

    def _has_slaves(self) -> bool:
        """Return whether enough slaves are connected and not too far behind."""
        return self._log.max_offset < self._reach

    def _when_flushed(self, waits: list[Wait]) -> None:
        """End the waits of replicated puts once they are durable here, too."""
        flushed_where = self._log.flushed_where
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout / 1000
        for end, _, waiter in waits:
            if end <= flushed_where:
                _end(waiter, PutMessageStatus.PUT_OK)
            else:
                self._for_flush.add((end, deadline, waiter))

    def _slave_is_late(self, wait: Wait) -> None:
        end, _, waiter = wait
        _end(waiter, OUTCOMES[Ending.SLAVE_IS_LATE])
        # Everything before it is late, too.
        self._raise_promise(end)

    def _flush_is_late(self, wait: Wait) -> None:
        _end(wait[2], OUTCOMES[Ending.FLUSH_IS_LATE])

    def _end_turn(self) -> None:
        self._turn_ends = False
        self._promise()
        terms = self._terms
        if (
            terms is not None
            and self._unpromised is None
            and self.promised_where < self._log.max_offset
        ):
            # Puts without a waiter become visible no later than puts that time out.
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
        """Promise the log that enough slaves have, or without them, the log that no sender waits
        for.
        """
        if self._terms is None:
            return
        where = self.replicated_where
        if self._for_slaves.is_empty and (self._slaves <= 0 or not self._has_slaves()):
            where = self._log.max_offset
        self._raise_promise(min(where, self._log.max_offset))

    def _raise_promise(self, where: int) -> None:
        if where > self.promised_where:
            self.promised_where = where
            self.on_promised()


class _Waits:
    """Waits ordered by offset, which is nearly the order of their deadlines."""

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
        """Remove and return the waits that end at or before an offset."""
        queue = self._queue
        taken = []
        while queue and queue[0][0] <= commit_log_offset:
            taken.append(queue.popleft())
        return taken

    def end_up_to(self, commit_log_offset: int, ending: Ending) -> None:
        queue = self._queue
        status = OUTCOMES[ending]
        while queue and queue[0][0] <= commit_log_offset:
            _end(queue.popleft()[2], status)

    def end_all(self, ending: Ending) -> None:
        status = OUTCOMES[ending]
        while self._queue:
            _end(self._queue.popleft()[2], status)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        queue = self._queue
        while queue and queue[0][1] <= now:
            self._on_late(queue.popleft())
        if queue:
            self._timer = self._clock.call_at(queue[0][1], self._expire)


class _FutureWaiter:
    """Passes the status to a future."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[PutMessageStatus] = loop.create_future()

    def end(self, status: PutMessageStatus) -> None:
        # The task that awaited the future may have been cancelled.
        if not self.future.done():
            self.future.set_result(status)


class _WithoutSlave:
    """Reports SLAVE_NOT_AVAILABLE to a waiter if the message is stored."""

    __slots__ = ("_waiter",)

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter

    def end(self, status: PutMessageStatus) -> None:
        if status is not PutMessageStatus.SERVICE_NOT_AVAILABLE:
            status = OUTCOMES[Ending.NO_SLAVE]
        self._waiter.end(status)


def _end(waiter: Waiter, status: PutMessageStatus) -> None:
    """End a wait; log an error instead of raising it, so that other senders get their answers."""
    try:
        waiter.end(status)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  one of several senders
        FAILURES.report("answering a sender", status.name, error)


def _nothing() -> None:
    """Do nothing; the default callback."""
