"""Log how far behind the broker is, at RocketMQ's intervals.

RocketMQ prints the sizes and ages of its thread pools' queues every second. An event loop has one
queue; its age is the lateness of a timer.

Source: broker/BrokerController.java printWaterMark, printMasterAndSlaveDiff (4.9.7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
BEHIND_EVERY = 60
LATE_MS = 200.0
"""At this lateness and above, the line is logged as INFO instead of DEBUG."""


class WaterMark(Service):
    """Logs every second how late the loop is, every minute how far dispatch and slaves are behind.

    Event loop only. `late_ms` is the last measurement; `waiting` returns the counts that the line
    also shows, `fallbacks` the number of requests that the compiled turn left to Python, by reason.
    """

    def __init__(
        self,
        clock: Clock,
        dispatch_behind_bytes: Callable[[], int],
        slave_behind_bytes: Callable[[], int],
        waiting: Callable[[], dict[str, int]] = dict,
        fallbacks: Callable[[], dict[str, int]] = dict,
    ) -> None:
        super().__init__()
        self.late_ms = 0.0
        self._waiting = waiting
        self._fallbacks = fallbacks
        self._fallbacks_before: dict[str, int] = {}
        self._clock = clock
        self._dispatch_behind_bytes = dispatch_behind_bytes
        self._slave_behind_bytes = slave_behind_bytes

    def start(self) -> None:
        self.spawn_forever(self._clock, self._print_forever, name="water-mark")

    def print_water_mark(self, late_ms: float) -> None:
        """Log one measurement."""
        self.late_ms = late_ms
        level = logging.WARNING if late_ms > LATE_MS else logging.DEBUG
        if logger.isEnabledFor(level):
            waiting = " ".join(f"{name}={count}" for name, count in self._waiting().items())
            logger.log(level, "[WATERMARK] slow_time_ms=%.1f %s", late_ms, waiting)

    def print_dispatch_behind(self) -> None:
        """Log how many bytes the indexes are behind the log."""
        logger.info("dispatch behind the log bytes=%d", self._dispatch_behind_bytes())

    def print_master_and_slave_diff(self) -> None:
        """Log how many bytes the best slave is behind the log."""
        logger.info("slave behind the master bytes=%d", self._slave_behind_bytes())

    def print_fallbacks(self) -> None:
        """Log how many requests were left to Python since the last time, if any."""
        fallbacks, before = self._fallbacks(), self._fallbacks_before
        self._fallbacks_before = fallbacks
        more = {reason: count - before.get(reason, 0) for reason, count in fallbacks.items()}
        if any(more.values()):
            words = " ".join(f"{reason}={count}" for reason, count in more.items() if count)
            logger.info("requests served by Python counts=%s", words)

    async def _print_forever(self) -> None:
        rounds = 0
        while True:
            due = self._clock.monotonic() + PERIOD_S
            await self._clock.sleep(PERIOD_S)
            self.print_water_mark(max(0.0, self._clock.monotonic() - due) * 1000)
            rounds += 1
            if rounds % BEHIND_EVERY == 0:
                self.print_dispatch_behind()
                self.print_master_and_slave_diff()
                self.print_fallbacks()
