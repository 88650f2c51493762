"""The `rocketmq` source as a stream: its progress is an offset for each queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from analytics.errors import DataLossError, ReportError
from analytics.remote.cluster import Cluster
from analytics.sources.queue_offsets import LATEST, flat, nested
from analytics.sources.queue_ranges import QueueRange, QueueShareReader, assigned, shared, starts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from analytics.remote.cluster import Queue
    from analytics.sources.rocketmq_options import Wanted


class RocketMqStreamReader(QueueShareReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues; those that appear later are read from their beginning.

    Lives in one process for the whole query, besides the reading of shares.
    """

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        if wanted.ending is not None or wanted.rows.to_ms is not None:
            raise ReportError(
                "A stream of rocketmq has no end: leave out endingOffsets and endingTimestamp."
            )
        super().__init__(wanted.for_reading(), schema)
        self._target: dict[Queue, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        async def found() -> dict[Queue, int]:
            async with Cluster(self._wanted.access) as cluster:
                extents = await cluster.extents(await assigned(cluster, self._wanted))
                return await starts(cluster, self._wanted, extents, default=LATEST)

        return nested(asyncio.run(found()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._wanted.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = flat(start)
        ends = self._ends(begun)
        if isinstance(limit, ReadMaxRows):
            ends = _bounded(ends, limit.max_rows)
        return nested({queue: behind for queue, (_, behind) in ends.items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = {queue: behind for queue, (_, behind) in self._extents().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ends = flat(start), flat(end)
        new = [queue for queue in ends if queue not in begun]
        if new:
            begun |= {queue: least for queue, (least, _) in self._extents(new).items()}
        ranges = [QueueRange(queue, begun[queue], behind) for queue, behind in ends.items()]
        ranges = [one for one in ranges if one.size > 0]
        return shared(ranges, self._wanted.min_partitions) if ranges else []

    def _extents(self, queues: Sequence[Queue] | None = None) -> dict[Queue, tuple[int, int]]:
        async def found() -> dict[Queue, tuple[int, int]]:
            async with Cluster(self._wanted.access) as cluster:
                return await cluster.extents(
                    await assigned(cluster, self._wanted) if queues is None else queues
                )

        return asyncio.run(found())

    def _ends(self, begun: Mapping[Queue, int]) -> dict[Queue, tuple[int, int]]:
        """Return where each queue was read to, and where it ends now.

        Raises:
            DataLossError: a queue is gone, or ends before it was read to.
        """
        found = {
            queue: (begun.get(queue, least), behind)
            for queue, (least, behind) in self._extents().items()
        }
        if self._target is not None:
            found = {
                queue: (first, min(behind, self._target.get(queue, first)))
                for queue, (first, behind) in found.items()
            }
        for queue, first in begun.items():
            behind = found[queue][1] if queue in found else None
            if behind is not None and behind >= first:
                continue
            if self._wanted.fail_on_data_loss and self._target is None:
                where = "is gone" if behind is None else f"ends at {behind}"
                raise DataLossError(
                    f"{queue} {where}, and this stream stands at {first}: the topic was deleted or "
                    "made anew. With the option failOnDataLoss=false the stream goes on without."
                )
            found[queue] = (first, first)
        return found


def _bounded(ends: Mapping[Queue, tuple[int, int]], most: int) -> dict[Queue, tuple[int, int]]:
    """Return ends so near that about `most` messages lie before them, each queue's fair share."""
    total = sum(behind - first for first, behind in ends.values())
    if total <= most:
        return dict(ends)
    return {
        queue: (first, first + min(behind - first, -(-(behind - first) * most // total)))
        for queue, (first, behind) in ends.items()
    }
