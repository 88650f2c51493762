"""Writes one part of a batch: from a range of the log to Parquet files, in any process.

Both engines run this code, in this process or in Spark's workers. Readers don't see the files
before the batch is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.bodies import BodyRules
from analytics.lake.event_rows import EVENT_COLUMNS, OWN_TOPICS, event_rows, is_event
from analytics.lake.files import FileWriter
from analytics.lake.tables import DAY, EVENTS, MESSAGES, OF_A_MESSAGE, OFFSET
from analytics.store.decode import COLUMN_TYPES, DAMAGE_TYPE, RowFilter
from analytics.store.plan import SPLIT_BYTES_DEFAULT
from analytics.store.reader import StoreReader
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from analytics.lake.files import WrittenFile
    from analytics.lake.place import LakePlace
    from analytics.store.plan import Split

# Columns that may identify a person: the keys, and everything derived from them.
ERASED = ("keys", "uniq_key", "body")
# Only these properties survive an erasure: internal bookkeeping of broker and client.
KEPT_PROPERTIES = (
    names.PROPERTY_TAGS,
    names.PROPERTY_DELAY_TIME_LEVEL,
    names.PROPERTY_RETRY_TOPIC,
    names.PROPERTY_REAL_TOPIC,
    names.PROPERTY_REAL_QUEUE_ID,
    names.PROPERTY_TRANSACTION_PREPARED,
    names.PROPERTY_PRODUCER_GROUP,
    names.PROPERTY_RECONSUME_TIME,
    names.PROPERTY_MAX_RECONSUME_TIMES,
    names.PROPERTY_TRANSACTION_CHECK_TIMES,
    names.PROPERTY_MSG_REGION,
    names.PROPERTY_TRACE_SWITCH,
    names.PROPERTY_WAIT_STORE_MSG_OK,
    names.PROPERTY_CLUSTER,
)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Settings shared by all parts of a batch.

    Attributes:
        forgotten: offsets of messages whose content must stay erased.
        from_ms: messages stored earlier are left out.
        events_from: events before this offset are left out; they are in the lake already.
    """

    place: LakePlace
    store: Path
    commit_log: Path | None
    broker: str
    rules: BodyRules = field(default_factory=BodyRules)
    forgotten: frozenset[int] = frozenset()
    from_ms: int | None = None
    events_from: int = 0

    def reader(self, split_bytes: int = SPLIT_BYTES_DEFAULT) -> StoreReader:
        return StoreReader(self.store, commit_log_path=self.commit_log, split_bytes=split_bytes)


@dataclass(frozen=True, slots=True)
class Unread:
    """A range of the log that wasn't readable."""

    commit_log_from: int
    commit_log_to: int
    reason: str


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The files of one part: messages, events, and the ranges that weren't readable."""

    files: list[WrittenFile]
    events: list[WrittenFile]
    unread: list[Unread]


def write_part(task: WriteTask, splits: Sequence[Split]) -> WrittenPart:
    """Write the messages and events of some ranges of the log to durable, unpublished files."""
    schema = _read_schema(task)
    reader = task.reader()
    unread: list[Unread] = []
    rows = RowFilter(from_ms=task.from_ms)
    with FileWriter(task.place, MESSAGES) as messages, FileWriter(task.place, EVENTS) as events:
        for split in splits:
            for batch in reader.read(split, schema, rows, fail_on_data_loss=False):
                damage = batch.column("damage")
                if damage.null_count < len(damage):
                    unread += [
                        Unread(one["commit_log_from"], one["commit_log_to"], one["reason"])
                        for one in damage.to_pylist()
                    ]
                    continue
                messages.write(lake_rows(batch, task))
                _write_events(events, batch.filter(is_event(batch)), task)
            for batch in own_records(reader, split, task):
                _write_events(events, batch, task)
    return WrittenPart(messages.written, events.written, unread)


