"""Ranges of queues: which are to be read, in what tasks, and the reading of a task's share."""

from __future__ import annotations

import asyncio
import logging
import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from analytics.errors import DataLossError
from analytics.remote.cluster import Cluster, Queue
from analytics.remote.pull import PulledRange
from analytics.schemas import BROKER_NAME, DAMAGE_COLUMN
from analytics.sources.queue_offsets import EARLIEST, LATEST
from analytics.sources.rocketmq_options import FORMAT
from analytics.sources.shape import arrow_schema_of
from analytics.store.bulk import chosen
from analytics.store.decode import COLUMN_TYPES, Damage, RecordDecoder
from broker_core.formats.record_columns import RecordBuffer
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from analytics.sources.rocketmq_options import Wanted

logger = logging.getLogger(__name__)
_TYPES = {BROKER_NAME: pa.string(), **COLUMN_TYPES}

# Queues with fewer messages share a task.
MESSAGES_A_TASK = 100_000
# Pulled and decoded at once.
CHUNK_BYTES = 4 * 1024 * 1024
NO_RECORD = "the broker sent what is no record"


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


async def assigned(cluster: Cluster, wanted: Wanted) -> list[Queue]:
    """Return the queues that the options name, as they are now.

    Raises:
        ReportError: a topic that is named does not exist, or nobody answers.
    """
    if wanted.queues is not None:
        known = {topic: await cluster.route(topic) for topic in {q.topic for q in wanted.queues}}
        return [queue for queue in wanted.queues if queue in known[queue.topic].reads]
    topics = wanted.topics
    if wanted.pattern is not None:
        matches = re.compile(wanted.pattern).fullmatch
        topics = frozenset(
            topic
            for topic in await cluster.topics()
            if matches(topic)
            and (wanted.rows.include_system_topics or not names.is_system_topic(topic))
        )
    return [queue for topic in sorted(topics or ()) for queue in (await cluster.route(topic)).reads]


async def frame_ranges(cluster: Cluster, wanted: Wanted) -> list[QueueRange]:
    """Return what a frame reads.

    Raises:
        ReportError: nobody answers, or an offset lies behind the end of its queue.
    """
    queues = await assigned(cluster, wanted)
    extents = await cluster.extents(queues)
    starting = await starts(cluster, wanted, extents, default=EARLIEST)
    found = []
    for queue, (least, behind) in extents.items():
        first = starting[queue]
        if wanted.rows.to_ms is not None:
            # The offset of a time may be that of the last message before it.
            behind = min(behind, await cluster.offset_by_time(queue, wanted.rows.to_ms) + 1)
        elif isinstance(wanted.ending, dict):
            behind = min(behind, _placed(wanted.ending.get(queue, LATEST), least, behind))
        found.append(QueueRange(queue, first, behind))
    return [one for one in found if one.size > 0]


async def starts(
    cluster: Cluster,
    wanted: Wanted,
    extents: Mapping[Queue, tuple[int, int]],
    *,
    default: int,
) -> dict[Queue, int]:
    """Return where the reading of each queue begins.

    Raises:
        DataLossError: an offset that was given lies behind the end of its queue.
        ReportError: a broker does not answer.
    """
    found: dict[Queue, int] = {}
    for queue, (least, behind) in extents.items():
        if wanted.rows.from_ms is not None:
            # Of several messages of one time brokers find any: look for the time before.
            at = await cluster.offset_by_time(queue, max(0, wanted.rows.from_ms - 1))
            found[queue] = max(least, min(at, behind))
        elif isinstance(wanted.starting, dict):
            first = _placed(wanted.starting.get(queue, EARLIEST), least, behind)
            if first > behind and wanted.fail_on_data_loss:
                raise DataLossError(
                    f"{queue} ends at {behind}, before the offset {first} where reading was to "
                    "begin: it was made anew, or lost its end. With the option "
                    "failOnDataLoss=false nothing is read of it."
                )
            found[queue] = first
        else:
            word = default if wanted.starting is None else wanted.starting
            found[queue] = _placed(word, least, behind)
    return found


