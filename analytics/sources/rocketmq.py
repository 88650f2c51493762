"""The `rocketmq` data source of Spark: topics of any RocketMQ cluster, over TCP.

    spark.read.format("rocketmq").option("namesrvAddr", "127.0.0.1:9876")
         .option("subscribe", "orders").load()
    spark.readStream.format("rocketmq") ...        frame.write.format("rocketmq").mode("append") ...

Rows are those of `commitlog`, with the broker's name; options are named like those of Spark's Kafka
source. Reading requires one of subscribe, subscribePattern and assign:

    namesrvAddr           name servers, host:port, separated by semicolons
    subscribe             topics, separated by commas
    subscribePattern      a regular expression that matches whole topic names
    assign                queues: {"orders": {"broker-a": [0, 1]}}
    startingOffsets       earliest (a frame's default), latest (a stream's), or
                          {"orders": {"broker-a": {"0": 23, "1": -2}}}; -2 is the earliest, -1 the
                          latest; a missing queue begins at its earliest
    endingOffsets         latest, or such JSON; frames only
    startingTimestamp     stored at or after, ms since epoch; instead of startingOffsets
    endingTimestamp       stored before; instead of endingOffsets
    minPartitions         minimum number of reading tasks
    maxOffsetsPerTrigger  maximum messages in one batch of a stream, over all queues
    failOnDataLoss        true: reading fails if messages have expired or a queue is missing. false:
                          missing data is damage
    includeHeaders        true; false leaves the column properties out of the default schema
    includeSystemTopics   false; true includes the brokers' internal messages
    decompress, checkCrc  as for `commitlog`
    consumerGroup         the group that pulls messages; its offsets aren't changed
    accessKey, secretKey, secretKeyFile    the account for clusters with access control
    tls, tlsCaFile, tlsVerify              whether and how connections are secured
    timeoutMs             timeout of a request

rocketmq_writer.py describes writing. Source: pyspark.sql.datasource (4.3),
PullMessageProcessor.java (4.9.7, 5.3.3).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from analytics.remote.connections import open_cluster
from analytics.schemas import CLUSTER_MESSAGES
from analytics.sources.queue_ranges import frame_ranges, shared
from analytics.sources.queue_reading import QueueShareReader
from analytics.sources.rocketmq_options import FORMAT, ClusterOptions, parse_options
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
    """Checks the options and creates readers and writers. Spark calls it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if self._options.include_headers:
            return CLUSTER_MESSAGES
        return StructType([field for field in CLUSTER_MESSAGES if field.name != "properties"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return RocketMqReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return RocketMqStreamReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RocketMqWriter(self._options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return RocketMqStreamWriter(self._options, schema)


class RocketMqReader(QueueShareReader, DataSourceReader):
    """Plans and reads a frame."""

    def __init__(self, wanted: ClusterOptions, schema: StructType) -> None:
        super().__init__(wanted.for_reading(), schema)

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self._options
        with open_cluster(wanted.access) as cluster:
            ranges = cluster.run(functools.partial(frame_ranges, wanted))
        return shared(ranges, wanted.min_partitions, wanted.max_records_per_partition)