def events_in(task: WriteTask, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the events of a range of the log, as `write_part` writes them."""
    reader = task.reader()
    names_of = [name for name in EVENT_COLUMNS if name != "body"]
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in names_of])
    rows = RowFilter(from_ms=task.from_ms)
    for batch in reader.read(split, schema, rows, fail_on_data_loss=False):
        yield _events(batch.filter(is_event(batch)), task)
    for batch in own_records(reader, split, task):
        yield _events(batch, task)


def own_records(reader: StoreReader, split: Split, task: WriteTask) -> Iterator[pa.RecordBatch]:
    """Yield the events of a range among the broker's internal records."""
    first, last = max(split.commit_log_from, task.events_from), split.commit_log_to
    if first >= last:
        return
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in EVENT_COLUMNS])
    wanted = RowFilter(topics=OWN_TOPICS, include_system_topics=True, from_ms=task.from_ms)
    plan = reader.plan(from_offset=first, to_offset=last, topics=OWN_TOPICS)
    for part in plan.parts:
        for batch in reader.read(part, schema, wanted, fail_on_data_loss=False):
            offsets = batch.column(OFFSET)
            yield batch.filter(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, last)))


def _write_events(writer: FileWriter, records: pa.RecordBatch, task: WriteTask) -> None:
    if records.num_rows:
        writer.write(_events(records, task))


def _events(records: pa.RecordBatch, task: WriteTask) -> pa.RecordBatch:
    rows = event_rows(records, task.broker)
    is_new = pc.greater_equal(rows.column(OFFSET), task.events_from)
    return without_content(rows.filter(is_new), task.forgotten)


def lake_rows(batch: pa.RecordBatch, task: WriteTask) -> pa.RecordBatch:
    """Return the rows that the lake stores for decoded messages."""
    count = batch.num_rows
    # Never null: decoding reports a record with an impossible store time as damage.
    days = batch.column("store_timestamp").cast(pa.date32())
    columns = {name: batch.column(name) for name in batch.schema.names}
    if task.rules:
        columns["body"] = task.rules.applied(columns["topic"], columns["body"])
    else:
        columns["body"] = pa.nulls(count, pa.binary())
    columns |= {DAY: days, "broker": pa.repeat(task.broker, count)}
    rows = pa.RecordBatch.from_arrays(
        [columns[name] for name in MESSAGES.schema.names], schema=MESSAGES.schema
    )
    return without_content(rows, task.forgotten)


def without_content(rows: pa.RecordBatch, offsets: frozenset[int]) -> pa.RecordBatch:
    """Return the rows, with identifying content removed at some offsets."""
    if not offsets:
        return rows
    wanted = pa.array(sorted(offsets), type=pa.int64())
    is_forgotten = pc.is_in(rows.column(OFFSET), value_set=wanted)
    if not pc.any(is_forgotten).as_py():
        return rows
    columns = {name: rows.column(name) for name in rows.schema.names}
    kept = pc.if_else(is_forgotten, None, pa.array(range(rows.num_rows), type=pa.int64()))
    columns |= {name: columns[name].take(kept) for name in ERASED if name in columns}
    if "properties" in columns:
        columns["properties"] = _without_names(columns["properties"], is_forgotten)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)


def _without_names(properties: pa.MapArray, is_forgotten: pa.BooleanArray) -> pa.MapArray:
    """Return the properties; forgotten messages keep only KEPT_PROPERTIES."""
    # The array may be a slice, so its first offset may not be 0.
    first, last = properties.offsets[0].as_py(), properties.offsets[-1].as_py()
    keys = properties.keys.slice(first, last - first)
    items = properties.items.slice(first, last - first)
    lengths = np.diff(properties.offsets.to_numpy())
    of_rows = np.repeat(is_forgotten.to_numpy(zero_copy_only=False), lengths)
    stays = pc.is_in(keys, value_set=pa.array(KEPT_PROPERTIES)).to_numpy(zero_copy_only=False)
    kept = ~of_rows | stays
    counts = np.zeros(len(kept) + 1, dtype=np.int32)
    np.cumsum(kept, out=counts[1:])
    offsets = counts[properties.offsets.to_numpy() - first]
    mask = pa.array(kept)
    return pa.MapArray.from_arrays(pa.array(offsets), keys.filter(mask), items.filter(mask))


def _read_schema(task: WriteTask) -> pa.Schema:
    names = [name for name in OF_A_MESSAGE if name != "body" or task.rules]
    return pa.schema(
        [*(pa.field(name, COLUMN_TYPES[name]) for name in names), pa.field("damage", DAMAGE_TYPE)]
    )
