"""Send to a broker, and read it by the cluster source without Spark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType

from analytics.remote.access import Access
from analytics.remote.cluster import Cluster
from analytics.remote.send import Outgoing, Sender
from analytics.schemas import CLUSTER_MESSAGES, DAMAGE, DAMAGE_COLUMN
from analytics.sources.rocketmq import RocketMqReader
from analytics.sources.rocketmq_options import parse_options
from analytics.sources.rocketmq_stream import RocketMqStreamReader
from tests.support import raw_remoting

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

    from broker_core.clock import Clock
    from tests.support.broker_process import BrokerProcess

NAMESRV = "127.0.0.1:9876"
WITH_DAMAGE = StructType([*CLUSTER_MESSAGES.fields, StructField(DAMAGE_COLUMN, DAMAGE)])
DELETE_TOPIC_IN_BROKER = 215


def send(broker: BrokerProcess, topic: str, count: int, *, first: int = 0) -> list[bytes]:
    bodies = [b"%06d" % number for number in range(first, first + count)]
    outgoing = [Outgoing(topic, body, {"KEYS": f"k{body.decode()} all"}) for body in bodies]

    async def sent() -> None:
        async with Cluster(Access((broker.namesrv,))) as cluster:
            sender = Sender(cluster, "pg")
            # One after the other, so that each queue has every second message.
            for message in outgoing:
                await sender.send_all([message])

    asyncio.run(sent())
    return bodies


def delete_topic(broker: BrokerProcess, topic: str) -> None:
    with raw_remoting.RawClient(broker.port) as client:
        answer = client.ask(DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert answer.code == raw_remoting.SUCCESS, answer


def recreate_topic(broker: BrokerProcess, topic: str) -> None:
    delete_topic(broker, topic)
    raw_remoting.create_topic(broker.port, topic, queues=2)


def options_of(broker: BrokerProcess, **options: Any) -> dict[str, str]:
    return {
        "namesrvAddr": broker.namesrv,
        **{name: str(value) for name, value in options.items()},
    }


def reader_of(
    broker: BrokerProcess, schema: StructType = CLUSTER_MESSAGES, /, **options: Any
) -> RocketMqReader:
    return RocketMqReader(parse_options(options_of(broker, **options)), schema)


def rows_of(reader: RocketMqReader) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def bodies_of(reader: RocketMqReader) -> list[bytes]:
    return sorted(row["body"] for row in rows_of(reader))


def stream_of(
    broker: BrokerProcess, clock: Clock | None = None, /, **options: Any
) -> RocketMqStreamReader:
    return RocketMqStreamReader(
        parse_options(options_of(broker, **options)), CLUSTER_MESSAGES, clock
    )


def stream_bodies(
    stream: RocketMqStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[bytes]:
    return [
        body
        for partition in stream.partitions(start, end)
        for batch in stream.read(partition)
        for body in batch["body"].to_pylist()
    ]


def followed(
    stream: RocketMqStreamReader, start: dict[str, Any], limit: ReadLimit | None = None
) -> tuple[list[bytes], dict[str, Any]]:
    """Read batch after batch to the end; return the bodies and the final offset."""
    found: list[bytes] = []
    while (end := stream.latestOffset(start, limit or ReadAllAvailable())) != start:
        found += stream_bodies(stream, start, end)
        start = end
    return found, start
