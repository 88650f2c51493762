"""Bulk decoding: a buffer of CommitLog records becomes Arrow columns.

No Python loop touches a field. `bulk.py` finds the records and the positions of their parts, and
copies the variable-length parts, for all records of a buffer at once.

Pure: no I/O. Any thread, any process.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.errors import DamageError
from analytics.store.bodies import decompressed
from analytics.store.bulk import chosen
from analytics.store.properties import KEYS_TYPE, MAP_TYPE, Properties
from broker_core.formats import record
from broker_core.message import names
from broker_core.message.ids import host_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from analytics.store.bulk import Bulk, Columns
    from broker_core.formats.record_columns import RecordBuffer

    Ints = NDArray[np.int64]

logger = logging.getLogger(__name__)

UTC_TIMESTAMP = pa.timestamp("us", tz="UTC")
DAMAGE_TYPE = pa.struct(
    [
        pa.field("file", pa.string()),
        pa.field("commit_log_from", pa.int64()),
        pa.field("commit_log_to", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)
COLUMN_TYPES: dict[str, pa.DataType] = {
    "commit_log_offset": pa.int64(),
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "store_timestamp": UTC_TIMESTAMP,
    "store_size": pa.int32(),
    "born_timestamp": UTC_TIMESTAMP,
    "born_host": pa.string(),
    "store_host": pa.string(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "body_crc": pa.int32(),
    "body_size": pa.int32(),
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": KEYS_TYPE,
    "uniq_key": pa.string(),
    "properties": MAP_TYPE,
    "damage": DAMAGE_TYPE,
}
MESSAGE_MAGICS = frozenset({record.MESSAGE_MAGIC, record.MESSAGE_MAGIC_V2})
RECORD_SIZE_MIN = record.OVERHEAD_V4
# No remoting frame is larger (16 MiB by default); a damaged size must not allocate gigabytes.
RECORD_SIZE_MAX = 64 * 1024 * 1024
# The last millisecond of the year 9999; later values aren't dates.
TIMESTAMP_MS_MAX = 253_402_300_799_999
# Decisions about topic names are kept between buffers; more names than this are garbage.
TOPICS_REMEMBERED_MAX = 100_000
_INT32_COLUMNS = {
    "queue_id": "queue_id",
    "store_size": "size",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "reconsume_times": "reconsume_times",
    "body_crc": "body_crc",
}
_INT64_COLUMNS = ("commit_log_offset", "queue_offset", "prepared_transaction_offset")
_TIMESTAMP_COLUMNS = ("store_timestamp", "born_timestamp")
_HOSTS = {
    "born_host": ("born_host_from", "store_timestamp_at"),
    "store_host": ("store_host_from", "store_host_to"),
}
_OF_PROPERTIES = {
    "tags": names.PROPERTY_TAGS,
    "uniq_key": names.PROPERTY_UNIQ_KEY,
}
_PROPERTIES = frozenset({*_OF_PROPERTIES, "keys", "properties"})


PERMISSIVE_WORDS = (
    "Set mode=PERMISSIVE to skip and log damage; if the schema has the column damage, each range "
    "is a row."
)
FILE_GONE = "the file doesn't exist"
FILE_SHORTER = "the file has become shorter"
_LOSSES = frozenset({FILE_GONE, FILE_SHORTER})


class Damage(NamedTuple):
    """A range `[commit_log_from, commit_log_to)` of the log that isn't readable.

    For data read from a broker, there is no log offset: `file` is the queue then.
    """

    file: str
    commit_log_from: int | None
    commit_log_to: int | None
    reason: str

    @property
    def is_loss(self) -> bool:
        """Whether the bytes no longer exist, for example after a file expired; else they are
        corrupted.
        """
        return self.reason in _LOSSES


class BadRecord(NamedTuple):
    """A damaged record of plausible size; its position is in the buffer."""

    position: int
    size: int
    reason: str


class CheckCrc(enum.Enum):
    """Which checksums to verify. A checksum covers only the body.

    The number of rows never depends on the requested columns.
    """

    BODY = "body"
    """Verify bodies that are read: a wrong checksum makes the body null."""
    TRUE = "true"
    """Verify every record, whatever its columns: a wrong checksum is damage, without a row."""
    FALSE = "false"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which records become rows; times are store times in ms since epoch, half-open."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    include_system_topics: bool = False
    from_ms: int | None = None
    to_ms: int | None = None

    def wants_topic(self, topic: str) -> bool:
        if self.topics is not None and topic not in self.topics:
            return False
        return self.include_system_topics or not names.is_system_topic(topic)


def may_be_record(size: int, magic: int, left: int) -> bool:
    """Return whether a record may start at these two words, with `left` bytes to the end."""
    return magic in MESSAGE_MAGICS and RECORD_SIZE_MIN <= size <= min(left, RECORD_SIZE_MAX)


class RecordDecoder:
    """Decodes one buffer after another into batches of one Arrow schema."""

    def __init__(
        self,
        schema: pa.Schema,
        rows: RowFilter | None = None,
        *,
        check_crc: CheckCrc = CheckCrc.BODY,
        decompress: bool = False,
        is_log: bool = True,
        fail_on_damage: bool = False,
        bulk: Bulk | None = None,
    ) -> None:
        """Without `is_log`, records are a broker's response, whose positions aren't log offsets.

        With `fail_on_damage`, an unreadable body raises an error instead of being null.
        """
        self._bulk = bulk or chosen()
        self.schema = schema
        self._decompress = decompress
        self._is_log = is_log
        self._fail_on_damage = fail_on_damage
        self._rows = rows or RowFilter()
        self._check_crc = check_crc
        self._wanted_topics: dict[bytes, bool | None] = {}

    def decode(
        self, buffer: RecordBuffer, positions: Ints, commit_log_offset: int
    ) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Return the wanted rows, and the damaged records.

        `positions` are ascending starts of complete records, as `Bulk.walk` finds them;
        `commit_log_offset` is the offset of the buffer's first byte.

        Raises:
            DamageError: a body isn't readable, and `fail_on_damage` is set.
        """
        records = self._bulk.columns(buffer, positions)
        bad: list[BadRecord] = []
        drop_bad(records, commit_log_offset if self._is_log else None, bad)
        self._keep_times(records)
        topics = self._keep_topics(buffer, records, bad)
        if self._check_crc is CheckCrc.TRUE:
            kept = np.ones(len(records), dtype=bool)
            for index in self._wrong_checksums(buffer, records):
                kept[index] = False
                bad.append(_bad(records, index, "the body doesn't match its checksum"))
            records.keep(kept)
            topics = topics.filter(pa.array(kept))
        found = None
        if not _PROPERTIES.isdisjoint(self.schema.names):
            places = records["properties_from"], records["end"]
            found = Properties(self._bulk, buffer.bytes, *places)
        columns = [
            found_in(found, name)
            if found is not None and name in _PROPERTIES
            else self._column(name, buffer, records, topics)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), bad

    def damage_batch(self, damages: list[Damage]) -> pa.RecordBatch:
        """Return a row for each range that isn't readable; all columns but `damage` are null."""
        columns = [
            pa.array([damage._asdict() for damage in damages], type=DAMAGE_TYPE)
            if name == "damage"
            else pa.nulls(len(damages), self.schema.field(name).type)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _keep_times(self, records: Columns) -> None:
        rows = self._rows
        if rows.from_ms is None and rows.to_ms is None:
            return
        stored = records["store_timestamp"]
        kept = np.ones(len(records), dtype=bool)
        if rows.from_ms is not None:
            kept &= stored >= rows.from_ms
        if rows.to_ms is not None:
            kept &= stored < rows.to_ms
        records.keep(kept)

    def _keep_topics(
        self, buffer: RecordBuffer, records: Columns, bad: list[BadRecord]
    ) -> pa.Array:
        """Drop rows of unwanted topics and queues; return the topics of the rest as text."""
        if self._rows.queue_ids is not None:
            records.keep(np.isin(records["queue_id"], list(self._rows.queue_ids)))
        if not len(records):
            return pa.array([], type=pa.string())
        places = records["topic_from"], records["topic_to"]
        indices, distinct = self._bulk.encoded(buffer.bytes, *places)
        wanted = [self._is_wanted_topic(topic) for topic in distinct]
        for number, decision in enumerate(wanted):
            if decision is None:
                bad += [
                    _bad(records, index, "the topic isn't text")
                    for index in np.flatnonzero(indices == number).tolist()
                ]
        kept = np.array([bool(decision) for decision in wanted])[indices]
        records.keep(kept)
        texts = pa.array(
            [topic.decode() if keep else "" for topic, keep in zip(distinct, wanted, strict=True)],
            type=pa.string(),
        )
        return texts.take(pa.array(indices[kept]))

    def _is_wanted_topic(self, topic: bytes) -> bool | None:
        """Return whether rows of a topic are wanted, or None if its name isn't text."""
        known = self._wanted_topics
        if topic not in known:
            if len(known) >= TOPICS_REMEMBERED_MAX:
                known.clear()
            try:
                known[topic] = self._rows.wants_topic(topic.decode())
            except UnicodeDecodeError:
                known[topic] = None
        return known[topic]

    def _column(
        self,
        name: str,
        buffer: RecordBuffer,
        records: Columns,
        topics: pa.Array,
    ) -> pa.Array:
        if name == "topic":
            return topics
        if name == "damage":
            return pa.nulls(len(records), DAMAGE_TYPE)
        if name == "body_size":
            return pa.array((records["body_to"] - records["body_from"]).astype(np.int32))
        if name == "body":
            return self._bodies(buffer, records)
        if name in _INT32_COLUMNS:
            return pa.array(records[_INT32_COLUMNS[name]].astype(np.int32))
        if name in _INT64_COLUMNS:
            return pa.array(records[name])
        if name in _TIMESTAMP_COLUMNS:
            return _timestamps(records[name])
        starts, ends = _HOSTS[name]
        indices, distinct = self._bulk.encoded(buffer.bytes, records[starts], records[ends])
        texts = pa.array([host_text(host) for host in distinct], type=pa.string())
        return texts.take(pa.array(indices))

    def _bodies(self, buffer: RecordBuffer, records: Columns) -> pa.Array:
        """Return the bodies, null if the checksum is wrong."""
        bodies = self._bulk.pieces(buffer.bytes, records["body_from"], records["body_to"])
        wrong = self._wrong_checksums(buffer, records) if self._check_crc is CheckCrc.BODY else []
        if wrong:
            self._fail(records, wrong[0], "doesn't match its checksum")
            logger.warning("body checksums wrong bodies=%d of=%d", len(wrong), len(records))
            sound = np.ones(len(records), dtype=bool)
            sound[wrong] = False
            bodies = pc.if_else(pa.array(sound), bodies, None)
        if self._decompress:
            bodies, failed = decompressed(bodies, records["sys_flag"].tolist())
            if failed:
                first = bodies.is_null().index(True).as_py()
                self._fail(records, first, "can't be decompressed")
                logger.warning("bodies not decompressed bodies=%d of=%d", failed, len(records))
        return bodies

    def _fail(self, records: Columns, index: int, what: str) -> None:
        if self._fail_on_damage:
            raise DamageError(
                f"The body of the message at commit log offset "
                f"{records['commit_log_offset'][index]}, offset "
                f"{records['queue_offset'][index]} of queue {records['queue_id'][index]}, {what}. "
                f"{PERMISSIVE_WORDS}"
            )

    def _wrong_checksums(self, buffer: RecordBuffer, records: Columns) -> list[int]:
        places = records["body_from"], records["body_to"]
        return self._bulk.wrong_checksums(buffer.bytes, *places, records["body_crc"])


def drop_bad(records: Columns, commit_log_offset: int | None, bad: list[BadRecord]) -> None:
    """Drop the damaged records; add each to `bad` with its first reason."""
    stored = records["store_timestamp"]
    is_elsewhere = np.zeros(len(records), dtype=bool)
    if commit_log_offset is not None:
        # The record is left over from an earlier log, or is a copy inside a body.
        is_elsewhere = records["commit_log_offset"] != records["position"] + commit_log_offset
    is_no_date = (stored < 0) | (stored > TIMESTAMP_MS_MAX)
    problems = (
        (is_elsewhere, "the record states another commit log offset"),
        (~records.is_whole, "the parts don't add up to the record's size"),
        (is_no_date, "the store timestamp isn't a date"),
    )
    kept = records.is_whole & ~(is_elsewhere | is_no_date)
    if kept.all():
        return
    named = np.zeros(len(records), dtype=bool)
    for wrong, reason in problems:
        bad += [_bad(records, index, reason) for index in np.flatnonzero(wrong & ~named).tolist()]
        named |= wrong
    records.keep(kept)


def _bad(records: Columns, index: int, reason: str) -> BadRecord:
    return BadRecord(int(records["position"][index]), int(records["size"][index]), reason)


def found_in(properties: Properties, name: str) -> pa.Array:
    """Return a column that is computed from the properties."""
    match name:
        case "properties":
            return properties.as_map()
        case "keys":
            return properties.keys()
        case _:
            return properties.value(_OF_PROPERTIES[name])


def _timestamps(ms: Ints) -> pa.Array:
    is_wrong = (ms < 0) | (ms > TIMESTAMP_MS_MAX)
    if not is_wrong.any():
        return pa.array(ms * 1000).view(UTC_TIMESTAMP)
    return pa.array(np.where(is_wrong, 0, ms) * 1000, mask=is_wrong).view(UTC_TIMESTAMP)
