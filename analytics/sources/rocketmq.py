"""The `rocketmq` data source of Spark: topics of any RocketMQ cluster, over TCP.

    spark.read.format("rocketmq").option("namesrvAddr", "127.0.0.1:9876")
         .option("subscribe", "orders").load()
    spark.readStream.format("rocketmq") ...        frame.write.format("rocketmq").mode("append") ...

Its rows are those of `commitlog`, with the broker's name; its options are named as those of Spark's
Kafka source. One of subscribe, subscribePattern and assign is needed for reading:

    namesrvAddr           name servers, host:port, with semicolons between them
    subscribe             topics, with commas between them
    subscribePattern      a regular expression that whole names of topics match
    assign                queues: {"orders": {"broker-a": [0, 1]}}
    startingOffsets       earliest (a frame's default), latest (a stream's), or
                          {"orders": {"broker-a": {"0": 23, "1": -2}}}; -2 is the earliest, -1 the
                          latest; a queue that is left out begins at its earliest
    endingOffsets         latest, or such JSON; frames only
    startingTimestamp     stored at or after, ms since epoch; instead of startingOffsets
    endingTimestamp       stored before; instead of endingOffsets
    minPartitions         how many tasks read at least
    maxOffsetsPerTrigger  how many messages one batch of a stream takes, over all queues
    failOnDataLoss        true: reading fails when messages have expired or a queue has gone. false:
                          what is gone is damage
    includeHeaders        true; false leaves the column properties out of the default schema
    includeSystemTopics   false; true shows what brokers keep for themselves, too
    decompress, checkCrc  as of `commitlog`
    consumerGroup         the group in whose name messages are pulled; its offsets stay untouched
    accessKey, secretKey, secretKeyFile    the account at clusters with access control
    tls, tlsCaFile, tlsVerify              whether and how connections are secured
    timeoutMs             how long one answer may take

rocketmq_writer.py describes writing. Source: pyspark.sql.datasource (4.3),
PullMessageProcessor.java (4.9.7, 5.3.3).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from analytics.remote.opened import open_cluster
from analytics.schemas import CLUSTER_MESSAGES
from analytics.sources.queue_ranges import frame_ranges, shared
from analytics.sources.queue_reading import QueueShareReader
from analytics.sources.rocketmq_options import FORMAT, Wanted, parse_options
from analytics.sources.rocketmq_stream import RocketMqStreamReader
from analytics.sources.rocketmq_writer import RocketMqStreamWriter, RocketMqWriter

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
    )


class RocketMqDataSource(DataSource):
    """Checks the options and makes readers and writers. Spark calls it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._wanted = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if self._wanted.include_headers:
            return CLUSTER_MESSAGES
        return StructType([field for field in CLUSTER_MESSAGES if field.name != "properties"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return RocketMqReader(self._wanted, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return RocketMqStreamReader(self._wanted, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RocketMqWriter(self._wanted, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return RocketMqStreamWriter(self._wanted, schema)


class RocketMqReader(QueueShareReader, DataSourceReader):
    """Plans and reads a frame."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        super().__init__(wanted.for_reading(), schema)

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self._wanted
        with open_cluster(wanted.access) as cluster:
            ranges = cluster.run(functools.partial(frame_ranges, wanted))
        return shared(ranges, wanted.min_partitions, wanted.max_records_per_partition)
