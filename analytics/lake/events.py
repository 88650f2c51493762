"""bronze.events: what happened to messages: retries, dead letters, delays, transactions.

An event is a record of the log. Those of consumers' retry and dead letter topics, and committed
messages, are messages, too; half messages, op messages and waiting ones are the broker's own, which
bronze.messages leaves out.

Events are committed before the batch that has them. Up to where they are written is a number in
their own table, so that a batch which is done again does not write them again.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.duck import duck_beside
from analytics.lake.files import FileWriter
from analytics.lake.parts import without_content
from analytics.lake.rewriting import StoredFile, rows_of, stored_files_of
from analytics.lake.tables import DAY, EVENTS, MESSAGES, OFFSET
from analytics.store.decode import COLUMN_TYPES, RowFilter
from broker_core.message import names
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from analytics.lake.parts import WriteTask
    from analytics.lake.place import LakePlace
    from analytics.store.reader import StoreReader

    Event = tuple[int, str, int | None]

_RETRY, _DEAD = names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX
_DELAYED, _HALF = names.RMQ_SYS_SCHEDULE_TOPIC, names.RMQ_SYS_TRANS_HALF_TOPIC
_OP, _GIVEN_UP = names.RMQ_SYS_TRANS_OP_HALF_TOPIC, names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC
OWN_TOPICS = frozenset({_DELAYED, _HALF, _OP, _GIVEN_UP})
_READ = (
    *(DAY, "broker", OFFSET, "topic", "queue_id", "queue_offset", "store_timestamp", "sys_flag"),
    *("reconsume_times", "uniq_key", "properties", "body"),
)
_READ_SCHEMA = pa.schema([MESSAGES.schema.field(name) for name in _READ])
_QUERY = f"""
SELECT day, broker, commit_log_offset, store_timestamp, event,
    CASE WHEN event IN ('retry', 'dead_letter') THEN properties['{names.PROPERTY_RETRY_TOPIC}']
        WHEN event = 'commit' THEN topic
        ELSE properties['{names.PROPERTY_REAL_TOPIC}'] END AS topic,
    CASE WHEN event = 'retry' THEN substr(topic, {len(_RETRY) + 1})
        WHEN event = 'dead_letter' THEN substr(topic, {len(_DEAD) + 1})
        END AS consumer_group,
    properties['{names.PROPERTY_PRODUCER_GROUP}'] AS producer_group,
    uniq_key, queue_id, queue_offset, reconsume_times,
    CASE WHEN event = 'delay' THEN least(queue_id, 2147483646) + 1 END AS delay_level,
    unnest(half) AS half_queue_offset
