"""Bulk decoding: a buffer of CommitLog records becomes Arrow columns.

No loop touches a field. The starts of the records are one pass over their sizes; a fixed field is
one fancy index into a view of the buffer in which every byte starts a big-endian integer; a field
of varying length is one Arrow `take` over the buffer itself. The layout is broker_core.formats'.

Pure: no I/O. Any thread, any process.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.formats import record
from broker_core.message import ids, names, sys_flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]

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
    "born_host": pa.binary(),
    "store_host": pa.binary(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "body_crc": pa.int32(),
    "body_size": pa.int32(),
    "body": pa.binary(),
    "properties": pa.binary(),
    "damage": DAMAGE_TYPE,
}
_FIELDS = (
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "commit_log_offset",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_size",
)
_LAYOUT = re.findall(r"\d*[a-z]", record.FIXED_V4.format)
# Where each fixed field lies with two IPv4 hosts, taken from the one definition of the record.
_AT = {
    name: struct.calcsize(">" + "".join(_LAYOUT[:number])) for number, name in enumerate(_FIELDS)
}
_HOSTS_V4 = 2 * ids.HOST_V4_SIZE
_TIMESTAMP_BYTES = 8
_BODY_AFTER_STORE_HOST = record.FIXED_V4_SIZE - _AT["reconsume_times"]
assert len(_LAYOUT) == len(_FIELDS)
assert _AT["commit_log_offset"] == record.COMMIT_LOG_OFFSET_POSITION
assert _AT["sys_flag"] == record.SYS_FLAG_POSITION
assert _AT["born_host"] == record.HEAD_SIZE
assert _AT["body_size"] == record.FIXED_V4_SIZE - 4

MESSAGE_MAGICS = frozenset({record.MESSAGE_MAGIC, record.MESSAGE_MAGIC_V2})
RECORD_SIZE_MIN = record.OVERHEAD_V4
# No remoting frame is larger (16 MiB by default); a damaged size must not ask for gigabytes.
RECORD_SIZE_MAX = 64 * 1024 * 1024
# The last millisecond that a date of four digits holds: later "timestamps" are no dates.
TIMESTAMP_MS_MAX = 253_402_300_799_999
# Decisions about topic names are kept between buffers; more names than this are garbage.
TOPICS_REMEMBERED_MAX = 100_000


class Damage(NamedTuple):
    """A range `[commit_log_from, commit_log_to)` of the log that could not be read, with why."""

    file: str
    commit_log_from: int
    commit_log_to: int
    reason: str


class BadRecord(NamedTuple):
    """A record of sound size whose inside is wrong; position and size are in the buffer."""

    position: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which records become rows; times are ms since epoch, half-open, of storing."""

    topic: str | None = None
    include_system_topics: bool = False
    from_ms: int | None = None
    to_ms: int | None = None

    def wants_topic(self, topic: str) -> bool:
        if self.topic is not None and topic != self.topic:
            return False
        return self.include_system_topics or not names.is_system_topic(topic)


class Walk(NamedTuple):
    """The records found from a position on, and where and why the walk ended.

    `size` and `magic` are the words at `stopped_at`, both 0 when fewer than 8 bytes are left.
    """

    positions: Ints
    stopped_at: int
    size: int
    magic: int


def may_be_record(size: int, magic: int, left: int) -> bool:
    """Tell whether a record may start where these words are and `left` bytes are left."""
    return magic in MESSAGE_MAGICS and RECORD_SIZE_MIN <= size <= min(left, RECORD_SIZE_MAX)


def walk(buffer: Bytes, position: int, limit: int) -> Walk:
    """Find the records that lie whole in `buffer[position:limit]`, following their sizes."""
    found: list[int] = []
    append = found.append
    unpack = record.BLANK.unpack_from
    view = buffer.data
    magics = MESSAGE_MAGICS
    size_min, size_max = RECORD_SIZE_MIN, RECORD_SIZE_MAX
    last = limit - record.BLANK.size
    size = magic = 0
    while position <= last:
        size, magic = unpack(view, position)
        following = position + size
        if magic not in magics or following > limit or not size_min <= size <= size_max:
            break
        append(position)
        position = following
    else:
        size = magic = 0
    return Walk(np.array(found, dtype=np.int64), position, size, magic)


