r"""The CommitLog record: a message as it is stored, sent to consumers and replicated.

Big-endian; hosts are ip (4 or 16 bytes) and port (i4), shown here for IPv4::

      0         4         8         12        16        20                28
     +---------+---------+---------+---------+---------+-----------------+
     |  size   |  magic  | body crc| queue id|  flag   |  queue offset   |
     +---------+---------+---------+---------+---------+-----------------+
      28                36        40                48                56
     +-----------------+---------+-----------------+-----------------+
     | offset in log   | sys flag| born timestamp  |    born host    |
     +-----------------+---------+-----------------+-----------------+
      56                64                72        76                84        88
     +-----------------+-----------------+---------+-----------------+---------+
     | store timestamp |   store host    |reconsume| prepared offset |body size|
     +-----------------+-----------------+---------+-----------------+---------+
      88
     +------+----------------+-------+--------------------+------------+
     | body | topic size, i1 | topic | properties size, i2| properties |
     +------+----------------+-------+--------------------+------------+

The second magic (5.x) has a topic size of two bytes. The body crc is CRC-32 & 0x7FFFFFFF, 0 for an
empty body. A blank record (size, BLANK_MAGIC) fills a file from its last message to its end; a
record never crosses files, and every full file ends in a blank record of at least 8 bytes.

With enabledAppendPropCRC (5.x) the last property is a checksum of the whole record: CRC-32 &
0x7FFFFFFF of all bytes before it, as ten digits in reverse order::

    ... \x02 __CRC32# \x01 4658735711 \x02

Invariant: size is the sum of the parts; offset in log is the record's own location; topic and
properties contain no zero byte.
Source: store/CommitLog.java (4.9.8), store/MessageExtEncoder.java, common/message/
MessageDecoder.java createCrc32 (5.3.3).
Differs: in a batch, too, a \x02 separates the other properties from the checksum; RocketMQ adds
it to single messages only.
"""

from __future__ import annotations

import re
import struct
import zlib
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.errors import CorruptRecordError
from broker_core.message import properties as message_properties
from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE, host_text
from broker_core.message.message import MessageExt
from broker_core.message.names import PROPERTY_CRC32
from broker_core.message.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTIES_BYTES_MAX,
    PROPERTY_SEPARATOR,
)
from broker_core.message.sys_flag import BORNHOST_V6_FLAG, STOREHOST_V6_FLAG

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterable, Iterator

MESSAGE_MAGIC = -626843481
MESSAGE_MAGIC_V2 = -626843477
BLANK_MAGIC = -875286124
MESSAGE_MAGIC_BYTES = b"\xda\xa3\x20\xa7"
MESSAGE_MAGIC_V2_BYTES = b"\xda\xa3\x20\xab"
CRC_MASK = 0x7FFFFFFF