FROM (
    SELECT *,
        CASE WHEN starts_with(topic, '{_RETRY}') THEN 'retry'
            WHEN starts_with(topic, '{_DEAD}') THEN 'dead_letter'
            WHEN topic = '{_DELAYED}' THEN 'delay'
            WHEN topic = '{_OP}' THEN 'ended'
            WHEN topic = '{_GIVEN_UP}' THEN 'given_up'
            WHEN topic <> '{_HALF}' THEN 'commit'
            WHEN try_cast(properties['{names.PROPERTY_TRANSACTION_CHECK_TIMES}'] AS INTEGER) > 0
                THEN 'check'
            ELSE 'half' END AS event,
        CASE WHEN topic = '{_OP}' THEN
                [try_cast(one AS BIGINT) FOR one IN string_split(body::VARCHAR, ',')
                    IF try_cast(one AS BIGINT) IS NOT NULL]
            WHEN topic = '{_HALF}' THEN [queue_offset]
            ELSE [NULL] END AS half
    FROM given
)
"""


class EventNotes:
    """Finds and writes the events of one broker's log."""

    def __init__(self, place: LakePlace, task: WriteTask, reader: StoreReader) -> None:
        self._place = place
        self._task = task
        self._reader = reader

    def note(self, files: Iterable[StoredFile], log_from: int, log_to: int) -> int:
        """Write the events of a range of the log that are not written yet; return how many.

        `files` hold its messages.
        """
        place, broker = self._place, self._task.broker
        table = EVENTS.open(place)
        noted_to = table.transaction_version(_state(broker)) or 0
        rows = self._rows(files, max(log_from, noted_to), log_to)
        first = next(rows, None)
        if first is None:
            return 0
        with duck_beside(place) as duck, FileWriter(place, EVENTS) as writer:
            given = chain([first], rows)
            for batch in duck.computed(_QUERY, given, _READ_SCHEMA, EVENTS.schema):
                writer.write(batch)
        EVENTS.commit(place, table, writer.written, states=noted(broker, log_to))
        EVENTS.checkpoint(place)
        return sum(file.rows for file in writer.written)

    def differences(self, files: Iterable[StoredFile], log_from: int, log_to: int) -> int:
        """Return how many events of a range are not in the lake, or there and not in the log."""
        there: Counter[Event] = Counter()
        if EVENTS.exists(self._place):
            for file in stored_files_of(EVENTS.existing(self._place)):
                for batch in rows_of(self._place, file, table=EVENTS):
                    there.update(_identities(_within(batch, self._task.broker, log_from, log_to)))
        expected: Counter[Event] = Counter()
        with duck_beside(self._place) as duck:
            rows = self._rows(files, log_from, log_to)
            for batch in duck.computed(_QUERY, rows, _READ_SCHEMA, EVENTS.schema):
                expected.update(_identities(batch))
        return ((there - expected) + (expected - there)).total()

    def _rows(
        self, files: Iterable[StoredFile], log_from: int, log_to: int
    ) -> Iterator[pa.RecordBatch]:
        for batch in chain(self._of_messages(files), self._own(log_from, log_to)):
            rows = _within(batch, self._task.broker, log_from, log_to)
            if rows.num_rows:
                yield rows

    def _of_messages(self, files: Iterable[StoredFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            seldom = rows_of(self._place, file, ("topic", "sys_flag"))
            if any(pc.any(_is_event(batch)).as_py() for batch in seldom):
                for batch in rows_of(self._place, file, _READ):
                    yield batch.filter(_is_event(batch)).select(_READ)

    def _own(self, log_from: int, log_to: int) -> Iterator[pa.RecordBatch]:
        """Yield the broker's own records, which are in no file of the lake."""
        task = self._task
        if log_from >= log_to:
            return
        schema = pa.schema([(name, COLUMN_TYPES[name]) for name in _READ if name in COLUMN_TYPES])
        wanted = RowFilter(topics=OWN_TOPICS, include_system_topics=True, from_ms=task.from_ms)
        plan = self._reader.plan(from_offset=log_from, to_offset=log_to, topics=OWN_TOPICS)
        for part in plan.parts:
            for batch in self._reader.read(part, schema, wanted, fail_on_data_loss=False):
                columns = {name: batch.column(name) for name in schema.names}
                columns[DAY] = columns["store_timestamp"].cast(pa.date32())
                columns["broker"] = pa.repeat(task.broker, batch.num_rows)
                rows = pa.RecordBatch.from_arrays(
                    [columns[name] for name in _READ], schema=_READ_SCHEMA
                )
                yield without_content(rows, task.forgotten) if task.forgotten else rows


def noted(broker: str, log_to: int) -> dict[str, int]:
    """Return what a commit says of how far a broker's events are written."""
    return {_state(broker): log_to}


def take_out(place: LakePlace, broker: str, log_from: int) -> None:
    """Take away a broker's events from an offset on: the log is read again from there."""
    if not EVENTS.exists(place):
        return
    table = EVENTS.open(place)
    touched = []
    with FileWriter(place, EVENTS) as writer:
        for file in stored_files_of(table):
            batches = list(rows_of(place, file, table=EVENTS))
            gone = [pc.and_(*_is_at(batch, broker, log_from)) for batch in batches]
            if any(pc.any(each).as_py() for each in gone):
                touched.append(file.path)
                for batch, is_gone in zip(batches, gone, strict=True):
                    writer.write(batch.filter(pc.invert(is_gone)))
    EVENTS.commit(place, table, writer.written, removed=touched, states=noted(broker, log_from))


def erase(place: LakePlace, uniq_keys: set[str]) -> dict[str, set[int]]:
    """Have no event say one of these keys; return of each broker the offsets of those that did."""
    found: dict[str, set[int]] = {}
    if not EVENTS.exists(place):
        return found
    table = EVENTS.open(place)
    wanted = pa.array(sorted(uniq_keys), pa.string())
    at = EVENTS.schema.get_field_index("uniq_key")
    touched = []
    with FileWriter(place, EVENTS) as writer:
        for file in stored_files_of(table):
            batches = list(rows_of(place, file, table=EVENTS))
            said = [pc.is_in(batch.column("uniq_key"), value_set=wanted) for batch in batches]
            if not any(pc.any(each).as_py() for each in said):
                continue
            touched.append(file.path)
            for batch, says in zip(batches, said, strict=True):
                rows = batch.filter(says)
                brokers, offsets = rows.column("broker").to_pylist(), rows.column(OFFSET)
                for broker, offset in zip(brokers, offsets.to_pylist(), strict=True):
                    found.setdefault(broker, set()).add(offset)
                hidden = pc.if_else(says, pa.scalar(None, pa.string()), batch.column("uniq_key"))
                writer.write(batch.set_column(at, EVENTS.schema.field(at), hidden))
    if touched:
        EVENTS.commit(place, table, writer.written, removed=touched)
    return found


def _is_event(batch: pa.RecordBatch) -> pa.Array:
    topics = batch.column("topic")
    flags = pc.bit_wise_and(batch.column("sys_flag"), pa.scalar(TRANSACTION_MASK, pa.int32()))
    is_commit = pc.equal(flags, TRANSACTION_COMMIT_TYPE)
    failed = pc.or_(pc.starts_with(topics, _RETRY), pc.starts_with(topics, _DEAD))
    return pc.or_(failed, is_commit)


def _is_at(batch: pa.RecordBatch, broker: str, log_from: int) -> tuple[pa.Array, pa.Array]:
    return (
        pc.equal(batch.column("broker"), broker),
        pc.greater_equal(batch.column(OFFSET), log_from),
    )


def _within(batch: pa.RecordBatch, broker: str, log_from: int, log_to: int) -> pa.RecordBatch:
    is_before = pc.less(batch.column(OFFSET), log_to)
    return batch.filter(pc.and_(pc.and_(*_is_at(batch, broker, log_from)), is_before))


def _identities(batch: pa.RecordBatch) -> Sequence[Event]:
    names_of = (OFFSET, "event", "half_queue_offset")
    return list(zip(*(batch.column(name).to_pylist() for name in names_of), strict=True))


def _state(broker: str) -> str:
    return f"events-{broker}"
