# cython: language_level=3, cdivision=True, embedsignature=False
"""Read a buffer's records into arrays: the compiled twin of `formats/record_columns.py`, with the
work that a log reader does on the positions found.

Functions take views and fill arrays supplied by the caller. They create no object per record and
release the GIL. The bytes come from a disk that may be damaged, and the positions from those bytes,
so every position is checked against its view before it is read or written.

Raises ValueError if a caller's positions or arrays don't fit; damaged bytes alone never cause it.
"""

import os

from cpython.buffer cimport (
    Py_buffer,
    PyBUF_C_CONTIGUOUS,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy, memset

from broker_core.native.constants cimport (
    BODY_CRC_POSITION,
    BODY_SIZE_POSITION,
    BORNHOST_V6_FLAG,
    BORN_TIMESTAMP_POSITION,
    COMMIT_LOG_OFFSET_POSITION,
    CRC_MASK,
    FIXED_V4_SIZE,
    FLAG_POSITION,
    HEAD_SIZE,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_POSITION,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    NAME_VALUE_SEPARATOR,
    OVERHEAD_V4,
    PREPARED_TRANSACTION_OFFSET_POSITION,
    PROPERTIES_SIZE_FIELD,
    PROPERTY_SEPARATOR,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECONSUME_TIMES_POSITION,
    STOREHOST_V6_FLAG,
    STORE_HOST_POSITION,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG_POSITION,
)
from broker_core.native.pack cimport crc32_begin, crc32_of
from broker_core.native.scan cimport Bytes, big32, big64

cdef extern from "spans.h" nogil:
    uint64_t span_hash(Bytes data, size_t size, uint64_t seed)
    bint spans_equal(Bytes one, Bytes other, size_t size)

cdef enum:
    MORE_OF_V6 = HOST_V6_SIZE - HOST_V4_SIZE
    TIMESTAMP_SIZE = STORE_HOST_POSITION - STORE_TIMESTAMP_POSITION
    # Offsets before the body.
    BEFORE_BODY = FIXED_V4_SIZE - RECONSUME_TIMES_POSITION
    PREPARED_BEFORE_BODY = FIXED_V4_SIZE - PREPARED_TRANSACTION_OFFSET_POSITION
    SIZE_BEFORE_BODY = FIXED_V4_SIZE - BODY_SIZE_POSITION
    SLOTS_FIRST = 256

cdef enum:
    POSITION
    SIZE
    BODY_CRC
    QUEUE_ID
    FLAG
    QUEUE_OFFSET
    COMMIT_LOG_OFFSET
    SYS_FLAG
    BORN_TIMESTAMP
    STORE_TIMESTAMP
    RECONSUME_TIMES
    PREPARED_OFFSET
    END
    BORN_HOST_FROM
    STORE_TIMESTAMP_AT
    STORE_HOST_FROM
    STORE_HOST_TO
    BODY_FROM
    BODY_TO
    TOPIC_FROM
    TOPIC_TO
    PROPERTIES_FROM
    COLUMNS_COUNT

COLUMNS = (
    "position",
    "size",
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "commit_log_offset",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
    "end",
    "born_host_from",
    "store_timestamp_at",
    "store_host_from",
    "store_host_to",
    "body_from",
    "body_to",
    "topic_from",
    "topic_to",
    "properties_from",
)
if len(COLUMNS) != COLUMNS_COUNT:
    raise ImportError("columns without a name")

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")

crc32_begin()


cdef class _View:
    """An array's buffer, held while in use."""

    cdef Py_buffer _buffer
    cdef bint _is_held
    cdef void* at
    cdef int64_t count

    def __cinit__(self, given not None, Py_ssize_t item_size, bint is_filled=False):
        PyObject_GetBuffer(given, &self._buffer, PyBUF_C_CONTIGUOUS | (PyBUF_WRITABLE * is_filled))
        self._is_held = True
        self.at = self._buffer.buf
        if self._buffer.itemsize != item_size:
            raise ValueError("the items of an array have another size")
        self.count = self._buffer.len // item_size

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self._buffer)


