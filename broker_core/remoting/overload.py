"""Overload: requests that waited too long are answered SYSTEM_BUSY instead of being served.

RocketMQ looks at the age of the first request in each pool's queue. One event loop has one queue,
in the kernel: what came while a turn of the loop took long waited about as long as that turn. So
a timer tells the wait by how late it comes, as far as the loop was at work meanwhile: a process
that was not given the processor serves nobody faster by refusing. When it is late twice in a row,
requests of a kind that may not wait so long are refused until its next tick, which costs a third of
serving them, and the loop catches up. Once is a stall: it is over when it is seen.

The page cache is busy when a single put, which only copies into a mapping, took longer than
osPageCacheBusyTimeOutMills; then sends are refused until the next tick. So they are while the
TransientStorePool has no buffer left, whether brokerFastFailureEnable is set or not.

Source: broker/latency/BrokerFastFailure.java, processor/SendMessageProcessor.java rejectRequest
(4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.clock import Clock, Timer
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.remoting.server import RemotingServer

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


class Overload:
    """Watches the loop, tells servers which codes to refuse. Event loop only.

    `waits` returns (codes, milliseconds they may wait) of now, nothing when the rule is off;
    `worked_s` the processor time of the loop's thread; `longest_put_ms` how long the longest put
    since the last call took; `page_cache_busy_ms` from when on that is too long;
    `is_pool_deficient` whether sends would find no buffer.
    """

    def __init__(
        self,
        clock: Clock,
        servers: Sequence[RemotingServer],
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
        """Refuse what may not wait as long as the last two turns took, serve everything else."""
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
                "overloaded, refusing requests: waited_ms=%.0f codes=%s", waited_ms, sorted(busy)
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

    def _refuse(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """Answer SYSTEM_BUSY."""
        self.refused += 1
        return request.answer(ResponseCode.SYSTEM_BUSY, self._remark)

    def _tick(self) -> None:
        now, worked_s = self._clock.monotonic(), self._worked_s()
        late_s = max(0.0, now - self._due)
        waited_s = min(late_s, worked_s - self._worked_before_s)
        self.look(waited_s * 1000, self._longest_put_ms())
        self._worked_before_s = worked_s
        self._due = now + TICK_S
        self._timer = self._clock.call_at(self._due, self._tick)
