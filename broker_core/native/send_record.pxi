"""Write the records of sends into the log."""

cdef class SendRecords(SendAnswers):
    """Writes records, with their heads and checksums."""

    @cython.final
    cdef int64_t _overhead(self, Place* place) noexcept:
        """Return the size of a record without its body and properties."""
        return self._head_size + place.topic.field_size + 2

    @cython.final
    cdef uint8_t* _begin_record(self, Place* place, Bytes body, int64_t body_size,
                                int64_t properties_size) noexcept:
        """Write a record after its head up to its properties; return where the properties go."""
        cdef uint8_t* to = <uint8_t*>self._log.buf + self._position + self._head_size
        memcpy(to, body, body_size)
        memcpy(to + body_size, place.topic.field_at, place.topic.field_size)
        to += body_size + place.topic.field_size
        to[0] = <uint8_t>(properties_size >> 8)
        to[1] = <uint8_t>properties_size
        return to + 2

    @cython.final
    cdef void _end_record(self, Send* send, int32_t flag, Place* place, int64_t size,
                          int64_t offset, Bytes body, int64_t body_size) noexcept:
        """Write a record's head and move past the record.

        The head comes last: if the process is killed before, zeros remain in its place.
        """
        cdef uint8_t head[HEAD_MAX]
        self._head(head, send, flag, place, size, offset, body, body_size)
        store_barrier()
        memcpy(<uint8_t*>self._log.buf + self._position, head, self._head_size)
        store_barrier()
        if self._is_guarded:
            self._guard(<uint8_t*>self._log.buf + self._position, size)
        self._position += size

    @cython.final
    cdef bint _names_guard(self, Bytes properties, Py_ssize_t size) noexcept:
        """Tell whether properties may already hold a checksum, which Python removes."""
        return memmem(
            properties, size, PyBytes_AS_STRING(self._guard_name),
            PyBytes_GET_SIZE(self._guard_name)
        ) != NULL

    @cython.final
    cdef void _guard(self, uint8_t* record, int64_t size) noexcept:
        """Write a record's checksum in the reserved space, last digit first."""
        cdef int64_t guarded = size - PyBytes_GET_SIZE(self._ending) + 1
        cdef uint32_t left = crc32_of(record, guarded) & CRC_MASK
        cdef uint8_t* to = record + size - 1 - CRC_DIGITS
        cdef int i
        for i in range(CRC_DIGITS):
            to[i] = <uint8_t>(48 + left % 10)
            left //= 10

    @cython.final
    cdef void _head(self, uint8_t* to, Send* send, int32_t flag, Place* place, int64_t size,
                    int64_t offset, Bytes body, int64_t body_size) noexcept:
        cdef int32_t sys_flag = send.sys_flag & self._kept_flags | self._set_flags
        cdef Py_ssize_t host_size = PyBytes_GET_SIZE(self._store_host)
        if self._born_size != HOST_V4_SIZE:
            sys_flag |= BORNHOST_V6_FLAG
        to = put32(to, <uint32_t>size)
        to = put32(to, <uint32_t>MESSAGE_MAGIC)
        to = put32(to, crc32_of(body, body_size) & CRC_MASK if body_size else 0)
        to = put32(to, <uint32_t>place.queue_id)
        to = put32(to, <uint32_t>flag)
        to = put64(to, place.next_offset)
        to = put64(to, offset)
        to = put32(to, <uint32_t>sys_flag)
        to = put64(to, send.born_timestamp)
        memcpy(to, self._born_host, self._born_size)
        to = put64(to + self._born_size, self._now)
        memcpy(to, PyBytes_AS_STRING(self._store_host), host_size)
        to = put32(to + host_size, <uint32_t>send.reconsume_times)
        put32(put64(to, 0), <uint32_t>body_size)

    @cython.final
    cdef tuple _entry(self, Place* place, Properties* properties, int64_t offset):
        """Return the entry for the index; see IndexService."""
        uniq_key = text_of(properties.uniq_key) if properties.uniq_key.size else None
        keys = text_of(properties.keys) if properties.keys.size else None
        return (<object>place.topic.seed, uniq_key, keys, offset, self._timestamp)

    @cython.final
    cdef int _begin_time(self) except -1:
        """Set the store time of this turn's puts."""
        now = wall_ms() if self._now_ms is None else self._now_ms()
        if now != slot(self._state, STATE_STORE_TIMESTAMP):
            now = self._puts.begin_millisecond(now)
        self._timestamp = now
        self._now = now
        return 0