cdef struct Spans:
    # Starts and ends in the data.
    const int64_t* starts
    const int64_t* ends
    Py_ssize_t count


cdef struct Pairs:
    int64_t* rows
    int64_t* names_from
    int64_t* names_to
    int64_t* value_ends
    Py_ssize_t room


cdef Spans _spans(_View data, _View starts, _View ends) except *:
    """Return spans within the data, no end before its start."""
    cdef Spans spans = Spans(<int64_t*>starts.at, <int64_t*>ends.at, starts.count)
    cdef bint are_inside
    if ends.count != starts.count:
        raise ValueError("the arrays have another size")
    with nogil:
        are_inside = _are_inside(&spans, data.count)
    if not are_inside:
        raise ValueError("a place is not in the buffer")
    return spans


cdef bint _are_inside(const Spans* spans, int64_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t start, end
    cdef bint are_outside = False
    for i in range(spans.count):
        start, end = spans.starts[i], spans.ends[i]
        are_outside |= (start < 0) | (end < start) | (end > size)
    return not are_outside


def walk(data, int64_t position, int64_t limit, found):
    """Fill in the start of each consecutive record that lies wholly in `[position, limit)`.

    Returns how many were found and where the next one would start.
    """
    cdef _View of, to
    of, to = _View(data, 1), _View(found, 8, True)
    if not 0 <= position <= limit <= of.count:
        raise ValueError("the range is not in the buffer")
    if to.count < (limit - position) // OVERHEAD_V4:
        raise ValueError("there is no room for so many records")
    cdef Py_ssize_t count
    with nogil:
        count = _walk(<Bytes>of.at, &position, limit, <int64_t*>to.at)
    return count, position


cdef Py_ssize_t _walk(Bytes data, int64_t* position, int64_t limit, int64_t* found) noexcept nogil:
    cdef int64_t at = position[0]
    cdef int64_t last = limit - OVERHEAD_V4
    cdef int64_t size
    cdef uint32_t magic
    cdef Py_ssize_t count = 0
    while at <= last:
        size = <int32_t>big32(data + at)
        magic = big32(data + at + MAGIC_POSITION)
        if size < OVERHEAD_V4 or size > limit - at:
            break
        if magic != MESSAGE_MAGIC and magic != MESSAGE_MAGIC_V2:
            break
        found[count] = at
        count += 1
        at += size
    position[0] = at
    return count


def read(data, positions, columns, is_whole):
    """Fill in a row of COLUMNS per position, and whether the sizes within each record add up.

    If they don't, the columns from body_to on and the values read there are undefined.
    """
    cdef _View of, at, to, truths
    of, at = _View(data, 1), _View(positions, 8)
    to, truths = _View(columns, 8, True), _View(is_whole, 1, True)
    if to.count != COLUMNS_COUNT * at.count or truths.count != at.count:
        raise ValueError("the arrays have another size")
    cdef bint is_done
    with nogil:
        is_done = _read(
            <Bytes>of.at,
            of.count,
            <int64_t*>at.at,
            at.count,
            <int64_t*>to.at,
            <uint8_t*>truths.at,
        )
    if not is_done:
        raise ValueError("a record is not in the buffer")


cdef bint _read(
    Bytes data,
    int64_t size,
    const int64_t* positions,
    Py_ssize_t count,
    int64_t* columns,
    uint8_t* is_whole,
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t at, record_size, end
    cdef Bytes record
    for i in range(count):
        at = positions[i]
        if at < 0 or at > size - OVERHEAD_V4:
            return False
        record = data + at
        record_size = <int32_t>big32(record)
        if record_size < OVERHEAD_V4 or record_size > size - at:
            return False
        columns[POSITION * count + i] = at
        columns[SIZE * count + i] = record_size
        columns[BODY_CRC * count + i] = <int32_t>big32(record + BODY_CRC_POSITION)
        columns[QUEUE_ID * count + i] = <int32_t>big32(record + QUEUE_ID_POSITION)
        columns[FLAG * count + i] = <int32_t>big32(record + FLAG_POSITION)
        columns[QUEUE_OFFSET * count + i] = big64(record + QUEUE_OFFSET_POSITION)
        columns[COMMIT_LOG_OFFSET * count + i] = big64(record + COMMIT_LOG_OFFSET_POSITION)
        columns[SYS_FLAG * count + i] = <int32_t>big32(record + SYS_FLAG_POSITION)
        columns[BORN_TIMESTAMP * count + i] = big64(record + BORN_TIMESTAMP_POSITION)
        columns[END * count + i] = at + record_size
        columns[BORN_HOST_FROM * count + i] = at + HEAD_SIZE
        is_whole[i] = _read_parts(data, at, at + record_size, count, columns + i)
    return True


cdef inline bint _read_parts(
    Bytes data, int64_t at, int64_t end, Py_ssize_t count, int64_t* row
) noexcept nogil:
    """Read the fields after the hosts; each position has at least OVERHEAD_V4 bytes."""
    cdef Bytes record = data + at
    cdef uint32_t sys_flag = big32(record + SYS_FLAG_POSITION)
    cdef int64_t field = 1 + (big32(record + MAGIC_POSITION) == MESSAGE_MAGIC_V2)
    cdef int64_t room = end - field - PROPERTIES_SIZE_FIELD
    cdef int64_t timestamp_at = at + HEAD_SIZE + HOST_V4_SIZE
    cdef int64_t body_from, body_to, size, topic_to
    if sys_flag & BORNHOST_V6_FLAG:
        timestamp_at += MORE_OF_V6
    body_from = timestamp_at + TIMESTAMP_SIZE + HOST_V4_SIZE + BEFORE_BODY
    if sys_flag & STOREHOST_V6_FLAG:
        body_from += MORE_OF_V6
    row[STORE_TIMESTAMP_AT * count] = timestamp_at
    row[STORE_TIMESTAMP * count] = big64(data + timestamp_at)
    row[STORE_HOST_FROM * count] = timestamp_at + TIMESTAMP_SIZE
    row[STORE_HOST_TO * count] = body_from - BEFORE_BODY
    row[BODY_FROM * count] = body_from
    row[RECONSUME_TIMES * count] = row[PREPARED_OFFSET * count] = 0
    row[BODY_TO * count] = row[TOPIC_FROM * count] = body_from
    row[TOPIC_TO * count] = row[PROPERTIES_FROM * count] = body_from
    if body_from > room:
        return False
    row[RECONSUME_TIMES * count] = <int32_t>big32(data + body_from - BEFORE_BODY)
    row[PREPARED_OFFSET * count] = big64(data + body_from - PREPARED_BEFORE_BODY)
    size = <int32_t>big32(data + body_from - SIZE_BEFORE_BODY)
    if size < 0 or size > room - body_from:
        return False
    body_to = body_from + size
    size = data[body_to]
    if field == 2:
        size = <int16_t>(size << 8 | data[body_to + 1])
    topic_to = body_to + field + size
    row[BODY_TO * count] = body_to
    row[TOPIC_FROM * count] = row[TOPIC_TO * count] = body_to + field
    row[PROPERTIES_FROM * count] = body_to + field
    if size < 0 or topic_to > end - PROPERTIES_SIZE_FIELD:
        return False
    size = <int16_t>(<int64_t>data[topic_to] << 8 | data[topic_to + 1])
    row[TOPIC_TO * count] = topic_to
    row[PROPERTIES_FROM * count] = topic_to + PROPERTIES_SIZE_FIELD
    return size >= 0 and topic_to + PROPERTIES_SIZE_FIELD + size == end


def gather(data, starts, ends, offsets, copied):
    """Copy the bytes of each span; fill in where each copy begins, and the end of the last."""
    cdef _View of, places, to
    of, places, to = _View(data, 1), _View(offsets, 4, True), _View(copied, 1, True)
    cdef _View start = _View(starts, 8), end = _View(ends, 8)
    cdef Spans spans = _spans(of, start, end)
    cdef bint fits = places.count == spans.count + 1 and to.count <= 0x7FFFFFFF
    if fits:
        with nogil:
            fits = _gather(
                <Bytes>of.at, &spans, <int32_t*>places.at, <uint8_t*>to.at, to.count
            )
    if not fits:
        raise ValueError("the arrays have another size")


cdef bint _gather(
    Bytes data, const Spans* spans, int32_t* offsets, uint8_t* copied, int64_t room
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t at = 0, size
    offsets[0] = 0
    for i in range(spans.count):
        size = spans.ends[i] - spans.starts[i]
        if size > room - at:
            return False
        memcpy(copied + at, data + spans.starts[i], size)
        at += size
        offsets[i + 1] = <int32_t>at
    return at == room


def encode(data, starts, ends, codes, firsts):
    """Number the distinct byte strings of the spans; fill in the first span of each.

    Returns how many distinct strings there are.
    """
    cdef _View of, to, first
    of, to, first = _View(data, 1), _View(codes, 8, True), _View(firsts, 8, True)
    cdef _View start = _View(starts, 8), end = _View(ends, 8)
    cdef Spans spans = _spans(of, start, end)
    cdef Py_ssize_t distinct
    cdef Table table
    if to.count != spans.count or first.count != spans.count or spans.count >= 0x40000000:
        raise ValueError("the arrays have another size")
    table.firsts = <int64_t*>first.at
    table.count = 0
    table.mask = SLOTS_FIRST - 1
    table.slots = <int32_t*>malloc(SLOTS_FIRST * sizeof(int32_t))
    if table.slots == NULL:
        raise MemoryError
    with nogil:
        memset(table.slots, 0xFF, SLOTS_FIRST * sizeof(int32_t))
        distinct = _encode(<Bytes>of.at, &spans, <int64_t*>to.at, &table)
        free(table.slots)
    if distinct < 0:
        raise MemoryError
    return distinct


cdef struct Table:
    # Hash slots with numbers of distinct strings, -1 for an empty slot. At most half full.
    int32_t* slots
    size_t mask
    # The first span of each number.
    int64_t* firsts
    Py_ssize_t count


cdef Py_ssize_t _encode(
    Bytes data, const Spans* spans, int64_t* codes, Table* table
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t size, first
    cdef int32_t code
    cdef size_t slot
    cdef Bytes at
    for i in range(spans.count):
        at, size = data + spans.starts[i], spans.ends[i] - spans.starts[i]
        slot = <size_t>span_hash(at, size, SEED) & table.mask
        while True:
            code = table.slots[slot]
            if code < 0:
                break
            first = table.firsts[code]
            if (
                spans.ends[first] - spans.starts[first] == size
                and spans_equal(data + spans.starts[first], at, <size_t>size)
            ):
                break
            slot = (slot + 1) & table.mask
        if code < 0:
            code = <int32_t>table.count
            table.slots[slot] = code
            table.firsts[table.count] = i
            table.count += 1
            if 2 * <size_t>table.count > table.mask and not _grow(data, spans, table):
                return -1
        codes[i] = code
    return table.count


cdef bint _grow(Bytes data, const Spans* spans, Table* table) noexcept nogil:
    """Grow to four times as many slots; return False if memory runs out."""
    cdef size_t slot, count = 4 * (table.mask + 1)
    cdef int64_t first
    cdef Py_ssize_t i
    cdef int32_t* slots = <int32_t*>malloc(count * sizeof(int32_t))
    if slots == NULL:
        return False
    memset(slots, 0xFF, count * sizeof(int32_t))
    for i in range(table.count):
        first = table.firsts[i]
        slot = <size_t>span_hash(
            data + spans.starts[first], spans.ends[first] - spans.starts[first], SEED
        ) & (count - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (count - 1)
        slots[slot] = <int32_t>i
    free(table.slots)
    table.slots = slots
    table.mask = count - 1
    return True


def pairs(data, starts, ends, rows, names_from, names_to, value_ends):
    """Find the properties with a name and a value in the spans.

    Fills in for each its row, the start and end of its name, and the end of its value, as far as
    the arrays reach; returns how many there are.
    """
    cdef _View of = _View(data, 1), start = _View(starts, 8), end = _View(ends, 8)
    cdef _View row = _View(rows, 8, True), name_from = _View(names_from, 8, True)
    cdef _View name_to = _View(names_to, 8, True), value_end = _View(value_ends, 8, True)
    cdef Spans spans = _spans(of, start, end)
    cdef Pairs found = Pairs(
        <int64_t*>row.at,
        <int64_t*>name_from.at,
        <int64_t*>name_to.at,
        <int64_t*>value_end.at,
        row.count,
    )
    cdef Py_ssize_t count
    if not row.count == name_from.count == name_to.count == value_end.count:
        raise ValueError("the arrays have another size")
    with nogil:
        count = _pairs(<Bytes>of.at, &spans, &found)
    return count


cdef Py_ssize_t _pairs(Bytes data, const Spans* spans, const Pairs* found) noexcept nogil:
    cdef Py_ssize_t i, count = 0
    cdef Bytes at, end, behind, equal
    for i in range(spans.count):
        at, end = data + spans.starts[i], data + spans.ends[i]
        while at < end:
            behind = <Bytes>memchr(at, PROPERTY_SEPARATOR, end - at)
            if behind == NULL:
                behind = end
            equal = <Bytes>memchr(at, NAME_VALUE_SEPARATOR, behind - at)
            if equal != NULL and equal > at and equal < behind - 1:
                if count < found.room:
                    found.rows[count] = i
                    found.names_from[count] = at - data
                    found.names_to[count] = equal - data
                    found.value_ends[count] = behind - data
                count += 1
            at = behind + 1
    return count


def last_of_each(rows, codes, int64_t distinct, kept):
    """Mark the pairs that are the last with their code in their row; return how many aren't.

    Rows must ascend; codes must be below `distinct`.
    """
    cdef _View row = _View(rows, 8), code = _View(codes, 8), to = _View(kept, 1, True)
    cdef Py_ssize_t dropped = -1
    if code.count != row.count or to.count != row.count or not 0 <= distinct <= row.count:
        raise ValueError("the arrays have another size")
    cdef int64_t* seen = <int64_t*>malloc((distinct + 1) * sizeof(int64_t))
    if seen == NULL:
        raise MemoryError
    with nogil:
        dropped = _last_of_each(
            <int64_t*>row.at, <int64_t*>code.at, row.count, distinct, seen, <uint8_t*>to.at
        )
        free(seen)
    if dropped < 0:
        raise ValueError("a code is not among so many")
    return dropped


cdef Py_ssize_t _last_of_each(
    const int64_t* rows,
    const int64_t* codes,
    Py_ssize_t count,
    int64_t distinct,
    int64_t* seen,
    uint8_t* kept,
) noexcept nogil:
    cdef Py_ssize_t i, dropped = 0
    for i in range(distinct):
        seen[i] = -1
    for i in range(count - 1, -1, -1):
        if codes[i] < 0 or codes[i] >= distinct:
            return -1
        kept[i] = seen[codes[i]] != rows[i]
        dropped += not kept[i]
        seen[codes[i]] = rows[i]
    return dropped


def wrong_checksums(data, starts, ends, stated, wrong):
    """Mark the bodies whose checksum differs from the stated one; return how many.

    Empty bodies have no checksum.
    """
    cdef _View of = _View(data, 1), start = _View(starts, 8), end = _View(ends, 8)
    cdef _View said = _View(stated, 8), to = _View(wrong, 1, True)
    cdef Spans spans = _spans(of, start, end)
    cdef Py_ssize_t found
    if said.count != spans.count or to.count != spans.count:
        raise ValueError("the arrays have another size")
    with nogil:
        found = _wrong_checksums(<Bytes>of.at, &spans, <int64_t*>said.at, <uint8_t*>to.at)
    return found


cdef Py_ssize_t _wrong_checksums(
    Bytes data, const Spans* spans, const int64_t* stated, uint8_t* wrong
) noexcept nogil:
    cdef Py_ssize_t i, found = 0
    cdef int64_t size
    for i in range(spans.count):
        size = spans.ends[i] - spans.starts[i]
        wrong[i] = size > 0 and (
            <int64_t>(crc32_of(data + spans.starts[i], size) & CRC_MASK) != stated[i]
        )
        found += wrong[i]
    return found
