"""Commit transactions: copy the half message to its queue and write the op message.

The twin is `processors/transaction.py` with `transaction/resolve.py`. An end is plain in the usual
case: it is one-way and commits a half message that is in the current log file, was never checked
and belongs to an existing queue.
"""

from broker_core.transaction.half import COUNT_MAX

cdef enum:
    DIGITS_MAX = 20

cdef int64_t REAL_QUEUE_ID_MAX = COUNT_MAX


cdef struct HalfMessage:
    # A half message as stored.
    int32_t flag
    int32_t sys_flag
    int64_t born_timestamp
    Text born_host
    int32_t reconsume_times
    Text body
    Text properties
    Half half


cdef class _Target:
    """A queue that a commit writes to."""

    cdef object queue
    cdef bytes topic_field
    cdef Py_buffer units
    cdef bint is_open
    cdef int64_t position
    cdef int64_t next_offset

    cdef bint open(self, table, topic, int32_t queue_id) except -1:
        """Tell whether the queue exists, is plain and has room for a unit."""
        queues = table.get(topic)
        queue = None if queues is None else queues.get(queue_id)
        if not is_plain_queue(queue):
            return False
        self.position = number_slot(queue, QUEUE_POSITION)
        if not 0 <= self.position < number_slot(queue, QUEUE_LIMIT):
            return False
        self.queue = queue
        self.topic_field = slot(queue, QUEUE_TOPIC_FIELD)
        self.next_offset = number_slot(queue, QUEUE_NEXT_OFFSET)
        PyObject_GetBuffer(slot(queue, QUEUE_BUFFER), &self.units, PyBUF_WRITABLE)
        self.is_open = True
        return self.position + UNIT_SIZE <= self.units.len

    cdef void add(self, int64_t offset, int64_t size, int64_t code) noexcept:
        put_unit(<uint8_t*>self.units.buf + self.position, offset, <int32_t>size, code)

    cdef int store(self) except -1:
        set_number(self.queue, QUEUE_POSITION, self.position + UNIT_SIZE)
        set_number(self.queue, QUEUE_NEXT_OFFSET, self.next_offset + 1)
        return 0

    cdef void close(self) noexcept:
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(&self.units)
        self.queue = self.topic_field = None


