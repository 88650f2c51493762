"""Write the answers of sends."""

cdef class SendAnswers(SendPlaces):
    """Writes the answers of a turn side by side."""

    @cython.final
    cdef void _answer(self, Send* send, Place* place, int64_t offset) noexcept:
        """Append the answer to those of the turn; `_run` has ensured room."""
        self._end_answer(send, put_hex(self._begin_answer(send), offset), place.next_offset)

    @cython.final
    cdef uint8_t* _begin_answer(self, Send* send) noexcept:
        """Write an answer up to the log offset of its first message."""
        cdef uint8_t* to = self._answers + self._answered + FRAME_PREFIX_SIZE
        if not send.is_binary:
            return put_part(to, <bytes>self._parts[0])
        to = put_part(to, <bytes>self._binary_parts[0])
        to = put_part(put32(to, <uint32_t>send.opaque), <bytes>self._binary_parts[1])
        # The sizes of the entries and of the message IDs aren't known yet.
        to = put_part(to + 4, <bytes>self._binary_parts[2])
        return put_part(to + 4, self._store_host_hex)

    @cython.final
    cdef void _end_answer(self, Send* send, uint8_t* to, int64_t queue_offset) noexcept:
        """Write an answer from after its message IDs on, and fill in the sizes.

        The answer of a one-way send is discarded.
        """
        cdef uint8_t* begin = self._answers + self._answered
        cdef uint32_t header
        if send.is_binary:
            to = self._end_binary(begin, send, to, queue_offset)
            header = <uint32_t>SERIALIZE_ROCKETMQ << 24 | <uint32_t>(to - begin - FRAME_PREFIX_SIZE)
        else:
            to = put_part(to, <bytes>self._parts[1])
            to = put_part(put_decimal(to, send.queue_id), <bytes>self._parts[2])
            to = put_part(put_decimal(to, queue_offset), <bytes>self._parts[3])
            to = put_part(put_decimal(to, send.opaque), <bytes>self._parts[4])
            header = <uint32_t>(to - begin - FRAME_PREFIX_SIZE)
        put32(put32(begin, <uint32_t>(to - begin - 4)), header)
        if not send.is_oneway:
            self._answered = to - self._answers

    @cython.final
    cdef uint8_t* _end_binary(self, uint8_t* begin, Send* send, uint8_t* to,
                              int64_t queue_offset) noexcept:
        cdef uint8_t* entries = begin + self._entries_at
        cdef uint8_t* msg_id = begin + self._msg_id_at
        put32(msg_id, <uint32_t>(to - msg_id - 4))
        to = put_sized_decimal(put_part(to, <bytes>self._binary_parts[3]), send.queue_id)
        to = put_sized_decimal(put_part(to, <bytes>self._binary_parts[4]), queue_offset)
        put32(entries, <uint32_t>(to - entries - 4))
        return to


cdef inline uint8_t* put_part(uint8_t* to, bytes part) noexcept:
    memcpy(to, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
    return to + PyBytes_GET_SIZE(part)
