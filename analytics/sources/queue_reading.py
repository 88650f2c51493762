"""Reads a task's share of queues: pulled in bulk, decoded in bulk."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from analytics.errors import DamageError, DataLossError
from analytics.remote.connections import open_cluster
from analytics.remote.pull import PulledRange
from analytics.schemas import BROKER_NAME, DAMAGE_COLUMN
from analytics.sources.options import Mode, mode_for
from analytics.sources.rocketmq_options import FORMAT
from analytics.sources.shape import arrow_schema_of
from analytics.store.bulk import chosen
from analytics.store.decode import COLUMN_TYPES, PERMISSIVE_WORDS, Damage, RecordDecoder
from broker_core.formats.record_columns import RecordBuffer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from analytics.remote.cluster import Cluster
    from analytics.remote.connections import OpenCluster
    from analytics.sources.queue_ranges import QueueRange
    from analytics.sources.rocketmq_options import ClusterOptions

logger = logging.getLogger(__name__)
_TYPES = {BROKER_NAME: pa.string(), **COLUMN_TYPES}

# Pulled and decoded at a time.
CHUNK_BYTES = 4 * 1024 * 1024
NO_RECORD = "the broker sent bytes that aren't a record"


class QueueShareReader:
    """Reads shares, in any process: holds only options, no connection."""

    def __init__(self, wanted: ClusterOptions, schema: StructType) -> None:
        self._options = wanted
        self._schema = schema
        arrow_schema_of(FORMAT, schema, _TYPES)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema_of(FORMAT, self._schema, _TYPES)
        fails = mode_for(self._options.mode, self._schema) is Mode.FAILFAST
        with open_cluster(self._options.access) as cluster:
            for one in partition.value:
                reading = _Reading(self._options, schema, one, fail_on_damage=fails)
                yield from reading.batches(cluster)


class _Reading:
    """Reads one range once."""

    def __init__(
        self, wanted: ClusterOptions, schema: pa.Schema, part: QueueRange, *, fail_on_damage: bool
    ) -> None:
        self._options = wanted
        self._fail_on_damage = fail_on_damage
        self._schema = schema
        self._part = part
        self._decoder = RecordDecoder(
            pa.schema([field for field in schema if field.name != BROKER_NAME]),
            wanted.rows,
            check_crc=wanted.check_crc,
            decompress=wanted.decompress,
            is_log=False,
            fail_on_damage=self._fail_on_damage,
        )

    def batches(self, cluster: OpenCluster) -> Iterator[pa.RecordBatch]:
        part, wanted = self._part, self._options
        pulled = PulledRange(part.queue, part.first, part.behind, wanted.consumer_group)
        chunks = Chunks(pulled)
        damages: list[Damage] = []
        try:
            while data := cluster.run(chunks.following):
                batch = self._decoded(data, damages)
                if batch.num_rows:
                    yield batch
        finally:
            cluster.run(chunks.close)
        if damages and self._fail_on_damage:
            raise DamageError(
                f"A message of {part.queue} is damaged ({damages[0].reason}). {PERMISSIVE_WORDS}"
            )
        for first, behind in pulled.lost:
            lost = f"the offsets {first} to {behind} no longer exist"
            if wanted.fail_on_data_loss:
                raise DataLossError(
                    f"Messages of {part.queue} are gone ({lost}). They expired, or the topic was "
                    "created again. Set failOnDataLoss=false to count them as damage instead."
                )
            damages.append(Damage(str(part.queue), None, None, lost))
        if damages and DAMAGE_COLUMN in self._schema.names:
            yield self._whole(self._decoder.damage_batch(damages))
        for damage in damages:
            logger.warning("damaged range file=%s reason=%s", damage.file, damage.reason)

    def _decoded(self, data: bytes, damages: list[Damage]) -> pa.RecordBatch:
        buffer = RecordBuffer(memoryview(data))
        found = chosen().walk(buffer, 0, len(data))
        at = str(self._part.queue)
        if found.stopped_at < len(data):
            damages.append(Damage(at, None, None, NO_RECORD))
        positions = found.positions
        numbers = buffer.heads[positions]["queue_offset"].astype(np.int64)
        # A pull may return messages outside the range.
        positions = positions[(numbers >= self._part.first) & (numbers < self._part.behind)]
        batch, bad = self._decoder.decode(buffer, positions, 0)
        damages += [Damage(at, None, None, one.reason) for one in bad]
        return self._whole(batch)

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the broker's name if that is a column."""
        name = pa.array([self._part.queue.broker_name] * batch.num_rows, type=pa.string())
        columns = [
            name if field.name == BROKER_NAME else batch[field.name] for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class Chunks:
    """The records of a range, combined into chunks that are efficient to decode."""

    def __init__(self, pulled: PulledRange) -> None:
        self._pulled = pulled
        self._bodies: AsyncGenerator[bytes] | None = None

    async def following(self, cluster: Cluster) -> bytes:
        """Return the next records, empty at the end."""
        if self._bodies is None:
            self._bodies = self._pulled.bodies(cluster)
        parts: list[bytes] = []
        size = 0
        async for body in self._bodies:
            parts.append(body)
            size += len(body)
            if size >= CHUNK_BYTES:
                break
        return b"".join(parts)

    async def close(self, cluster: Cluster) -> None:
        """Stop reading, possibly before the end."""
        if self._bodies is not None:
            await self._bodies.aclose()