class RecordDecoder:
    """Turns records of one buffer after another into batches of one Arrow schema."""

    def __init__(
        self, schema: pa.Schema, rows: RowFilter | None = None, *, check_crc: bool = True
    ) -> None:
        self.schema = schema
        self._rows = rows or RowFilter()
        # A checksum guards the body only, so it is computed only where bodies are wanted.
        self._check_crc = check_crc and "body" in schema.names
        self._wanted_topics: dict[bytes, bool | None] = {}

    def decode(
        self, buffer: Bytes, positions: Ints, commit_log_offset: int
    ) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Return the wanted rows, with the records that must not be believed.

        `positions` are ascending starts of whole records, as `walk` finds them;
        `commit_log_offset` is that of `buffer[0]`.
        """
        records = _Records(buffer, positions)
        bad: list[BadRecord] = []
        self._drop_bad(records, records.misplaced(commit_log_offset), bad)
        self._drop_bad(records, records.unsound(), bad)
        self._keep_times(records)
        topics = self._keep_topics(records, bad)
        if self._check_crc:
            kept = np.ones(records.count, dtype=bool)
            for index in records.wrong_checksums():
                kept[index] = False
                bad.append(records.bad(index, "the body does not match its checksum"))
            records.keep(kept)
            topics = topics.filter(pa.array(kept))
        columns = [
            self._column(name, records, topics, commit_log_offset) for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), bad

    def damage_batch(self, damages: list[Damage]) -> pa.RecordBatch:
        """Return rows that stand for ranges which could not be read: all null but `damage`."""
        columns = [
            pa.array([damage._asdict() for damage in damages], type=DAMAGE_TYPE)
            if name == "damage"
            else pa.nulls(len(damages), self.schema.field(name).type)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @staticmethod
    def _drop_bad(
        records: _Records, problems: list[tuple[NDArray[np.bool_], str]], bad: list[BadRecord]
    ) -> None:
        kept = np.ones(records.count, dtype=bool)
        for wrong, reason in problems:
            bad += [records.bad(index, reason) for index in np.flatnonzero(wrong & kept).tolist()]
            kept &= ~wrong
        records.keep(kept)

    def _keep_times(self, records: _Records) -> None:
        rows = self._rows
        if rows.from_ms is None and rows.to_ms is None:
            return
        stored = records.store_timestamp()
        kept = np.ones(records.count, dtype=bool)
        if rows.from_ms is not None:
            kept &= stored >= rows.from_ms
        if rows.to_ms is not None:
            kept &= stored < rows.to_ms
        records.keep(kept)

    def _keep_topics(self, records: _Records, bad: list[BadRecord]) -> pa.Array:
        """Drop rows of unwanted topics; return the topics of the rest as text."""
        if not records.count:
            return pa.array([], type=pa.string())
        encoded = records.topic().dictionary_encode()
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        distinct: list[bytes] = encoded.dictionary.to_pylist()
        wanted = [self._wants(topic) for topic in distinct]
        for number, decision in enumerate(wanted):
            if decision is None:
                bad += [
                    records.bad(index, "the topic is not text")
                    for index in np.flatnonzero(indices == number).tolist()
                ]
        kept = np.array([bool(decision) for decision in wanted])[indices]
        records.keep(kept)
        texts = pa.array(
            [topic.decode() if keep else "" for topic, keep in zip(distinct, wanted, strict=True)],
            type=pa.string(),
        )
        return texts.take(pa.array(indices[kept]))

    def _wants(self, topic: bytes) -> bool | None:
        """Say whether rows of a topic are wanted; None when it is no text at all."""
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
        self, name: str, records: _Records, topics: pa.Array, commit_log_offset: int
    ) -> pa.Array:
        if name == "topic":
            return topics
        if name == "commit_log_offset":
            return pa.array(records.positions + commit_log_offset)
        if name == "damage":
            return pa.nulls(records.count, DAMAGE_TYPE)
        return _COLUMNS[name](records)


@dataclass(slots=True)
class _Records:
    """The records still in play: their starts, and what the positions of their fields hang on."""

    buffer: Bytes
    positions: Ints
    _ints: NDArray[Any] = field(init=False)
    _longs: NDArray[Any] = field(init=False)
    _shorts: NDArray[Any] = field(init=False)
    _after_born: Ints = field(init=False)
    _after_store: Ints = field(init=False)
    _topic_from: Ints = field(init=False)
    _topic_size: Ints = field(init=False)
    _properties_from: Ints = field(init=False)
    _properties_size: Ints = field(init=False)
    _body_size: Ints = field(init=False)

    def __post_init__(self) -> None:
        # Every byte starts an integer: overlapping, unaligned views, so that one index gathers.
        self._shorts = _overlapping(self.buffer, ">i2")
        self._ints = _overlapping(self.buffer, ">i4")
        self._longs = _overlapping(self.buffer, ">i8")
        empty = np.empty(0, dtype=np.int64)
        self._after_born = self._after_store = empty
        self._topic_from = self._topic_size = empty
        self._properties_from = self._properties_size = self._body_size = empty

    @property
    def count(self) -> int:
        return len(self.positions)

    def bad(self, index: int, reason: str) -> BadRecord:
        position = int(self.positions[index])
        return BadRecord(position, int(self._ints[position]), reason)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        if kept.all():
            return
        self.positions = self.positions[kept]
        for name in _PER_RECORD:
            values = getattr(self, name)
            if len(values):
                setattr(self, name, values[kept])

    def misplaced(self, commit_log_offset: int) -> list[tuple[NDArray[np.bool_], str]]:
        """Name the records that say they lie elsewhere: left-overs, or a copy inside a body."""
        stated = self.int8_at(self.positions + _AT["commit_log_offset"])
        return [
            (
                stated != self.positions + commit_log_offset,
                "the record states another commit log offset",
            )
        ]

    def unsound(self) -> list[tuple[NDArray[np.bool_], str]]:
        """Find where the fields lie; name the records whose parts do not add up to their size."""
        positions = self.positions
        sizes = self.int4_at(positions)
        flags = self.int4_at(positions + _AT["sys_flag"])
        born_bytes = np.where(flags & sys_flag.BORNHOST_V6_FLAG, ids.HOST_V6_SIZE, ids.HOST_V4_SIZE)
        store_bytes = np.where(
            flags & sys_flag.STOREHOST_V6_FLAG, ids.HOST_V6_SIZE, ids.HOST_V4_SIZE
        )
        wide_topic = self.int4_at(positions + _AT["magic"]) == record.MESSAGE_MAGIC_V2
        topic_word = np.where(wide_topic, 2, 1)
        hosts = born_bytes + store_bytes
        fixed = record.OVERHEAD_V4 - _HOSTS_V4 + hosts - record.TOPIC_SIZE_FIELD + topic_word
        wrong = sizes < fixed

        self._after_born = positions + _AT["born_host"] + born_bytes
        self._after_store = self._after_born + _TIMESTAMP_BYTES + store_bytes
        body_size_at = np.where(wrong, positions, self.at("body_size"))
        body_size = self.int4_at(body_size_at)
        wrong |= (body_size < 0) | (body_size > sizes - fixed)

        topic_size_at = np.where(wrong, positions, body_size_at + 4 + body_size)
        topic_size = np.where(
            wide_topic,
            self._shorts[topic_size_at].astype(np.int64),
            self.buffer[topic_size_at].astype(np.int64),
        )
        wrong |= (topic_size < 0) | (body_size + topic_size > sizes - fixed)

        topic_from = topic_size_at + topic_word
        properties_size_at = np.where(wrong, positions, topic_from + topic_size)
        properties_size = self._shorts[properties_size_at].astype(np.int64)
        wrong |= properties_size < 0
        wrong |= fixed + body_size + topic_size + properties_size != sizes

        self._body_size, self._topic_size = body_size, topic_size
        self._topic_from, self._properties_from = (
            topic_from,
            properties_size_at + record.PROPERTIES_SIZE.size,
        )
        self._properties_size = properties_size
        stored = self.int8_at(np.where(wrong, positions, self._after_born))
        no_date = ~wrong & ((stored < 0) | (stored > TIMESTAMP_MS_MAX))
        return [
            (wrong, "the parts do not add up to the record's size"),
            (no_date, "the store timestamp is no date"),
        ]

    def wrong_checksums(self) -> list[int]:
        view = self.buffer.data
        stated = self.int4_at(self.positions + _AT["body_crc"]).tolist()
        starts = self.body_from.tolist()
        sizes = self._body_size.tolist()
        crc32, mask = zlib.crc32, record.CRC_MASK
        return [
            index
            for index, (start, size, crc) in enumerate(zip(starts, sizes, stated, strict=True))
            if size and crc32(view[start : start + size]) & mask != crc
        ]

    def int4_at(self, at: Ints) -> Ints:
        return self._ints[at].astype(np.int64)

    def int8_at(self, at: Ints) -> Ints:
        return self._longs[at].astype(np.int64)

    def int4_column(self, at: Ints) -> pa.Array:
        return pa.array(self._ints[at].astype(np.int32))

    def int8_column(self, at: Ints) -> pa.Array:
        return pa.array(self.int8_at(at))

    def at(self, name: str) -> Ints:
        """Return where a fixed field lies in each record."""
        at = _AT[name]
        if at <= _AT["born_host"]:
            return self.positions + at
        if at == _AT["store_timestamp"]:
            return self._after_born
        return self._after_store + (at - _AT["reconsume_times"])

    @property
    def body_from(self) -> Ints:
        return self._after_store + _BODY_AFTER_STORE_HOST

    def store_timestamp(self) -> Ints:
        return self.int8_at(self._after_born)

    def topic(self) -> pa.Array:
        return self.pieces(self._topic_from, self._topic_size)

    def properties(self) -> pa.Array:
        return self.pieces(self._properties_from, self._properties_size)

    def body(self) -> pa.Array:
        return self.pieces(self.body_from, self._body_size)

    def body_size(self) -> pa.Array:
        return pa.array(self._body_size.astype(np.int32))

    def born_host(self) -> pa.Array:
        starts = self.positions + _AT["born_host"]
        return self.pieces(starts, self._after_born - starts)

    def store_host(self) -> pa.Array:
        starts = self._after_born + _TIMESTAMP_BYTES
        return self.pieces(starts, self._after_store - starts)

    def pieces(self, starts: Ints, sizes: Ints) -> pa.Array:
        """Return one binary value a record.

        The buffer is seen as one Arrow array whose values are, in turn, a piece and the gap
        before the next; taking every second copies each piece once, in C++.
        """
        count = len(starts)
        if not count:
            return pa.array([], type=pa.binary())
        offsets = np.empty(2 * count, dtype=np.int32)
        offsets[0::2] = starts
        offsets[1::2] = starts + sizes
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        )
        return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


_PER_RECORD = (
    "_after_born",
    "_after_store",
    "_topic_from",
    "_topic_size",
    "_properties_from",
    "_properties_size",
    "_body_size",
)


def _overlapping(buffer: Bytes, kind: str) -> NDArray[Any]:
    width = np.dtype(kind).itemsize
    return np.ndarray((max(0, len(buffer) - width + 1),), kind, buffer, 0, (1,))


def _timestamps(ms: Ints) -> pa.Array:
    no_date = (ms < 0) | (ms > TIMESTAMP_MS_MAX)
    return pa.array(np.where(no_date, 0, ms) * 1000, mask=no_date).cast(UTC_TIMESTAMP)


_COLUMNS: dict[str, Callable[[_Records], pa.Array]] = {
    "queue_id": lambda found: found.int4_column(found.at("queue_id")),
    "queue_offset": lambda found: found.int8_column(found.at("queue_offset")),
    "store_timestamp": lambda found: _timestamps(found.store_timestamp()),
    "store_size": lambda found: found.int4_column(found.positions),
    "born_timestamp": lambda found: _timestamps(found.int8_at(found.at("born_timestamp"))),
    "born_host": _Records.born_host,
    "store_host": _Records.store_host,
    "flag": lambda found: found.int4_column(found.at("flag")),
    "sys_flag": lambda found: found.int4_column(found.at("sys_flag")),
    "reconsume_times": lambda found: found.int4_column(found.at("reconsume_times")),
    "prepared_transaction_offset": lambda found: found.int8_column(
        found.at("prepared_transaction_offset")
    ),
    "body_crc": lambda found: found.int4_column(found.at("body_crc")),
    "body_size": _Records.body_size,
    "body": _Records.body,
    "properties": _Records.properties,
}
