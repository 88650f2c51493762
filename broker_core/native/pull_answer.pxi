"""Write the answers of pulls, and send them from where the records are stored."""

cdef class PullAnswers(PullRecords):
    """Writes the answers of pulls, and sends them to the socket."""

    @cython.final
    cdef bint _begin_frame(self, int kind, group, int64_t queue_offset, int32_t opaque,
                           bint is_binary) except -1:
        """Write the head of an answer's frame; return whether the frame is within the size limit.
        """
        self._whole = None
        cdef uint8_t* head = self._head
        cdef uint8_t* to
        cdef Py_ssize_t size
        cdef uint32_t header
        cdef bytes which = b"0"
        if slot(self._config, CONFIG_SLAVE_READ):
            is_slow = self._scanned > 0 and self._last_offset < self._disk_before
            which = self._pull_redirect.after(group, is_slow=is_slow).encode()
        size = FRAME_PREFIX_SIZE + self._parts_size + PyBytes_GET_SIZE(which) + FOUND_NUMBERS_MAX
        if size > FOUND_HEAD_MAX or self._byte_count > FRAME_BYTES_MAX - FOUND_HEAD_MAX:
            return False
        if is_binary:
            to = self._binary_head(head + FRAME_PREFIX_SIZE, kind, which, queue_offset, opaque)
        else:
            to = self._json_head(head + FRAME_PREFIX_SIZE, kind, which, queue_offset, opaque)
        size = to - head
        header = <uint32_t>(size - FRAME_PREFIX_SIZE)
        if is_binary:
            header |= <uint32_t>SERIALIZE_ROCKETMQ << 24
        put32(put32(head, <uint32_t>(size - 4 + self._byte_count)), header)
        self._parts_of_frame[0].iov_base = head
        self._parts_of_frame[0].iov_len = size
        self._head_size = size
        return True

    @cython.final
    cdef bytes _frame(self, Py_ssize_t sent):
        """Return the frame without its first `sent` bytes."""
        cdef Py_ssize_t size
        cdef int i
        cdef Bytes at
        answer = PyBytes_FromStringAndSize(NULL, self._head_size + self._byte_count - sent)
        cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(answer)
        for i in range(-1, self._run_count):
            at = &self._head[0]
            size = self._head_size
            if i >= 0:
                at = self._runs[i].at
                size = self._runs[i].size
            if sent >= size:
                sent -= size
                continue
            memcpy(to, at + sent, size - sent)
            to += size - sent
            sent = 0
        return answer

    @cython.final
    cdef bytes _frame_as_bytes(self):
        """Return the frame as bytes; from now on the runs point into them."""
        if self._whole is None:
            self._whole = self._frame(0)
            self._run_count = 1 if self._byte_count else 0
            self._runs[0].at = <Bytes>PyBytes_AS_STRING(self._whole) + self._head_size
            self._runs[0].size = self._byte_count
        return self._whole

    @cython.final
    cdef bytes _send(self, int to):
        """Send the frame; return the bytes that the socket didn't accept, None if it accepted all.
        """
        cdef msghdr message
        cdef Py_ssize_t sent = 0
        cdef int i
        if to < 0 or self._run_count > RUNS_MAX:
            return self._frame(0)
        for i in range(self._run_count):
            self._parts_of_frame[1 + i].iov_base = <void*>self._runs[i].at
            self._parts_of_frame[1 + i].iov_len = self._runs[i].size
        memset(&message, 0, sizeof(message))
        message.msg_iov = self._parts_of_frame
        message.msg_iovlen = 1 + self._run_count
        sent = sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent == self._head_size + self._byte_count:
            return None
        return self._frame(max(0, sent))

    @cython.final
    cdef uint8_t* _json_head(self, uint8_t* to, int kind, bytes which, int64_t queue_offset,
                             int32_t opaque) except NULL:
        cdef tuple parts = <tuple>self._parts[kind]
        to = put_part(put_part(to, <bytes>parts[0]), which)
        to = put_decimal(put_part(to, <bytes>parts[1]), queue_offset + self._scanned)
        to = put_decimal(put_part(to, <bytes>parts[2]), self._low)
        to = put_decimal(put_part(to, <bytes>parts[3]), self._high)
        to = put_decimal(put_part(to, <bytes>parts[4]), opaque)
        return put_part(to, <bytes>parts[5])

    @cython.final
    cdef uint8_t* _binary_head(self, uint8_t* to, int kind, bytes which, int64_t queue_offset,
                               int32_t opaque) except NULL:
        cdef tuple parts = <tuple>self._binary_parts[kind]
        cdef uint8_t* entries
        to = put_part(put32(put_part(to, <bytes>parts[0]), <uint32_t>opaque), <bytes>parts[1])
        entries = to
        to = put_part(to + 4, <bytes>parts[2])
        to = put_part(put32(to, <uint32_t>PyBytes_GET_SIZE(which)), which)
        to = put_sized_decimal(put_part(to, <bytes>parts[3]), queue_offset + self._scanned)
        to = put_sized_decimal(put_part(to, <bytes>parts[4]), self._low)
        to = put_sized_decimal(put_part(to, <bytes>parts[5]), self._high)
        put32(entries, <uint32_t>(to - entries - 4))
        return to
