"""PlainReplay, compiled. The twin is `store/plain_replay.py`.

Between records it keeps only the state that the twin keeps. Records with a checksum property go to
the twin.
"""

from cpython.buffer cimport PyBUF_SIMPLE
from libc.stdint cimport int16_t, uint64_t
from libc.string cimport memchr

from broker_core.native.scan cimport utf8_size

from broker_core.store.plain_replay import QUEUES_KEPT_MAX
from broker_core.store.record_dispatch import queue_of_record

cdef enum:
    ODD_FLAGS = HOST_V6_MASK | TRANSACTION_PREPARED_TYPE



cdef struct Found:
    Text tags
    Text keys
    Text uniq_key


cdef class NativePlainReplay:
    """Event loop only. Create a new one after queues are deleted."""

    cdef public int64_t records
    cdef public int64_t store_timestamp
    cdef public dict grown
    cdef object _queues, _deleted, _keys, _index
    cdef dict _known

    def __init__(self, queues, deleted, keys, index):
        """`keys` adds the entries for which `index` has no room; both may be None."""
        self.records = 0
        self.store_timestamp = 0
        self.grown = {}
        self._queues = queues
        self._deleted = deleted
        self._keys = keys
        self._index = index
        self._known = {}

    def dispatch(self, file, int64_t position, int64_t limit):
        """See the twin."""
        cdef Py_buffer view
        cdef int64_t base = file.file_from_offset
        self.records = 0
        PyObject_GetBuffer(file.buffer, &view, PyBUF_SIMPLE)
        try:
            if position < 0 or limit > view.len:
                raise ValueError("not in the file")
            while limit - position >= OVERHEAD_V4:
                size = self._one(<Bytes>view.buf + position, limit - position, base + position)
                if size == 0:
                    break
                position += size
        finally:
            PyBuffer_Release(&view)
        return position

    cdef int64_t _one(self, Bytes record, int64_t available, int64_t offset) except -1:
        """Dispatch a record; return its size, 0 if another dispatcher must handle it."""
        cdef int64_t size = <int32_t>big32(record)
        cdef int64_t body_size = <int32_t>big32(record + BODY_SIZE_POSITION)
        cdef int64_t queue_offset = big64(record + QUEUE_OFFSET_POSITION)
        cdef int64_t stored = big64(record + STORE_TIMESTAMP_POSITION)
        cdef int32_t queue_id = <int32_t>big32(record + QUEUE_ID_POSITION)
        cdef int64_t topic_size, text_size
        cdef Bytes topic, text
        cdef Py_buffer units
        cdef int64_t at
        cdef Found found
        if (
            big32(record + MAGIC_POSITION) != <uint32_t>MESSAGE_MAGIC
            or size > available
            or big64(record + COMMIT_LOG_OFFSET_POSITION) != offset
            or <int32_t>big32(record + SYS_FLAG_POSITION) & ODD_FLAGS
            or body_size < 0
            or FIXED_V4_SIZE + body_size > size - 3
        ):
            return 0
        topic = record + FIXED_V4_SIZE + body_size + 1
        topic_size = topic[-1]
        text_size = size - FIXED_V4_SIZE - body_size - 1 - topic_size - 2
        text = topic + topic_size + 2
        if text_size < 0 or <int16_t>(text[-2] << 8 | text[-1]) != text_size:
            return 0
        key = (PyBytes_FromStringAndSize(<const char*>topic, topic_size), queue_id)
        queue = self._known.get(key)
        if queue is None:
            queue = self._find(key, offset)
        if not is_plain_queue(queue) or number_slot(queue, QUEUE_NEXT_OFFSET) != queue_offset:
            return 0
        if (
            (
                body_size
                and crc32_of(record + FIXED_V4_SIZE, body_size) & CRC_MASK
                != big32(record + BODY_CRC_POSITION)
            )
            or not find_properties(text, text + text_size, &found)
        ):
            return 0
        if number_slot(queue, QUEUE_POSITION) >= number_slot(queue, QUEUE_LIMIT):
            queue.make_room()
        if self._index is not None and (found.uniq_key.size or found.keys.size):
            self._put_keys(queue, &found, offset, stored)
        at = number_slot(queue, QUEUE_POSITION)
        PyObject_GetBuffer(slot(queue, QUEUE_BUFFER), &units, PyBUF_WRITABLE)
        try:
            if at < 0 or at + UNIT_SIZE > units.len:
                raise ValueError("a unit is not in the file of its queue")
            put_unit(
                <uint8_t*>units.buf + at,
                offset,
                <int32_t>size,
                java_hash(found.tags) if found.tags.size else 0,
            )
        finally:
            PyBuffer_Release(&units)
        set_number(queue, QUEUE_POSITION, at + UNIT_SIZE)
        set_number(queue, QUEUE_NEXT_OFFSET, queue_offset + 1)
        self.grown[queue] = None
        self.records += 1
        self.store_timestamp = stored
        return size

    cdef int _put_keys(self, queue, Found* found, int64_t offset, int64_t stored) except -1:
        uniq_key = text_of(found.uniq_key) if found.uniq_key.size else None
        keys = text_of(found.keys) if found.keys.size else None
        cdef int64_t entries = count_of(found.keys) + 1 if found.keys.size else 0
        index = self._index
        if <int64_t>index.room <= entries:
            self._keys.put(queue.key_seed, uniq_key, keys, offset, stored)
            return 0
        (<list>index.waiting).append((slot(queue, QUEUE_KEY_SEED), uniq_key, keys, offset, stored))
        index.room -= 1 + entries
        return 0

    cdef object _find(self, tuple key, int64_t offset):
        queue = queue_of_record(self._queues, self._deleted, key[0], key[1], offset)
        if queue is None:
            return None
        if len(self._known) >= QUEUES_KEPT_MAX:
            self._known.clear()
        self._known[key] = queue
        return queue


cdef inline bint find_properties(Bytes at, Bytes end, Found* found) noexcept nogil:
    """Find the properties to index; return False unless they are UTF-8 without zero bytes."""
    cdef Bytes to, middle
    cdef Bytes c = at
    cdef int width
    cdef Py_ssize_t name_size, value_size
    cdef Text* target
    found.tags.size = found.keys.size = found.uniq_key.size = 0
    while c < end:
        if c[0] >= 0x80:
            width = utf8_size(c, end)
            if width == 0:
                return False
            c += width
        elif c[0] == 0:
            return False
        else:
            c += 1
    while at < end:
        to = <Bytes>memchr(at, PROPERTY_SEPARATOR, end - at)
        if to == NULL:
            to = end
        middle = <Bytes>memchr(at, NAME_VALUE_SEPARATOR, to - at)
        if middle != NULL and middle + 1 < to:
            name_size = middle - at
            value_size = to - middle - 1
            target = NULL
            if is_word(at, name_size, PROPERTY_TAGS):
                target = &found.tags
            elif is_word(at, name_size, PROPERTY_KEYS):
                target = &found.keys
            elif is_word(at, name_size, PROPERTY_UNIQ_KEY):
                target = &found.uniq_key
            if target != NULL:
                target.at = middle + 1
                target.size = value_size
        at = to + 1
    return True


cdef inline int64_t count_of(Text keys) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t count = 0
    for i in range(keys.size):
        count += keys.at[i] == KEY_SEPARATOR
    return count
