"""The `rocketmq` source as a stream: its progress is an offset for each queue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from analytics.errors import DataLossError, ReportError
from analytics.remote.connections import open_cluster
from analytics.sources.assignment import assigned, remaining
from analytics.sources.marks import find_marks, recreated
from analytics.sources.queue_offsets import LATEST, nested
from analytics.sources.queue_ranges import QueueRange, shared, starts
from analytics.sources.queue_reading import QueueShareReader
from analytics.sources.stream_progress import Place, Progress, place_of
from broker_core.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from analytics.remote.cluster import Cluster, Queue
    from analytics.sources.rocketmq_options import ClusterOptions
    from broker_core.clock import Clock

logger = logging.getLogger(__name__)

AGAIN = (
    "Start the query with a new checkpoint, or set failOnDataLoss=false to read the topic as it is "
    "now from its beginning."
)


class Ends(NamedTuple):
    """The readable ranges of the queues."""

    extents: Mapping[Queue, tuple[int, int]]
    firsts: Mapping[Queue, int]
    """The start of the next batch, including queues that are gone."""
    starts: Mapping[Queue, int]
    """Starts that aren't in the progress."""
    other: frozenset[Place]
    """Topics that were recreated."""


class RocketMqStreamReader(QueueShareReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues; new queues are read from their beginning.

    Lives in one process for the whole query, except for reading shares.
    """

    def __init__(
        self, wanted: ClusterOptions, schema: StructType, clock: Clock | None = None
    ) -> None:
        if wanted.has_end:
            raise ReportError(
                "A stream of rocketmq has no end. Remove endingOffsets, "
                "endingOffsetsByTimestamp and endingTimestamp."
            )
        super().__init__(wanted.for_reading(), schema)
        self._clock = clock or SystemClock()
        self._target: Mapping[Queue, int] | None = None
        self._planned: dict[str, Any] | None = None
        self._reported: dict[str, Any] | None = None
        self._batch_at: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        async def begin(cluster: Cluster) -> Progress:
            cluster.forget_routes()
            extents = await cluster.extents(await assigned(cluster, self._options))
            offsets = await starts(cluster, self._options, extents, default=LATEST)
            marks = await find_marks(cluster, self._options.consumer_group, offsets, extents, {})
            return Progress(offsets, marks)

        progress: Progress = self._run(begin)
        return progress.document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        wanted = self._options
        if wanted.max_offsets_per_trigger is not None:
            return ReadMaxRows(wanted.max_offsets_per_trigger)
        if wanted.min_offsets_per_trigger is not None:
            return ReadMinRows(wanted.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = Progress.of(start)
        planned = self._run(lambda cluster: self._plan(cluster, begun, limit))
        self._planned = start if planned is None else planned.document()
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._reported

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        async def ends(cluster: Cluster) -> dict[Queue, int]:
            cluster.forget_routes()
            extents = await cluster.extents(await remaining(cluster, self._options))
            return {queue: behind for queue, (_, behind) in extents.items()}

        self._target = self._run(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended = Progress.of(start), Progress.of(end)
        passed: frozenset[Place] = frozenset()
        if end != self._planned:
            # This may repeat a batch of an earlier run, and its topics may have been recreated
            # since.
            passed = self._run(lambda cluster: self._changed_since(cluster, ended))
        firsts = {**begun.offsets, **ended.starts}
        ranges = [
            QueueRange(queue, firsts.get(queue, 0), behind)
            for queue, behind in ended.offsets.items()
            if place_of(queue) not in passed
        ]
        ranges = [one for one in ranges if one.size > 0]
        wanted = self._options
        if not ranges:
            return []
        return shared(ranges, wanted.min_partitions, wanted.max_records_per_partition)

    def _run(self, work: Callable[[Cluster], Coroutine[Any, Any, Any]]) -> Any:
        with open_cluster(self._options.access) as cluster:
            return cluster.run(work)

    async def _plan(self, cluster: Cluster, begun: Progress, limit: ReadLimit) -> Progress | None:
        """Return the end of the next batch, or None."""
        seen = await self._look(cluster, begun)
        most = self._options.max_offsets_per_trigger if isinstance(limit, ReadMaxRows) else None
        bounds = {
            queue: (first, self._end_of(queue, first, seen)) for queue, first in seen.firsts.items()
        }
        if isinstance(limit, ReadMaxRows | ReadMinRows) and self._is_to_wait(bounds):
            self._reported = _reported(begun.offsets, seen)
            return None
        ends = {queue: end for queue, (_, end) in _bounded(bounds, most).items()}
        self._reported = _reported(ends, seen)
        if ends == begun.offsets and not seen.starts:
            return None
        self._batch_at = self._clock.monotonic()
        advanced = {place_of(queue) for queue in ends if ends[queue] != begun.offsets.get(queue)}
        advanced |= seen.other
        marks = {place: mark for place, mark in begun.marks.items() if place not in seen.other}
        marks |= await find_marks(
            cluster,
            self._options.consumer_group,
            {q: end for q, end in ends.items() if place_of(q) in advanced and q in seen.extents},
            seen.extents,
            seen.firsts,
        )
        return Progress(ends, marks, seen.starts)

    async def _look(self, cluster: Cluster, begun: Progress) -> Ends:
        """Return the readable ranges.

        Raises:
            DataLossError: a queue no longer exists, or was recreated.
        """
        cluster.forget_routes()
        extents = await cluster.extents(await remaining(cluster, self._options))
        other = await recreated(cluster, self._options.consumer_group, begun.marks, extents)
        for place in sorted(other):
            self._lost(
                f"The topic {place} was deleted and created again since this stream read it, so "
                f"messages may be missing. {AGAIN}"
            )
        firsts: dict[Queue, int] = {}
        restarted: dict[Queue, int] = {}
        for queue in sorted({*extents, *begun.offsets}):
            first = begun.offsets.get(queue)
            if queue not in extents:
                assert first is not None
                self._lost(
                    f"{queue}, which this stream has read up to {first}, no longer exists. The "
                    "topic was deleted or has fewer queues, or its broker is down. Set "
                    "failOnDataLoss=false to continue without the queue."
                )
                firsts[queue] = first
                continue
            least, behind = extents[queue]
            if first is not None and first > behind and place_of(queue) not in other:
                self._lost(
                    f"{queue} ends at {behind}, before the offset {first} that this stream has "
                    "read. The topic was deleted and created again, or its broker lost messages. "
                    f"{AGAIN}"
                )
                first = None
            if first is None or place_of(queue) in other:
                first = restarted[queue] = least
            firsts[queue] = first
        return Ends(extents, firsts, restarted, other)

    async def _changed_since(self, cluster: Cluster, ended: Progress) -> frozenset[Place]:
        cluster.forget_routes()
        extents = await cluster.extents(await remaining(cluster, self._options))
        other = await recreated(cluster, self._options.consumer_group, ended.marks, extents)
        for place in sorted(other):
            self._lost(
                f"The topic {place} was deleted and created again before a batch of it was read "
                f"to its end, so messages are missing. {AGAIN}"
            )
        return other

    def _lost(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(sentence)
        logger.warning("messages lost reason=%s", sentence)

    def _end_of(self, queue: Queue, first: int, seen: Ends) -> int:
        behind = seen.extents[queue][1] if queue in seen.extents else first
        if self._target is not None:
            behind = min(behind, self._target.get(queue, first))
        return max(first, behind)

    def _is_to_wait(self, bounds: Mapping[Queue, tuple[int, int]]) -> bool:
        """Return whether a batch should wait for more messages or for its time."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or self._batch_at is None:
            return False
        if sum(behind - first for first, behind in bounds.values()) >= least:
            return False
        return self._clock.monotonic() - self._batch_at < self._options.max_trigger_delay_s


def _reported(ends: Mapping[Queue, int], seen: Ends) -> dict[str, Any]:
    """Return the newest offsets, and how far the batch is behind them, for Spark's progress.

    Python sources can't fill the field `metrics` of a progress.
    """
    newest = {queue: behind for queue, (_, behind) in seen.extents.items()}
    lags = [max(0, newest[queue] - ends[queue]) for queue in newest if queue in ends]
    return {
        "offsets": nested(newest),
        "metrics": {
            "minOffsetsBehindLatest": min(lags, default=0),
            "maxOffsetsBehindLatest": max(lags, default=0),
            "avgOffsetsBehindLatest": round(sum(lags) / len(lags), 1) if lags else 0,
            "totalOffsetsBehindLatest": sum(lags),
        },
    }


def _bounded(
    ends: Mapping[Queue, tuple[int, int]], most: int | None
) -> dict[Queue, tuple[int, int]]:
    """Return earlier ends with about `most` messages before them, each queue's fair share."""
    total = sum(behind - first for first, behind in ends.values())
    if most is None or total <= most:
        return dict(ends)
    return {
        queue: (first, first + min(behind - first, -(-(behind - first) * most // total)))
        for queue, (first, behind) in ends.items()
    }
