"""Ranges of queues: where each range begins and ends, and how ranges are divided into tasks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from analytics.errors import DataLossError, ReportError
from analytics.remote.cluster import Cluster, Queue, at_once
from analytics.sources.assignment import assigned
from analytics.sources.queue_offsets import EARLIEST, LATEST
from analytics.sources.stored_times import first_stored_from, stored_ms_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from analytics.sources.rocketmq_options import ClusterOptions

    Extents = Mapping[Queue, tuple[int, int]]

# Queues with fewer messages share a task.
MESSAGES_A_TASK = 100_000


class QueueRange(NamedTuple):
    """The messages `[first, behind)` of a queue."""

    queue: Queue
    first: int
    behind: int

    @property
    def size(self) -> int:
        return self.behind - self.first


class QueueShare(InputPartition):
    """One task's ranges."""

    def __init__(self, share: Sequence[QueueRange]) -> None:
        super().__init__(tuple(share))


async def frame_ranges(wanted: ClusterOptions, cluster: Cluster) -> list[QueueRange]:
    """Return the ranges that a frame reads.

    Raises:
        DataLossError: a given offset is after the end of its queue.
        ReportError: an option names something that doesn't exist, or no broker responds.
    """
    cluster.forget_routes()
    extents = await cluster.extents(await assigned(cluster, wanted))
    starting = await starts(cluster, wanted, extents, default=EARLIEST)
    ending = await _ends(cluster, wanted, extents)
    ranges = [QueueRange(queue, starting[queue], ending[queue]) for queue in extents]
    return [one for one in ranges if one.size > 0]


async def starts(
    cluster: Cluster, wanted: ClusterOptions, extents: Extents, *, default: int
) -> dict[Queue, int]:
    """Return the first offset to read of each queue.

    Raises:
        DataLossError: a given offset is after the end of its queue.
        ReportError: a broker doesn't respond; or no message is new enough, and the strategy is to
            fail.
    """

    async def first_of(queue: Queue) -> int:
        least, behind = extents[queue]
        if wanted.rows.from_ms is not None:
            await _require_stored_from(cluster, wanted, queue, wanted.rows.from_ms, behind)
            # If several messages have the same time, brokers return any of them; search for the
            # time before.
            at = await cluster.offset_by_time(queue, max(0, wanted.rows.from_ms - 1))
            return max(least, min(at, behind))
        if wanted.starting_times is not None:
            at_ms = wanted.starting_times.get(queue)
            if at_ms is None:
                return least
            await _require_stored_from(cluster, wanted, queue, at_ms, behind)
            return await first_stored_from(
                cluster, queue, at_ms, (least, behind), wanted.consumer_group
            )
        if isinstance(wanted.starting, dict):
            first = _placed(wanted.starting.get(queue, EARLIEST), least, behind)
            _require_reached(wanted, queue, first, behind)
            return first
        return _placed(default if wanted.starting is None else wanted.starting, least, behind)

    return await _of_each(first_of, extents)


async def _ends(cluster: Cluster, wanted: ClusterOptions, extents: Extents) -> dict[Queue, int]:
    async def end_of(queue: Queue) -> int:
        least, behind = extents[queue]
        if wanted.rows.to_ms is not None:
            # The broker may return the last message before the time.
            return min(behind, await cluster.offset_by_time(queue, wanted.rows.to_ms) + 1)
        if wanted.ending_times is not None and queue in wanted.ending_times:
            at_ms = wanted.ending_times[queue]
            return await first_stored_from(
                cluster, queue, at_ms, (least, behind), wanted.consumer_group
            )
        if isinstance(wanted.ending, dict):
            end = _placed(wanted.ending.get(queue, LATEST), least, behind)
            _require_reached(wanted, queue, end, behind)
            return min(behind, end)
        return behind

    return await _of_each(end_of, extents)


def shared(
    ranges: Sequence[QueueRange], min_partitions: int = 0, max_records: int | None = None
) -> list[InputPartition]:
    """Divide ranges into tasks: small ones share a task, large ones are cut.

    There are at least `min_partitions` tasks if there are enough messages, and each task has at
    most `max_records` messages.
    """
    if max_records is not None:
        ranges = [piece for one in ranges for piece in _cut(one, -(-one.size // max_records))]
    if min_partitions:
        total = sum(one.size for one in ranges)
        pieces = [
            piece
            for one in ranges
            for piece in _cut(one, max(1, round(min_partitions * one.size / total)))
        ]
        largest = max(pieces, key=lambda one: one.size, default=None)
        while largest is not None and largest.size > 1 and len(pieces) < min_partitions:
            pieces.remove(largest)
            pieces += _cut(largest, 2)
            largest = max(pieces, key=lambda one: one.size)
        return [QueueShare([one]) for one in pieces] or [QueueShare(())]
    most = min(MESSAGES_A_TASK, max_records or MESSAGES_A_TASK)
    shares: list[list[QueueRange]] = []
    size = 0
    for one in ranges:
        if not shares or size + one.size > most:
            shares.append([])
            size = 0
        shares[-1].append(one)
        size += one.size
    # Spark adds a default partition if the list is empty.
    return [QueueShare(share) for share in shares] or [QueueShare(())]


async def _require_stored_from(
    cluster: Cluster, wanted: ClusterOptions, queue: Queue, at_ms: int, behind: int
) -> None:
    if not wanted.fails_without_match:
        return
    last = await stored_ms_at(cluster, queue, behind - 1, wanted.consumer_group) if behind else None
    if last is None or last < at_ms:
        raise ReportError(
            f"{queue} has no message stored at {at_ms} or later. Set "
            "startingOffsetsByTimestampStrategy=latest to read the queue from its end."
        )


def _require_reached(wanted: ClusterOptions, queue: Queue, offset: int, behind: int) -> None:
    if offset > behind and wanted.fail_on_data_loss:
        raise DataLossError(
            f"{queue} ends at {behind}, before the offset {offset} that the options name. The "
            "topic was created again, or its broker lost messages. Set "
            "failOnDataLoss=false to read the queue to its end."
        )


async def _of_each(find: Callable[[Queue], Awaitable[int]], extents: Extents) -> dict[Queue, int]:
    queues = list(extents)
    return dict(zip(queues, await at_once(find, queues), strict=True))


def _placed(offset: int, least: int, behind: int) -> int:
    return {EARLIEST: least, LATEST: behind}.get(offset, offset)


def _cut(one: QueueRange, count: int) -> list[QueueRange]:
    count = min(count, one.size)
    edges = [one.first + one.size * number // count for number in range(count + 1)]
    return [QueueRange(one.queue, first, behind) for first, behind in pairwise(edges)]
