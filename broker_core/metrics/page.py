"""MetricsPage: all of the broker's metrics, read on request."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING

from broker_core.metrics import own, rocketmq
from broker_core.metrics.exposition import lines_of
from broker_core.metrics.pop import flights_of, pop_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import Clock
    from broker_core.listening.budgets import Budgets
    from broker_core.metrics.own import Replication
    from broker_core.metrics.readings import Readings
    from broker_core.pop.engine import PopEngine
    from broker_core.pop.pollers import Pollers
    from broker_core.pop.revival import Revival

SHARED_S = 1.0
"""Scrapes within this time share a page, so that frequent scraping costs the broker nothing."""
LINES_AT_ONCE = 500
"""Lines built before the loop may do other work: about a millisecond."""


class MetricsPage:
    """Event loop only.

    `permission`, `parked_pulls` and `series_max` return brokerPermission, the number of parked
    pulls, and metricsSeriesMax. `fallbacks` returns how many requests the compiled turn left to
    Python, by reason, or None without a compiled turn.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        readings: Readings,
        replication: Replication,
        clock: Clock,
        permission: Callable[[], int],
        parked_pulls: Callable[[], int],
        budgets: Budgets,
        series_max: Callable[[], int],
        fallbacks: Callable[[], dict[str, int]] | None,
        pop: tuple[PopEngine, Revival, Pollers],
    ) -> None:
        self._labels = labels
        self._readings = readings
        self._replication = replication
        self._clock = clock
        self._permission = permission
        self._parked_pulls = parked_pulls
        self._budgets = budgets
        self._series_max = series_max
        self._fallbacks = fallbacks
        self._pop = pop
        self._lock = asyncio.Lock()
        self._text = b""
        self._made_at = -SHARED_S

    async def text(self) -> bytes:
        """Return the page, at most SHARED_S old."""
        async with self._lock:
            if not self._text or self._clock.monotonic() - self._made_at >= SHARED_S:
                self._text = await self._render()
                self._made_at = self._clock.monotonic()
        return self._text

    async def _render(self) -> bytes:
        readings, series_max = self._readings, self._series_max()
        # Read one more than shown, so that the page reports the truncation.
        rows = await readings.parts.progress.rows(series_max + 1)
        flights = await flights_of(self._pop[0], series_max, self._clock)
        counters, gauges = readings.counters(), readings.gauges()
        metrics = chain(
            rocketmq.metrics_of(
                readings.parts,
                gauges,
                rows,
                self._permission(),
                len(self._budgets.turns),
                self._clock.now_ms(),
            ),
            own.broker_metrics(
                readings.parts, counters, gauges, self._parked_pulls(), len(asyncio.all_tasks())
            ),
            own.budget_metrics(self._budgets),
            pop_metrics(*self._pop, flights, self._clock.now_ms()),
            own.replication_metrics(self._replication),
            own.process_metrics(counters, gauges, readings.boot_ms),
            own.native_metrics(None if self._fallbacks is None else self._fallbacks()),
        )
        lines = []
        for line in lines_of(metrics, self._labels, series_max):
            lines.append(line)
            if len(lines) % LINES_AT_ONCE == 0:
                await self._clock.sleep(0)
        return "".join(lines).encode()