@cython.final
cdef class EndTurn:
    """Serves plain commits of one broker. Event loop only."""

    cdef object _handler, _raw, _transactions, _tracer, _acknowledge, _puts, _config
    cdef object _state, _visibility, _queues, _index, _now_ms, _monotonic, _steady_ms
    cdef object _op_topic
    cdef bytes _store_host, _half_topic, _op_properties, _op_tag
    cdef int32_t _set_flags, _op_flags
    cdef bint _is_raw
    cdef _Target _real, _op
    # State of the current turn.
    cdef Py_buffer _log
    cdef int64_t _from, _position
    cdef int _why
    # Size of the frames served, in bytes.
    cdef Py_ssize_t _served_bytes

    def __init__(self, end_transaction, transactions, puts, store_config, tracer, acknowledge,
                 clock):
        """`end_transaction` is the raw handler; see `Transactions.plain`, and SendTurn for the
        rest.
        """
        plain = transactions.plain
        self._raw = end_transaction
        self._handler = None
        self._is_raw = False
        self._transactions = transactions
        self._tracer = tracer
        self._acknowledge = acknowledge
        self._puts = puts
        self._config = store_config
        self._state = exactly(StateType, puts.state)
        self._visibility = exactly(VisibilityType, puts.visibility)
        self._queues = puts.queues
        self._index = puts.index
        self._now_ms = clock.now_ms
        self._monotonic = clock.monotonic
        self._steady_ms = plain.steady_ms
        self._store_host = puts.store_host
        self._half_topic = plain.half_topic
        self._op_topic = plain.op_topic
        self._op_properties = plain.op_properties
        self._op_tag = plain.op_tag
        self._set_flags = puts.store_v6_flag
        self._op_flags = self._set_flags
        if len(self._store_host) != HOST_V4_SIZE:
            self._op_flags |= BORNHOST_V6_FLAG
        if len(self._store_host) > HOST_V6_SIZE or puts.is_guarded:
            raise ValueError("commits cannot be put as this store wants them")
        self._real = _Target()
        self._op = _Target()

    cdef object serve(self, Bytes begin, Py_ssize_t size, int64_t frame_max, dispatcher):
        """Serve the next end; return None, or b"" when it isn't plain."""
        cdef int64_t total = big32(begin), header = big32(begin + FRAME_HEADER_POSITION)
        cdef bint is_binary = begin[FRAME_HEADER_POSITION] == SERIALIZE_ROCKETMQ
        cdef Bytes after = begin + FRAME_PREFIX_SIZE
        cdef End ending
        cdef int64_t op_offset
        self._served_bytes = 0
        self._why = SERVED
        if is_binary:
            header &= HEADER_MASK
        if total < 4 or total > frame_max or total + 4 > size:
            return b""
        # The first byte of `header` is the serializer; an unknown one makes the header too long.
        if header > LONG_HEADER_BYTES or header > total - 4:
            return b""
        self._why = HEADER
        if not read_end(after, after + header, is_binary, &ending):
            return b""
        if not self._may_serve(dispatcher):
            return b""
        self._why = TRANSACTION
        half = self._transactions.pending.get(ending.queue_offset)
        if (
            half is None
            or ending.outcome != TRANSACTION_COMMIT_TYPE
            or half.is_copy
            or half.outcome is not None
            or <int64_t>half.commit_log_offset != ending.commit_log_offset
        ):
            return b""
        if not self._commit(half, &ending):
            return b""
        self._served_bytes = 4 + total
        return None

    cdef bint _may_serve(self, dispatcher) except -1:
        """Tell whether an end would go to the raw processor, and puts count at once and unwatched.
        """
        handler = dispatcher.find(END_TRANSACTION)
        if handler is not self._handler:
            self._handler = handler
            self._is_raw = handler == self._raw
        self._why = HANDLER
        if not self._is_raw:
            return False
        self._why = ACKNOWLEDGEMENT
        if self._acknowledge.waits:
            return False
        self._why = STORE
        if (
            slot(self._state, STATE_IS_WRITABLE) is not True
            or slot(self._visibility, VISIBILITY_WAITS) is not False
        ):
            return False
        self._why = WATCHED
        return not self._tracer.watching

    cdef bint _commit(self, half, End* ending) except -1:
        """Put the committed message and the op message if that is plain; return whether it is."""
        cdef HalfMessage found
        state = self._state
        self._from = number_slot(state, STATE_FROM)
        self._position = number_slot(state, STATE_POSITION)
        PyObject_GetBuffer(slot(state, STATE_BUFFER), &self._log, PyBUF_WRITABLE)
        try:
            self._why = MESSAGES
            if not self._read(ending, &found):
                return False
            return self._put_both(half, ending, &found)
        finally:
            PyBuffer_Release(&self._log)
            self._real.close()
            self._op.close()

    cdef bint _read(self, End* ending, HalfMessage* found) noexcept:
        """Read the half message that an end names; return whether it exists, is whole and matches.

        Makes the checks of `examine` and those of the twin.
        """
        cdef int64_t left = self._from + self._position - ending.commit_log_offset
        cdef Bytes at, after
        cdef uint32_t crc
        cdef int64_t size, body_size, text_size, topic_size = PyBytes_GET_SIZE(self._half_topic)
        cdef Py_ssize_t born_size, store_size
        if ending.commit_log_offset < self._from or left < HEAD_SIZE:
            return False
        if self._position > self._log.len:
            return False
        at = <Bytes>self._log.buf + (ending.commit_log_offset - self._from)
        size = <int32_t>big32(at)
        found.sys_flag = <int32_t>big32(at + SYS_FLAG_POSITION)
        born_size = HOST_V6_SIZE if found.sys_flag & BORNHOST_V6_FLAG else HOST_V4_SIZE
        store_size = HOST_V6_SIZE if found.sys_flag & STOREHOST_V6_FLAG else HOST_V4_SIZE
        # After the head: the hosts with the store time between them, three numbers and two sizes.
        text_size = FIXED_WITHOUT_HOSTS_SIZE + born_size + store_size
        if (
            big32(at + MAGIC_POSITION) != <uint32_t>MESSAGE_MAGIC
            or size > left
            or size < text_size + 3
            or big64(at + COMMIT_LOG_OFFSET_POSITION) != ending.commit_log_offset
            or big64(at + QUEUE_OFFSET_POSITION) != ending.queue_offset
        ):
            return False
        after = at + text_size
        body_size = <int32_t>big32(after - (FIXED_V4_SIZE - BODY_SIZE_POSITION))
        if body_size < 0 or body_size + text_size + 3 > size:
            return False
        found.flag = <int32_t>big32(at + FLAG_POSITION)
        found.born_timestamp = big64(at + BORN_TIMESTAMP_POSITION)
        found.born_host.at = at + BORN_HOST_POSITION
        found.born_host.size = born_size
        found.reconsume_times = <int32_t>big32(after - (FIXED_V4_SIZE - RECONSUME_TIMES_POSITION))
        found.body.at = after
        found.body.size = body_size
        after += body_size
        if after[0] != topic_size or after + 3 + topic_size > at + size:
            return False
        if memcmp(after + 1, PyBytes_AS_STRING(self._half_topic), topic_size) != 0:
            return False
        after += 1 + topic_size
        found.properties.at = after + 2
        found.properties.size = after[0] << 8 | after[1]
        if found.properties.at + found.properties.size != at + size:
            return False
        crc = crc32_of(found.body.at, body_size) & CRC_MASK if body_size else 0
        if body_size and crc != big32(at + BODY_CRC_POSITION):
            return False
        return (
            found.properties.size <= PROPERTIES_BYTES_MAX
            and read_half(found.properties.at, found.properties.size, &found.half)
            and found.half.group.size > 0
            and found.half.group.size == ending.group.size
            and memcmp(found.half.group.at, ending.group.at, ending.group.size) == 0
        )

    cdef bint _put_both(self, half, End* ending, HalfMessage* found) except -1:
        """Put both messages if there is room for both; return whether there is."""
        cdef uint8_t digits[DIGITS_MAX]
        cdef Text op_body, op_properties
        cdef Text* keys = &found.half.keys
        cdef int64_t queue_id = 0, size, op_size, offset, op_offset, keys_size, now, limit
        cdef bint is_indexed
        cdef object entry = None
        state, index = self._state, self._index
        self._why = QUEUE
        if found.half.real_topic.size == 0 or not whole_int(
            found.half.real_queue_id, 0, REAL_QUEUE_ID_MAX, &queue_id
        ):
            return False
        topic = text_of(found.half.real_topic)
        table = self._queues.table
        if not self._real.open(table, topic, <int32_t>queue_id):
            return False
        if not self._op.open(table, self._op_topic, 0) or self._op.queue is self._real.queue:
            return False
        op_body.at = digits
        op_body.size = put_decimal(digits, ending.queue_offset) - digits
        op_properties.at = <Bytes>PyBytes_AS_STRING(self._op_properties)
        op_properties.size = PyBytes_GET_SIZE(self._op_properties)
        size = self._size_of(self._real, found.born_host.size, &found.body, &found.properties)
        op_size = self._size_of(
            self._op, PyBytes_GET_SIZE(self._store_host), &op_body, &op_properties
        )
        self._why = ROOM
        limit = number_slot(state, STATE_LIMIT)
        keys_size = characters(keys[0]) if keys.size else 0
        is_indexed = index is not None and (found.half.uniq_key.size or keys_size)
        if (
            self._position + size + op_size > min(limit, <int64_t>self._log.len)
            or found.body.size > <int64_t>self._config.max_message_size
            or (is_indexed and <int64_t>index.room <= keys_size)
        ):
            return False
        now = self._begin_time()
        offset = self._from + self._position
        op_offset = self._op.next_offset
        born_timestamp = self._steady_ms()
        if is_indexed:
            entry = self._entry(self._real.queue, &found.half, offset)

        self._put(
            self._real, <int32_t>queue_id, found.flag,
            found.sys_flag & ~TRANSACTION_MASK & ~HOST_V6_MASK | TRANSACTION_COMMIT_TYPE
            | self._set_flags | (BORNHOST_V6_FLAG if found.born_host.size != HOST_V4_SIZE else 0),
            found.born_timestamp, &found.born_host, now, found.reconsume_times,
            ending.commit_log_offset, &found.body, &found.properties, size,
            java_hash(found.half.tags) if found.half.tags.size else 0,
        )
        op_host = kept_text(self._store_host)
        self._put(
            self._op, 0, 0, self._op_flags, born_timestamp, &op_host, now, 0, 0, &op_body,
            &op_properties, op_size, java_hash(kept_text(self._op_tag)),
        )
        if entry is not None:
            index.waiting.append(entry)
            index.room -= 1 + keys_size
        self._store(half, topic, queue_id, size + op_size, op_offset)
        return True

    cdef int64_t _begin_time(self) except -1:
        """Return the store time of both puts."""
        now = self._now_ms()
        if now != slot(self._state, STATE_STORE_TIMESTAMP):
            now = self._puts.begin_millisecond(now)
        return now

    cdef tuple _entry(self, queue, Half* half, int64_t offset):
        """Return the entry for the index; see IndexService."""
        uniq_key = text_of(half.uniq_key) if half.uniq_key.size else None
        keys = text_of(half.keys) if half.keys.size else None
        timestamp = slot(self._state, STATE_STORE_TIMESTAMP)
        return (slot(queue, QUEUE_KEY_SEED), uniq_key, keys, offset, timestamp)

    cdef int64_t _size_of(self, _Target target, Py_ssize_t born_size, Text* body,
                          Text* properties) noexcept:
        return (
            FIXED_WITHOUT_HOSTS_SIZE + born_size + PyBytes_GET_SIZE(self._store_host) + body.size
            + PyBytes_GET_SIZE(target.topic_field) + 2 + properties.size
        )

    cdef void _put(self, _Target target, int32_t queue_id, int32_t flag, int32_t sys_flag,
                   int64_t born_timestamp, Text* born_host, int64_t now, int32_t reconsume_times,
                   int64_t prepared_offset, Text* body, Text* properties, int64_t size,
                   int64_t code) noexcept:
        """Write a record and its unit, which must fit; the record's head is written last."""
        cdef uint8_t head[HEAD_MAX]
        cdef uint8_t* record = <uint8_t*>self._log.buf + self._position
        cdef Py_ssize_t store_size = PyBytes_GET_SIZE(self._store_host)
        cdef Py_ssize_t head_size = FIXED_WITHOUT_HOSTS_SIZE + born_host.size + store_size
        cdef uint8_t* to = record + head_size
        cdef int64_t offset = self._from + self._position
        memcpy(to, body.at, body.size)
        to = put_part(to + body.size, target.topic_field)
        to[0] = <uint8_t>(properties.size >> 8)
        to[1] = <uint8_t>properties.size
        memcpy(to + 2, properties.at, properties.size)
        to = put32(head, <uint32_t>size)
        to = put32(to, <uint32_t>MESSAGE_MAGIC)
        to = put32(to, crc32_of(body.at, body.size) & CRC_MASK if body.size else 0)
        to = put32(to, <uint32_t>queue_id)
        to = put32(to, <uint32_t>flag)
        to = put64(to, <uint64_t>target.next_offset)
        to = put64(to, <uint64_t>offset)
        to = put32(to, <uint32_t>sys_flag)
        to = put64(to, <uint64_t>born_timestamp)
        memcpy(to, born_host.at, born_host.size)
        to = put64(to + born_host.size, <uint64_t>now)
        to = put_part(to, self._store_host)
        to = put32(to, <uint32_t>reconsume_times)
        put32(put64(to, <uint64_t>prepared_offset), <uint32_t>body.size)
        store_barrier()
        memcpy(record, head, head_size)
        store_barrier()
        self._position += size
        target.add(offset, size, code)

    cdef int _store(self, half, topic, int64_t queue_id, int64_t size,
                    int64_t op_offset) except -1:
        """Write back the changed state, then notify listeners of puts and outcomes."""
        cdef int64_t end = self._from + self._position
        state = self._state
        set_number(state, STATE_POSITION, self._position)
        add(state, STATE_PUT_TIMES, 2)
        add(state, STATE_PUT_BYTES, size)
        self._real.store()
        self._op.store()
        self._transactions.note_commit(half, op_offset)
        if self._monotonic() > slot(state, STATE_SLOW_AT):
            self._puts.report_slow_put(topic, queue_id, size)
        self._puts.show(self._real.queue, end)
        self._puts.show(self._op.queue, end)
        return 0


cdef inline Text kept_text(bytes text) noexcept:
    """Return bytes as a Text; the caller keeps them alive."""
    cdef Text found
    found.at = <Bytes>PyBytes_AS_STRING(text)
    found.size = PyBytes_GET_SIZE(text)
    found.is_escaped = False
    return found
