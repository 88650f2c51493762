"""Answer SYSTEM_BUSY to requests that waited too long.

RocketMQ checks the age of the first request in each pool's queue. One event loop has one queue, in
the kernel: requests that arrive during a long turn of the loop wait about as long as the turn.
So a timer measures the wait by its own lateness, and counts only the time in which the loop worked:
refusing doesn't help while the process gets no CPU time. After two late ticks in a row, Overload
refuses all requests whose kind has a shorter maximum wait, until the next tick. A refusal costs a
third of serving, so the loop catches up. A single late tick is a stall that has ended when the
timer runs.

The page cache counts as busy when a single put, which only copies into a mapping, took longer than
osPageCacheBusyTimeOutMills; Overload then refuses sends until the next tick. It also refuses them
while the TransientStorePool has no free buffer, even without brokerFastFailureEnable.

Source: broker/latency/BrokerFastFailure.java, processor/SendMessageProcessor.java rejectRequest
(4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn, Protocol

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from broker_core.clock import Clock, Timer
    from broker_core.remoting.dispatch import Handler

logger = logging.getLogger(__name__)

TICK_S = 0.05
SEND_CODES = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
PULL_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
HEARTBEAT_CODES = (RequestCode.HEART_BEAT,)
TRANSACTION_CODES = (RequestCode.END_TRANSACTION,)


class Overridable(Protocol):
    """The part of a server that Overload uses."""

    @property
    def connections(self) -> Collection[object]: ...

    def override(self, handlers: Mapping[int, Handler]) -> None: ...


class Overload:
    """Watches the loop and makes servers refuse codes. Event loop only.

    `waits` returns pairs of codes and their maximum wait in milliseconds, and is empty while the
    rule is off; `worked_s` returns the CPU time of the loop's thread, `longest_put_ms` the duration
    of the longest put since the last call, `page_cache_busy_ms` the limit for it, and
    `is_pool_deficient` whether the TransientStorePool has no free buffer.
    """

    def __init__(
        self,
        clock: Clock,
        servers: Sequence[Overridable],
        waits: Callable[[], Sequence[tuple[Sequence[int], float]]],
        worked_s: Callable[[], float],
        longest_put_ms: Callable[[], float],
        page_cache_busy_ms: Callable[[], float],
        is_pool_deficient: Callable[[], bool] = lambda: False,
    ) -> None:
        self.refused = 0
        self._clock = clock
        self._servers = servers
        self._waits = waits
        self._worked_s = worked_s
        self._longest_put_ms = longest_put_ms
        self._page_cache_busy_ms = page_cache_busy_ms
        self._is_pool_deficient = is_pool_deficient
        self._due = 0.0
        self._worked_before_s = 0.0
        self._is_refusing = False
        self._waited_before_ms = 0.0
        self._remark = ""
        self._timer: Timer | None = None

    def start(self) -> None:
        self._worked_before_s = self._worked_s()
        self._due = self._clock.monotonic() + TICK_S
        self._timer = self._clock.call_at(self._due, self._tick)

    def shutdown(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.look(0.0, 0.0)

    def look(self, waited_ms: float, put_ms: float) -> None:
        """Refuse the codes whose maximum wait was exceeded in both of the last two turns."""
        self._waited_before_ms, waited_ms = waited_ms, min(waited_ms, self._waited_before_ms)
        waits = self._waits()
        busy = {code for codes, wait_ms in waits if waited_ms > wait_ms for code in codes}
        is_disk = bool(waits) and put_ms > self._page_cache_busy_ms()
        is_deficient = self._is_pool_deficient()
        if is_disk:
            waited_ms = max(waited_ms, put_ms)
        if is_disk or is_deficient:
            busy.update(SEND_CODES)
        if not busy and not self._is_refusing:
            return
        if busy and not self._is_refusing:
            logger.warning(
                "overloaded, refusing requests waited_ms=%.0f codes=%s", waited_ms, sorted(busy)
            )
        kind = "PCBUSY_CLEAN_QUEUE" if is_disk else "TIMEOUT_CLEAN_QUEUE"
        waiting = sum(len(server.connections) for server in self._servers)
        self._remark = (
            f"[{kind}]broker busy, start flow control for a while, period in queue: "
            f"{waited_ms:.0f}ms, size of queue: {waiting}"
        )
        if is_deficient:
            self._remark = "[REJECTREQUEST]system busy, start flow control for a while"
        self._is_refusing = bool(busy)
        for server in self._servers:
            server.override(dict.fromkeys(busy, self._refuse))

    def _refuse(self, *_: object) -> NoReturn:
        """Answer SYSTEM_BUSY."""
        self.refused += 1
        raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, self._remark)

    def _tick(self) -> None:
        now, worked_s = self._clock.monotonic(), self._worked_s()
        late_s = max(0.0, now - self._due)
        waited_s = min(late_s, worked_s - self._worked_before_s)
        self._worked_before_s = worked_s
        self._due = now + TICK_S
        self._timer = self._clock.call_at(self._due, self._tick)
        self.look(waited_s * 1000, self._longest_put_ms())
