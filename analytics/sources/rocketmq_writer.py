"""Writing a frame or a stream to a cluster: each row a message, at least once.

    frame.select("body", "keys").write.format("rocketmq").mode("append")
        .option("namesrvAddr", "127.0.0.1:9876").option("topic", "orders").save()

Columns: body (binary or string), and as far as they are there topic (else the option `topic`),
tags, keys (an array of strings, or a string), uniq_key, properties (a map of strings). Others are
refused.

A task that fails is done again, and what it had sent is sent again, too. Whoever must not handle a
message twice tells it by its UNIQ_KEY: the column uniq_key, else a digest of the row, of the task's
number, of how often the task had the same row before, and of the option `idempotenceScope`. By
default that is another one for each write; in foreachBatch, give the number of the batch.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType

from analytics.errors import ReportError
from analytics.remote.cluster import Cluster
from analytics.remote.send import Outgoing, Sender, check_properties
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from analytics.sources.rocketmq_options import Wanted

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
}
DIGEST_CHARS = 32


@dataclass
class Sent(WriterCommitMessage):
    """How many messages a task sent."""

    messages: int


class _Writing:
    """What batch and stream writers share; pickled to the tasks."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        _check(schema, wanted.topic)
        self._wanted = wanted
        self._scope = wanted.idempotence_scope or secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        messages = Messages(
            self._wanted.topic, f"{self._scope}/{context.partitionId() if context else 0}"
        )
        return Sent(asyncio.run(self._send(iterator, messages)))

    async def _send(self, batches: Iterator[pa.RecordBatch], messages: Messages) -> int:
        count = 0
        async with Cluster(self._wanted.access) as cluster:
            sender = Sender(cluster, self._wanted.producer_group)
            for batch in batches:
                outgoing = [messages.of(row) for row in batch.to_pylist()]
                await sender.send_all(outgoing)
                count += len(outgoing)
        return count


class RocketMqWriter(_Writing, DataSourceArrowWriter):
    """Sends the rows of a frame."""

    def __init__(self, wanted: Wanted, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ReportError('A topic is never overwritten: write with mode("append").')
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


class Messages:
    """Makes messages of one task's rows; the order of calls is that of the rows."""

    def __init__(self, topic: str, scope: str) -> None:
        self._topic = topic
        self._scope = scope
        self._seen: Counter[bytes] = Counter()

    def of(self, row: Mapping[str, Any]) -> Outgoing:
        """Return the message of a row.

        Raises:
            ReportError: it lacks a body or a topic, or a broker could not store its properties.
        """
        topic = row.get("topic") or self._topic
        wrong = names.check_topic(topic or "")
        if wrong is not None:
            raise ReportError(f"A row cannot be sent to the topic {topic!r}: {wrong}")
        if names.is_not_allowed_send_topic(topic):
            raise ReportError(f"Nobody may send to the topic {topic}.")
        body = row["body"]
        if not body:
            raise ReportError(f"A row for the topic {topic} has no body: brokers refuse that.")
        data = body.encode() if isinstance(body, str) else bytes(body)
        found = {name: value for name, value in dict(row.get("properties") or {}).items() if value}
        keys = row.get("keys")
        if isinstance(keys, list):
            keys = names.KEY_SEPARATOR.join(key for key in keys if key)
        of_columns = {
            names.PROPERTY_TAGS: row.get("tags"),
            names.PROPERTY_KEYS: keys,
            names.PROPERTY_UNIQ_KEY: row.get("uniq_key"),
        }
        found |= {name: value for name, value in of_columns.items() if value}
        if not row.get("uniq_key"):
            found[names.PROPERTY_UNIQ_KEY] = self._digest(topic, data, found)
        found.setdefault(names.PROPERTY_WAIT_STORE_MSG_OK, "true")
        check_properties(found)
        return Outgoing(topic, data, found)

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


def _check(schema: StructType, topic: str) -> None:
    for field in schema:
        if field.name not in COLUMNS:
            raise ReportError(
                f"rocketmq writes no column {field.name}; it writes {', '.join(COLUMNS)}."
            )
        if field.dataType not in COLUMNS[field.name]:
            right = COLUMNS[field.name][0].simpleString()
            raise ReportError(
                f"The column {field.name} is {field.dataType.simpleString()}; to be written it "
                f"must be {right}."
            )
    if "body" not in schema.names:
        raise ReportError("rocketmq writes messages with a body: the frame has no column body.")
    if "topic" not in schema.names and not topic:
        raise ReportError("rocketmq needs the option topic, or a column topic in the frame.")


def _log_sent(messages: list[WriterCommitMessage | None]) -> None:
    logger.info("sent: messages=%d", _count(messages))


def _log_kept(messages: list[WriterCommitMessage | None]) -> None:
    logger.warning("the write failed; messages that stay sent: at least %d", _count(messages))


def _count(messages: list[WriterCommitMessage | None]) -> int:
    return sum(each.messages for each in messages if isinstance(each, Sent))
