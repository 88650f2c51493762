"""Writes a frame or a stream to a cluster: each row is a message, sent at least once.

    frame.select("body", "keys").write.format("rocketmq").mode("append")
        .option("namesrvAddr", "127.0.0.1:9876").option("topic", "orders").save()

A row may have only these columns; `body` is required:

    body          binary or string
    topic         defaults to the option `topic`
    tags          string
    keys          an array of strings, or a string with spaces between several keys
    uniq_key      string; defaults to a digest, see below
    properties    a map of strings
    queue_id      int: the queue; requires broker_name if several brokers have it
    broker_name   string
    sharding_key  string: messages of a task with the same key go to the same queue, in order
    delay_level   int: the broker's delay level, from 1 on
    deliver_at    timestamp: when consumers get the message (RocketMQ 4.9 ignores it)

Spark repeats failed tasks and unfinished batches of a stream, so a message may be stored twice.
Both copies have the same UNIQ_KEY: the column uniq_key, or a digest of the row, the task's number,
the number of equal rows before it in the task, and the write. A stream's write is identified by its
query and batch, a frame's write by a random identifier. The option `idempotenceScope` replaces the
query or the random identifier.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import secrets
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    TimestampType,
)

from analytics.errors import ReportError
from analytics.remote.connections import open_cluster
from analytics.remote.send import Outgoing, Sender, check_properties
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from analytics.remote.cluster import Cluster
    from analytics.sources.rocketmq_options import ClusterOptions

logger = logging.getLogger(__name__)

COLUMNS: dict[str, tuple[DataType, ...]] = {
    "body": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "tags": (StringType(),),
    "keys": (ArrayType(StringType()), ArrayType(StringType(), containsNull=False), StringType()),
    "uniq_key": (StringType(),),
    "properties": (
        MapType(StringType(), StringType()),
        MapType(StringType(), StringType(), valueContainsNull=False),
    ),
    "queue_id": (IntegerType(),),
    "broker_name": (StringType(),),
    "sharding_key": (StringType(),),
    "delay_level": (IntegerType(),),
    "deliver_at": (TimestampType(),),
}
DIGEST_CHARS = 32
# MessageConst.PROPERTY_SHARDING_KEY, PROPERTY_TIMER_DELIVER_MS (5.3).
SHARDING_KEY, TIMER_DELIVER_MS = "__SHARDINGKEY", "TIMER_DELIVER_MS"
# Spark sets both for the tasks of a stream (StreamExecution, MicroBatchExecution).
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


@dataclass
class Sent(WriterCommitMessage):
    """The number of messages that a task sent."""

    messages: int


class _Writing:
    """The common part of batch and stream writers; pickled to the tasks."""

    def __init__(self, wanted: ClusterOptions, schema: StructType) -> None:
        _check(schema, wanted.topic)
        self._options = wanted
        self._at_random = secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        messages = Messages(self._options.topic, f"{self._scope(context)}/{task}")
        count = 0
        with open_cluster(self._options.access) as cluster:
            sender = Sender(cluster.cluster, self._options.producer_group)
            for batch in iterator:
                outgoing = [messages.of(row) for row in batch.to_pylist()]
                cluster.run(functools.partial(_send, sender, outgoing))
                count += len(outgoing)
        return Sent(count)

    def _scope(self, context: TaskContext | None) -> str:
        """Return an identifier that stays the same if this write is repeated, and is different for
        every other write.
        """
        return self._options.idempotence_scope or self._at_random


class RocketMqWriter(_Writing, DataSourceArrowWriter):
    """Sends the rows of a frame."""

    def __init__(self, wanted: ClusterOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ReportError("A topic can't be overwritten. Write with mode('append').")
        super().__init__(wanted, schema)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_sent(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_kept(messages)


class RocketMqStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Sends the rows of each batch of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_sent(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_kept(messages)

    def _scope(self, context: TaskContext | None) -> str:
        query = context and context.getLocalProperty(QUERY_ID)
        batch = context and context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise ReportError(
                "Spark doesn't say which batch of the stream this is, so a batch that is repeated "
                "couldn't be recognized. Write with foreachBatch, and give each batch an "
                "idempotenceScope of its own."
            )
        return f"{self._options.idempotence_scope or query}/{batch}"


class Messages:
    """Turns the rows of one task into messages; call in row order."""

    def __init__(self, topic: str, scope: str) -> None:
        self._topic = topic
        self._scope = scope
        self._seen: Counter[bytes] = Counter()

    def of(self, row: Mapping[str, Any]) -> Outgoing:
        """Return the message of a row.

        Raises:
            ReportError: the body or topic is missing, or a broker couldn't store its properties.
        """
        topic = row.get("topic") or self._topic
        wrong = names.check_topic(topic or "")
        if wrong is not None:
            raise ReportError(f"A row names the topic {topic!r}, which isn't valid. {wrong}")
        if names.is_not_allowed_send_topic(topic):
            raise ReportError(f"Sending to the topic {topic} isn't allowed.")
        body = row["body"]
        if not body:
            raise ReportError(
                f"A row for the topic {topic} has no body. Brokers reject messages without a body."
            )
        data = body.encode() if isinstance(body, str) else bytes(body)
        found = {name: value for name, value in dict(row.get("properties") or {}).items() if value}
        of_columns = {
            names.PROPERTY_TAGS: row.get("tags"),
            names.PROPERTY_KEYS: _keys(row.get("keys")),
            names.PROPERTY_UNIQ_KEY: row.get("uniq_key"),
            SHARDING_KEY: row.get("sharding_key"),
            **_delay(row.get("delay_level"), row.get("deliver_at")),
        }
        found |= {name: value for name, value in of_columns.items() if value}
        if not row.get("uniq_key"):
            found[names.PROPERTY_UNIQ_KEY] = self._digest(topic, data, found)
        found.setdefault(names.PROPERTY_WAIT_STORE_MSG_OK, "true")
        check_properties(found)
        return Outgoing(topic, data, found, *_queue(row))

    def _digest(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        content = hashlib.sha256()
        texts = [text for pair in sorted(properties.items()) for text in pair]
        for part in (self._scope, topic, *texts):
            data = part.encode()
            content.update(b"%d:%b" % (len(data), data))
        content.update(body)
        same = content.digest()
        before = self._seen[same]
        self._seen[same] += 1
        return hashlib.sha256(b"%b%d" % (same, before)).hexdigest().upper()[:DIGEST_CHARS]


async def _send(sender: Sender, outgoing: list[Outgoing], _: Cluster) -> None:
    await sender.send_all(outgoing)


def _keys(keys: list[str | None] | str | None) -> str | None:
    """Return keys as RocketMQ stores them, separated by spaces."""
    if not isinstance(keys, list):
        return keys
    present = [key for key in keys if key]
    for key in present:
        if names.KEY_SEPARATOR in key:
            raise ReportError(
                f"The key {key!r} contains a space, which separates keys in RocketMQ, so it would "
                "be stored as several keys. Replace the space."
            )
    return names.KEY_SEPARATOR.join(present)


def _delay(level: int | None, deliver_at: datetime | None) -> dict[str, str]:
    if not level and deliver_at is None:
        return {}
    if level and deliver_at is not None:
        raise ReportError("A row has both delay_level and deliver_at; set one of them.")
    if deliver_at is not None:
        return {TIMER_DELIVER_MS: str((deliver_at - EPOCH) // MS)}
    if level is not None and level < 0:
        raise ReportError(f"A row has the delay_level {level}; delay levels begin at 1.")
    return {names.PROPERTY_DELAY_TIME_LEVEL: str(level)}


def _queue(row: Mapping[str, Any]) -> tuple[str, int | None, str]:
    """Return a row's sharding key, queue and broker."""
    sharding_key, queue_id = row.get("sharding_key") or "", row.get("queue_id")
    broker_name = row.get("broker_name") or ""
    if sharding_key and queue_id is not None:
        raise ReportError("A row has both sharding_key and queue_id; set one of them.")
    if broker_name and queue_id is None:
        raise ReportError("A row has a broker_name without a queue_id; set both.")
    return sharding_key, queue_id, broker_name


def _check(schema: StructType, topic: str) -> None:
    for field in schema:
        if field.name not in COLUMNS:
            raise ReportError(
                f"rocketmq can't write the column {field.name}; it writes {', '.join(COLUMNS)}."
            )
        if field.dataType not in COLUMNS[field.name]:
            right = COLUMNS[field.name][0].simpleString()
            raise ReportError(
                f"The column {field.name} is {field.dataType.simpleString()}; to be written it "
                f"must be {right}."
            )
    if "body" not in schema.names:
        raise ReportError("The frame has no column body, which rocketmq needs to write messages.")
    if "topic" not in schema.names and not topic:
        raise ReportError("rocketmq needs the option topic, or a column topic in the frame.")


def _log_sent(messages: list[WriterCommitMessage | None]) -> None:
    logger.info("messages sent messages=%d", _count(messages))


def _log_kept(messages: list[WriterCommitMessage | None]) -> None:
    logger.warning("write failed, some messages were sent messages_min=%d", _count(messages))


def _count(messages: list[WriterCommitMessage | None]) -> int:
    return sum(each.messages for each in messages if isinstance(each, Sent))