BLANK = struct.Struct(">ii")
BLANK_SIZE_MIN = 8
FIXED_V4 = struct.Struct(">iiiiiqqiq8sq8siqi")
FIXED_V4_SIZE = 88
FIXED_FIELDS = (
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
"""The fields before the body, in order."""
TOPIC_SIZE_FIELD = 1
PROPERTIES_SIZE = struct.Struct(">h")
OVERHEAD_V4 = FIXED_V4_SIZE + TOPIC_SIZE_FIELD + PROPERTIES_SIZE.size
HEAD_SIZE = 48
CRC_DIGITS = 10
CRC_NAME = (PROPERTY_CRC32 + NAME_VALUE_SEPARATOR).encode()
CRC_SEPARATOR = PROPERTY_SEPARATOR.encode()
CRC_ROOM = CRC_NAME + b"0" * CRC_DIGITS + CRC_SEPARATOR
"""Placeholder at a guarded record's end until its checksum is computed."""
CRC_ROOM_SIZE = len(CRC_ROOM)
CRC_FIXED_MIN = len(CRC_NAME) - 1
"""Minimum number of its constant bytes that still match after one bit is flipped."""


def _positions() -> dict[str, int]:
    kinds = re.findall(r"\d*[a-z]", FIXED_V4.format)
    ends = accumulate(struct.calcsize(">" + kind) for kind in kinds)
    return dict(zip(FIXED_FIELDS, (0, *ends), strict=False))


POSITIONS = _positions()
"""Where each field begins in a record with IPv4 hosts; the same up to born_host for others."""
MAGIC_POSITION = POSITIONS["magic"]
QUEUE_OFFSET_POSITION = POSITIONS["queue_offset"]
COMMIT_LOG_OFFSET_POSITION = POSITIONS["commit_log_offset"]
SYS_FLAG_POSITION = POSITIONS["sys_flag"]

_HEAD = struct.Struct(">iiiiiqqiq")
_TIMESTAMP = struct.Struct(">q")
_SYS_FLAG = struct.Struct(">i")
_AFTER_HOSTS = struct.Struct(">iqi")
_TOPIC_SIZE_V2 = struct.Struct(">h")

# (size of born host, size of store host) -> the fields up to the body
FIXED = {
    (born, store): struct.Struct(f">iiiiiqqiq{born}sq{store}siqi")
    for born in (HOST_V4_SIZE, HOST_V6_SIZE)
    for store in (HOST_V4_SIZE, HOST_V6_SIZE)
}

assert FIXED_V4.size == FIXED_V4_SIZE
assert OVERHEAD_V4 == 91
assert _HEAD.size == HEAD_SIZE == POSITIONS["born_host"]
assert len(POSITIONS) == len(FIXED_FIELDS)
assert FIXED[HOST_V4_SIZE, HOST_V4_SIZE].size == FIXED_V4_SIZE


class RecordHead(NamedTuple):
    """A record's fields; positions are in the buffer that it was read from."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    body_from: int
    body_to: int
    topic_from: int
    topic_to: int
    properties_from: int
    properties_to: int

    @property
    def is_blank(self) -> bool:
        """Whether the record is blank, filling the rest of its file."""
        return self.magic == BLANK_MAGIC


def find_magic(data: mmap.mmap | bytearray | bytes, magic: bytes, start: int, end: int) -> int:
    """Return where a magic code begins within [start, end), or -1.

    The last byte of the data isn't searched, since a record can't start there: `mmap.find` of
    CPython before 3.11.4 reads the byte after the end, which ends the process when nothing is
    mapped there.
    """
    return data.find(magic, start, min(end, len(data) - 1))


def body_crc(body: bytes | memoryview) -> int:
    """Return the checksum that a record stores for a body."""
    return zlib.crc32(body) & CRC_MASK if body else 0


class GuardedFields:
    """Packs the fields before the body of a guarded record, which completes the record."""

    __slots__ = ("_fields", "size")

    def __init__(self, fields: struct.Struct) -> None:
        self._fields = fields
        self.size = fields.size

    def pack_into(
        self, buffer: mmap.mmap | bytearray | memoryview, position: int, size: int, *values: Any
    ) -> None:
        """Pack the fields; body, topic and properties with `CRC_ROOM` must be written already."""
        self._fields.pack_into(buffer, position, size, *values)
        guard(buffer, position, size)


GUARDED = {hosts: GuardedFields(fields) for hosts, fields in FIXED.items()}
"""Like FIXED, for records whose properties end in CRC_ROOM."""


def with_crc_room(properties: str) -> bytes:
    """Return the properties' text with room for the checksum, without any checksum in it."""
    if PROPERTY_CRC32 in properties:
        pairs = message_properties.decode(properties)
        pairs.pop(PROPERTY_CRC32, None)
        properties = message_properties.encode(pairs)
    data = properties.encode()
    if data and not data.endswith(CRC_SEPARATOR):
        data += CRC_SEPARATOR
    return data + CRC_ROOM


def guard(buffer: mmap.mmap | bytearray | memoryview, position: int, size: int) -> None:
    """Write a record's checksum into its room; the rest of the record must be complete."""
    end = position + size
    digits_to = end - len(CRC_SEPARATOR)
    with memoryview(buffer) as view, view[position : end - CRC_ROOM_SIZE] as guarded:
        crc = zlib.crc32(guarded) & CRC_MASK
    buffer[digits_to - CRC_DIGITS : digits_to] = _crc_digits(crc)


def is_guard_right(view: memoryview | bytearray, position: int, end: int) -> bool:
    """Return whether the record [position, end) has no whole-record checksum or a correct one."""
    room = bytes(view[end - CRC_ROOM_SIZE : end])
    same = sum(a == b for a, b in zip(room, CRC_NAME, strict=False)) + room.endswith(CRC_SEPARATOR)
    if same < CRC_FIXED_MIN:
        return True
    with memoryview(view) as whole, whole[position : end - CRC_ROOM_SIZE] as guarded:
        crc = zlib.crc32(guarded) & CRC_MASK
    return room == CRC_NAME + _crc_digits(crc) + CRC_SEPARATOR


def _crc_digits(crc: int) -> bytes:
    return (b"%010d" % crc)[::-1]


def fixed_fields(born_host: bytes, store_host: bytes) -> struct.Struct:
    """Return the layout of the fields before the body."""
    return FIXED[len(born_host), len(store_host)]


def encode_blank(buffer: mmap.mmap | bytearray, position: int, size: int) -> None:
    """Write a blank record of size bytes at position; only its first 8 bytes are changed."""
    BLANK.pack_into(buffer, position, size, BLANK_MAGIC)


def encode_into(  # noqa: PLR0913  a record's fields
    buffer: mmap.mmap | bytearray | memoryview,
    position: int,
    *,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    body: bytes | memoryview,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> int:
    """Write a record and return its size. The store's put path does the same inline."""
    fixed = fixed_fields(born_host, store_host)
    tail = bytes((len(topic),)) + topic + PROPERTIES_SIZE.pack(len(properties)) + properties
    body_from = position + fixed.size
    size = fixed.size + len(body) + len(tail)
    buffer[body_from : body_from + len(body)] = body
    buffer[body_from + len(body) : position + size] = tail
    sys_flag &= ~(BORNHOST_V6_FLAG | STOREHOST_V6_FLAG)
    fixed.pack_into(
        buffer,
        position,
        size,
        MESSAGE_MAGIC,
        body_crc(body),
        queue_id,
        flag,
        queue_offset,
        commit_log_offset,
        sys_flag
        | (BORNHOST_V6_FLAG if len(born_host) == HOST_V6_SIZE else 0)
        | (STOREHOST_V6_FLAG if len(store_host) == HOST_V6_SIZE else 0),
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    return size


def examine(
    view: memoryview,
    position: int,
    limit: int,
    commit_log_offset: int | None,
    *,
    check_crc: bool,
    is_guarded: bool = False,
) -> RecordHead:
    """Return the head of the record at position, after all possible checks.

    limit: end of the readable bytes. commit_log_offset: the record's location in the log, or None
    if unknown (a record from the network). is_guarded: a whole-record checksum in the record was
    written by the broker and must be correct.

    Raises:
        CorruptRecordError: there is no valid record; "nothing written" for zeros.
    """
    try:
        size, magic, crc, queue_id, flag, queue_offset, own_offset, sys_flag, born = (
            _HEAD.unpack_from(view, position)
        )
    except struct.error:
        return _examine_short(view, position, limit, commit_log_offset)
    where = own_offset if commit_log_offset is None else commit_log_offset
    if magic != MESSAGE_MAGIC and magic != MESSAGE_MAGIC_V2:
        return _examine_short(view, position, limit, where)
    hosts_from = position + HEAD_SIZE
    born_size = HOST_V6_SIZE if sys_flag & BORNHOST_V6_FLAG else HOST_V4_SIZE
    store_size = HOST_V6_SIZE if sys_flag & STOREHOST_V6_FLAG else HOST_V4_SIZE
    end = position + size
    fixed_to = hosts_from + born_size + 8 + store_size + _AFTER_HOSTS.size
    if end > limit or fixed_to > end:
        raise CorruptRecordError("record", where, f"size {size} does not fit")
    if own_offset != where:
        raise CorruptRecordError("record", where, f"its offset field says {own_offset}")
    (store_timestamp,) = _TIMESTAMP.unpack_from(view, hosts_from + born_size)
    _, _, body_size = _AFTER_HOSTS.unpack_from(view, fixed_to - _AFTER_HOSTS.size)
    body_to = fixed_to + body_size
    topic_size_field = 1 if magic == MESSAGE_MAGIC else 2
    if body_size < 0 or body_to + topic_size_field + 2 > end:
        raise CorruptRecordError("record", where, f"body size {body_size} does not fit")
    topic_from = body_to + topic_size_field
    topic_size = (
        view[body_to] if topic_size_field == 1 else _TOPIC_SIZE_V2.unpack_from(view, body_to)[0]
    )
    topic_to = topic_from + topic_size
    if topic_size < 0 or topic_to + 2 > end:
        raise CorruptRecordError("record", where, f"topic size {topic_size} does not fit")
    (properties_size,) = PROPERTIES_SIZE.unpack_from(view, topic_to)
    if properties_size < 0 or topic_to + 2 + properties_size != end:
        raise CorruptRecordError("record", where, "its parts do not add up to its size")
    if check_crc and body_size and zlib.crc32(view[fixed_to:body_to]) & CRC_MASK != crc:
        raise CorruptRecordError("record", where, "the checksum of its body is wrong")
    # Topic and properties have no checksum. A torn write leaves zeros in them, and puts reject
    # messages whose properties contain zeros.
    if check_crc and (
        b"\0" in bytes(view[topic_from:topic_to]) or b"\0" in bytes(view[topic_to + 2 : end])
    ):
        raise CorruptRecordError("record", where, "its topic or properties hold zeros")
    if is_guarded and not is_guard_right(view, position, end):
        raise CorruptRecordError("record", where, "the checksum of the whole record is wrong")
    return RecordHead(
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        own_offset,
        sys_flag,
        born,
        store_timestamp,
        fixed_to,
        body_to,
        topic_from,
        topic_to,
        topic_to + 2,
        end,
    )


def born_host_of(record: memoryview, head: RecordHead) -> bytes:
    """Return the client's address in a record at the start of the view."""
    size = HOST_V6_SIZE if head.sys_flag & BORNHOST_V6_FLAG else HOST_V4_SIZE
    return bytes(record[HEAD_SIZE : HEAD_SIZE + size])


def with_topic(view: memoryview, topic: str, added: str, dropped: Iterable[str]) -> bytes:
    """Return a copy of a record under another topic, for an answer and never for the log.

    `added` is the text of properties to append; it is left out if the properties would then exceed
    the 32,767 bytes that the format allows. Properties named in `dropped` are removed.
    """
    head = examine(view, 0, len(view), None, check_crc=False)
    name = topic.encode()
    text = bytes(view[head.properties_from : head.properties_to])
    starts = tuple(f"{each}{NAME_VALUE_SEPARATOR}".encode() for each in dropped)
    if any(start in text for start in starts):
        pairs = text.split(PROPERTY_SEPARATOR.encode())
        text = PROPERTY_SEPARATOR.encode().join([p for p in pairs if not p.startswith(starts)])
    more = added.encode()
    if text and not text.endswith(PROPERTY_SEPARATOR.encode()):
        more = PROPERTY_SEPARATOR.encode() + more
    if len(text) + len(more) <= PROPERTIES_BYTES_MAX:
        text += more
    parts = b"".join(
        (
            bytes(view[4 : head.body_to]),
            len(name).to_bytes(1, "big"),
            name,
            PROPERTIES_SIZE.pack(len(text)),
            text,
        )
    )
    return (4 + len(parts)).to_bytes(4, "big") + parts


def reconsume_times_of(record: memoryview, head: RecordHead) -> int:
    """Return the reconsume count of a record at the start of the view."""
    times: int = _AFTER_HOSTS.unpack_from(record, head.body_from - _AFTER_HOSTS.size)[0]
    return times


def _examine_short(
    view: memoryview, position: int, limit: int, commit_log_offset: int | None
) -> RecordHead:
    """Return a blank record's head, or raise with the reason."""
    where = commit_log_offset or 0
    if limit - position < BLANK.size:
        raise CorruptRecordError("record", where, "nothing written")
    size, magic = BLANK.unpack_from(view, position)
    if magic == BLANK_MAGIC and size >= BLANK_SIZE_MIN:
        return RecordHead(size, magic, 0, 0, 0, 0, where, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    if size == 0 and magic == 0:
        raise CorruptRecordError("record", where, "nothing written")
    if magic in {MESSAGE_MAGIC, MESSAGE_MAGIC_V2}:
        raise CorruptRecordError("record", where, "it ends within its head")
    raise CorruptRecordError("record", where, f"illegal magic code 0x{magic & 0xFFFFFFFF:08X}")


def decode(data: bytes | memoryview, offset: int = 0) -> MessageExt:
    """Return the message whose record starts at offset of data.

    Raises:
        CorruptRecordError: there is no valid record.
    """
    view = memoryview(data)
    head = examine(view, offset, len(view), None, check_crc=True)
    if head.is_blank:
        raise CorruptRecordError("record", head.commit_log_offset, "a blank record, not a message")
    return decode_examined(view, offset, head)


def decode_examined(view: memoryview, offset: int, head: RecordHead) -> MessageExt:
    """Return the message of a record that `examine` has approved."""
    hosts_from = offset + HEAD_SIZE
    after_hosts = head.body_from - _AFTER_HOSTS.size
    born_size = HOST_V6_SIZE if head.sys_flag & BORNHOST_V6_FLAG else HOST_V4_SIZE
    reconsume_times, prepared_transaction_offset, _ = _AFTER_HOSTS.unpack_from(view, after_hosts)
    try:
        topic = str(view[head.topic_from : head.topic_to], "utf-8")
        text = str(view[head.properties_from : head.properties_to], "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecordError(
            "record", head.commit_log_offset, "its text is not UTF-8"
        ) from error
    return MessageExt(
        topic=topic,
        queue_id=head.queue_id,
        flag=head.flag,
        queue_offset=head.queue_offset,
        commit_log_offset=head.commit_log_offset,
        sys_flag=head.sys_flag,
        born_timestamp=head.born_timestamp,
        born_host=host_text(view[hosts_from : hosts_from + born_size]),
        store_timestamp=head.store_timestamp,
        store_host=host_text(view[hosts_from + born_size + 8 : after_hosts]),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=bytes(view[head.body_from : head.body_to]),
        body_crc=head.body_crc,
        properties=message_properties.decode(text),
        store_size=head.size,
    )


def decode_all(data: bytes | memoryview) -> Iterator[MessageExt]:
    """Yield the messages of consecutive records, as in a pull's answer.

    Raises:
        CorruptRecordError: the data contains something other than a record.
    """
    view = memoryview(data)
    offset = 0
    while offset < len(view):
        message = decode(view, offset)
        yield message
        offset += message.store_size


class RecordSummary(NamedTuple):
    """The fields that identify a message, and its size."""

    properties: dict[str, str]
    queue_offset: int
    commit_log_offset: int
    store_timestamp: int
    store_size: int
    body_size: int
    reconsume_times: int


def summarize(view: memoryview, offset: int = 0) -> RecordSummary:
    """Return a record's fields without its body, whose checksum isn't checked.

    Raises:
        CorruptRecordError: there is no valid record.
    """
    head = examine(view, offset, len(view), None, check_crc=False)
    if head.is_blank:
        raise CorruptRecordError("record", head.commit_log_offset, "a blank record, not a message")
    (reconsume_times, _, _) = _AFTER_HOSTS.unpack_from(view, head.body_from - _AFTER_HOSTS.size)
    text = str(view[head.properties_from : head.properties_to], "utf-8", "replace")
    return RecordSummary(
        message_properties.decode(text),
        head.queue_offset,
        head.commit_log_offset,
        head.store_timestamp,
        head.size,
        head.body_to - head.body_from,
        reconsume_times,
    )


def summarize_all(view: memoryview) -> Iterator[RecordSummary]:
    """Yield a summary of each of the consecutive records.

    Raises:
        CorruptRecordError: the data contains something other than a record.
    """
    offset = 0
    while offset < len(view):
        found = summarize(view, offset)
        yield found
        offset += found.store_size


def topic_of(view: memoryview) -> str:
    """Return the topic of a complete record.

    Raises:
        CorruptRecordError: the bytes aren't a valid record.
    """
    head = examine(view, 0, len(view), None, check_crc=False)
    return str(view[head.topic_from : head.topic_to], "utf-8", "replace")


def queue_offset_of(view: memoryview) -> int:
    """Return the queue offset of the first record, without checking the record."""
    data = view[QUEUE_OFFSET_POSITION:COMMIT_LOG_OFFSET_POSITION]
    return int.from_bytes(data, "big", signed=True)


def store_timestamp_of(view: memoryview, position: int) -> int:
    """Return the store timestamp of the record at position, without checking the record."""
    (sys_flag,) = _SYS_FLAG.unpack_from(view, position + SYS_FLAG_POSITION)
    born_size = HOST_V6_SIZE if sys_flag & BORNHOST_V6_FLAG else HOST_V4_SIZE
    (timestamp,) = _TIMESTAMP.unpack_from(view, position + HEAD_SIZE + born_size)
    return int(timestamp)