def shared(ranges: Sequence[QueueRange], min_partitions: int) -> list[InputPartition]:
    """Return the ranges in tasks: small ones together, and large ones cut for `min_partitions`."""
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
    shares: list[list[QueueRange]] = []
    for one in ranges:
        if not shares or sum(each.size for each in shares[-1]) + one.size > MESSAGES_A_TASK:
            shares.append([])
        shares[-1].append(one)
    # Without a partition Spark would read one of its own.
    return [QueueShare(share) for share in shares] or [QueueShare(())]


class QueueShareReader:
    """Reads shares, in any process: holds options only, no connection."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self._wanted = wanted
        self._schema = schema
        arrow_schema_of(FORMAT, schema, _TYPES)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema_of(FORMAT, self._schema, _TYPES)
        with asyncio.Runner() as runner:
            cluster = runner.run(_connected(self._wanted))
            try:
                for one in partition.value:
                    yield from _Reading(self._wanted, schema, one).batches(runner, cluster)
            finally:
                runner.run(cluster.close())


async def _connected(wanted: Wanted) -> Cluster:
    return Cluster(wanted.access)


class _Reading:
    """Reads one range once."""

    def __init__(self, wanted: Wanted, schema: pa.Schema, part: QueueRange) -> None:
        self._wanted = wanted
        self._schema = schema
        self._part = part
        self._decoder = RecordDecoder(
            pa.schema([field for field in schema if field.name != BROKER_NAME]),
            wanted.rows,
            check_crc=wanted.check_crc,
            decompress=wanted.decompress,
            is_log=False,
        )

    def batches(self, runner: asyncio.Runner, cluster: Cluster) -> Iterator[pa.RecordBatch]:
        part, wanted = self._part, self._wanted
        pulled = PulledRange(part.queue, part.first, part.behind, wanted.consumer_group)
        bodies = pulled.bodies(cluster)
        damages: list[Damage] = []
        while data := runner.run(_chunk(bodies)):
            batch = self._decoded(data, damages)
            if batch.num_rows:
                yield batch
        for first, behind in pulled.lost:
            lost = f"the offsets {first} to {behind} are not there any more"
            if wanted.fail_on_data_loss:
                raise DataLossError(
                    f"Messages are gone: of {part.queue}, {lost}. They have expired, or the topic "
                    "was made anew; with the option failOnDataLoss=false they are counted as "
                    "damage instead."
                )
            damages.append(Damage(str(part.queue), None, None, lost))
        if damages and DAMAGE_COLUMN in self._schema.names:
            yield self._whole(self._decoder.damage_batch(damages))
        for damage in damages:
            logger.warning("damaged: %s: %s", damage.file, damage.reason)

    def _decoded(self, data: bytes, damages: list[Damage]) -> pa.RecordBatch:
        buffer = RecordBuffer(memoryview(data))
        found = chosen().walk(buffer, 0, len(data))
        at = str(self._part.queue)
        if found.stopped_at < len(data):
            damages.append(Damage(at, None, None, NO_RECORD))
        positions = found.positions
        numbers = buffer.heads[positions]["queue_offset"].astype(np.int64)
        # A pull may bring more than was asked for.
        positions = positions[(numbers >= self._part.first) & (numbers < self._part.behind)]
        batch, bad = self._decoder.decode(buffer, positions, 0)
        damages += [Damage(at, None, None, one.reason) for one in bad]
        return self._whole(batch)

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the broker's name where that is a column."""
        name = pa.array([self._part.queue.broker_name] * batch.num_rows, type=pa.string())
        columns = [
            name if field.name == BROKER_NAME else batch[field.name] for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


async def _chunk(bodies: AsyncIterator[bytes]) -> bytes:
    """Return the next records, empty at the end."""
    parts: list[bytes] = []
    size = 0
    async for body in bodies:
        parts.append(body)
        size += len(body)
        if size >= CHUNK_BYTES:
            break
    return b"".join(parts)


def _placed(offset: int, least: int, behind: int) -> int:
    return {EARLIEST: least, LATEST: behind}.get(offset, offset)


def _cut(one: QueueRange, count: int) -> list[QueueRange]:
    count = min(count, one.size)
    edges = [one.first + one.size * number // count for number in range(count + 1)]
    return [QueueRange(one.queue, first, behind) for first, behind in pairwise(edges)]
