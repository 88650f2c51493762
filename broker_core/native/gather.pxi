"""Plain pulls: messages in memory, of a queue that goes on from the offset that is asked for.

Who may read what, and what is counted, Python's objects are asked: microseconds a pull. What costs
by the message is here: units, tags, places in the log, and the answer, whose body is copied once.
The twin is `processors/pull.py` with `store/reads.py` and `store/transfer.py`; whatever it finds
otherwise than in order is left to it, before anything was counted.
"""

cdef enum:
    FLAG_COMMIT_OFFSET = 1
    FLAG_SUBSCRIPTION = 4
    MAX_MSG_NUMS_MAX = 1024
    FILLER_SIZE = 0x7FFFFFFF
    SIZE_BYTES = 4
    CODES_MAX = 64
    FILES_MAX = 4
    FOUND_PARTS = 6
    FOUND_HEAD_MAX = 1024
    FRAME_BYTES_MAX = 16777216

cdef int64_t ADDRESS_MAX = -2147483649


cdef struct Run:
    # Records side by side.
    Bytes at
    Py_ssize_t size


cdef class PullTurn:
    """Serves plain pulls of one broker. Event loop only."""

    cdef object _raw, _filter_of, _filter_type, _commits, _offsets, _which_broker, _tracer
    cdef object _slow_consumers, _config, _reader, _store_config, _log, _state, _queues
    cdef object _visibility, _quarantine, _stats, _latency, _monotonic
    cdef object _handler
    cdef bint _is_raw, _is_timed
    cdef tuple _parts
    cdef Py_ssize_t _parts_size
    cdef int64_t _filtered_units_max
    cdef uint8_t* _scratch
    # Of this pull.
    cdef int64_t _codes[CODES_MAX]
    cdef int _code_count
    cdef Run _runs[MAX_MSG_NUMS_MAX]
    cdef int _run_count
    cdef Py_buffer _files[FILES_MAX]
    cdef int _file_count
    cdef object _first_file
    cdef int64_t _first_position
    cdef int64_t _scanned, _count, _byte_count

    def __cinit__(self):
        self._file_count = 0
        # A header's longest string.
        self._scratch = <uint8_t*>PyMem_Malloc(LONG_HEADER + 1)
        if self._scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._scratch)

    def __init__(self, pull, reader, put_state, stats, clock):
        """`pull`: the processor; `reader`: of whom it has its messages; see their attributes."""
        plain = pull.plain
        self._raw = pull.pull_message
        self._filter_of = plain.filter_of
        self._filter_type = plain.filter_type
        self._filtered_units_max = plain.filtered_units_max
        self._commits = plain.commits
        self._offsets = plain.commits.offsets
        self._which_broker = plain.which_broker
        self._tracer = plain.tracer
        self._slow_consumers = plain.slow_consumers
        self._config = plain.config
        self._parts = plain.answer_parts
        self._parts_size = sum(map(len, self._parts))
        self._reader = reader
        self._store_config = reader.config
        self._log = reader.log
        self._queues = reader.queues
        self._visibility = reader.visibility
        self._quarantine = reader.quarantine
        self._state = put_state
        self._stats = stats
        self._latency = stats.get_latency
        self._monotonic = clock.monotonic
        self._handler = None
        self._is_raw = self._is_timed = False
        if len(self._parts) != FOUND_PARTS:
            raise ValueError("the answer has other places than the turn fills")

    cdef object serve(self, Bytes begin, Py_ssize_t size, connection, decoder, dispatcher,
                      int code):
        """Serve the pull that comes next; return its answer, b"" when it is not plain."""
        cdef int64_t total, header
        cdef Pull pull
        total = big32(begin)
        header = big32(begin + 4)
        # The first byte of `header` is the serializer: any but JSON makes it too long.
        if total < 4 or total > <int64_t>decoder.frame_max or header > LONG_HEADER:
            return b""
        if header > total - 4 or total + 4 > size:
            return b""
        handler = dispatcher.find(code)
        if handler is not self._handler:
            self._handler = handler
            untimed = self._latency.untimed(handler)
            self._is_timed = untimed is not handler
            self._is_raw = untimed == self._raw
        if not self._is_raw or self._tracer.watching or self._slow_consumers.is_watching:
            return b""
        started = self._monotonic() if self._is_timed else None
        if not read_pull(begin + PREFIX, begin + PREFIX + header, &pull) or pull.code != code:
            return b""
        try:
            answer = self._answer(&pull, connection)
        finally:
            self._first_file = None
            while self._file_count:
                self._file_count -= 1
                PyBuffer_Release(&self._files[self._file_count])
        if answer is None:
            return b""
        decoder.skip(4 + total)
        if started is not None:
            self._latency.answered(self._monotonic() - started)
        return answer

    cdef bytes _answer(self, Pull* pull, connection):
        """Return the answer to a pull that finds messages, None if it is not plain."""
        cdef int64_t next_offset, low, high
        cdef bint is_committed = pull.sys_flag & FLAG_COMMIT_OFFSET and pull.commit_offset >= 0
        topic = self._text(pull.topic)
        group = self._text(pull.group)
        if topic is None or group is None:
            return None
        queues = self._queues.table.get(topic)
        queue = None if queues is None else queues.get(pull.queue_id)
        if queue is None:
            return None
        low, high = queue.min_offset, queue.max_offset
        if not low <= pull.queue_offset < high:
            return None
        if is_committed:
            is_committed = self._which_broker.commits
        if is_committed:
            queues = self._offsets.table.get(f"{topic}@{group}")
            if queues is None or pull.queue_id not in queues:
                # There may be too many: Python says so.
                return None
        try:
            if not self._plan(pull, group, topic, queue, connection):
                return None
        except Exception:
            # Python meets it as well, and answers it.
            return None
        which = b"0"
        if self._config.slave_read_enable:
            which = self._which_broker.after(group, is_slow=False).encode()
        next_offset = pull.queue_offset + self._scanned
        answer = self._found(pull, which, next_offset, low, high)
        if answer is None:
            return None
        if is_committed:
            self._commits.commit(group, topic, pull.queue_id, pull.commit_offset, connection)
        reader = self._reader
        reader.get_found_times += 1
        reader.transferred_messages += self._count
        self._stats.got(topic, group, pull.queue_id, self._count, self._byte_count)
        recorder = self._tracer.recorder
        if recorder.is_on:
            position = self._first_position
            recorder.delivered(
                (group, topic, pull.queue_id),
                pull.queue_offset,
                next_offset,
                self._first_file.view[position : position + self._runs[0].size],
                self._byte_count,
                connection.remote_address,
                is_cold=False,
            )
        return answer

    cdef bint _plan(self, Pull* pull, group, topic, queue, connection) except -1:
        """Find what is answered; tell whether all of it is in memory and in order."""
        cdef int64_t units_max, most = pull.max_msg_nums
        cdef bint is_filtered
        expression = expression_type = None
        sub_version = 0
        if pull.sys_flag & FLAG_SUBSCRIPTION:
            expression = self._text(pull.subscription)
            expression_type = self._text(pull.expression_type)
            if expression is None or expression_type is None:
                return False
            expression_type = expression_type or None
        else:
            sub_version = pull.sub_version
        wanted = self._filter_of(
            group, topic, pull.queue_id, connection.remote_address, sub_version, expression,
            expression_type
        )
        most = max(1, min(most, MAX_MSG_NUMS_MAX))
        units_max = self._filtered_units_max
        is_filtered = wanted is not None
        if is_filtered:
            if type(wanted) is not self._filter_type or queue.ext is not None:
                return False
            if not self._take_codes(wanted.codes):
                return False
        else:
            units_max = max(units_max, most)
        if self._quarantine.ranges:
            return False
        return self._gather(queue.units(pull.queue_offset, units_max), most, is_filtered)

    cdef bint _take_codes(self, codes) except -1:
        if len(codes) > CODES_MAX:
            return False
        self._code_count = 0
        for code in codes:
            self._codes[self._code_count] = code
            self._code_count += 1
        return True

    cdef bint _is_wanted(self, int64_t code) noexcept:
        cdef int i
        for i in range(self._code_count):
            if self._codes[i] == code:
                return True
        return code <= ADDRESS_MAX

    cdef bint _gather(self, units, int64_t most, bint is_filtered) except -1:
        """Go through units until a limit is reached; see `plan_transfer`."""
        cdef Py_buffer view
        state, config = self._state, self._store_config
        cdef int64_t max_offset = <int64_t>state.file_from_offset + <int64_t>state.position
        cdef int64_t read_limit = self._visibility.read_limit
        cdef int64_t disk_before = max_offset - <int64_t>self._reader.memory_bytes
        cdef int64_t bytes_max = config.max_transfer_bytes_on_message_in_memory
        cdef int64_t count_max = config.max_transfer_count_on_message_in_memory
        count_max = min(count_max, most)
        self._scanned = self._count = self._byte_count = 0
        self._run_count = 0
        if not 1 <= count_max <= MAX_MSG_NUMS_MAX:
            return False
        PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
        try:
            if not self._go_through(
                <Bytes>view.buf, view.len // UNIT_SIZE, max_offset, read_limit, disk_before,
                count_max, bytes_max, is_filtered
            ):
                return False
        finally:
            PyBuffer_Release(&view)
        return self._count > 0

    cdef bint _go_through(self, Bytes unit, Py_ssize_t units, int64_t max_offset,
                          int64_t read_limit, int64_t disk_before, int64_t count_max,
                          int64_t bytes_max, bint is_filtered) except -1:
        cdef Py_ssize_t i
        cdef int64_t offset, size, file_from = 0, file_to = -1
        cdef Bytes file = NULL
        cdef Bytes at
        cdef Run* run
        for i in range(units):
            offset = big64(unit)
            size = <int32_t>big32(unit + 8)
            if offset < disk_before or size < SIZE_BYTES or size == FILLER_SIZE:
                return False
            if size > read_limit - offset:
                break
            if self._count and (self._count >= count_max or self._byte_count + size > bytes_max):
                break
            self._scanned += 1
            if is_filtered and not self._is_wanted(big64(unit + 12)):
                unit += UNIT_SIZE
                continue
            unit += UNIT_SIZE
            if not file_from <= offset < file_to:
                file = self._file_at(offset, max_offset, &file_from, &file_to)
                if file == NULL:
                    return False
            if size > file_to - offset:
                return False
            at = file + (offset - file_from)
            if <int32_t>big32(at) != size:
                return False
            if self._count == 0:
                self._first_position = offset - file_from
            self._count += 1
            self._byte_count += size
            if self._run_count:
                run = &self._runs[self._run_count - 1]
                if run.at + run.size == at:
                    run.size += size
                    continue
            run = &self._runs[self._run_count]
            run.at = at
            run.size = size
            self._run_count += 1
        return True

    cdef Bytes _file_at(self, int64_t offset, int64_t max_offset, int64_t* file_from,
                        int64_t* file_to) except? NULL:
        """Return where the file that holds an offset is in memory, NULL when there is none."""
        cdef int64_t file_size = self._log.file_size
        cdef int64_t index
        cdef Py_buffer* view
        cdef list files = self._log.files
        if self._file_count == FILES_MAX or not files:
            return NULL
        index = offset - <int64_t>files[0].file_from_offset
        if index < 0 or index // file_size >= len(files):
            return NULL
        file = files[index // file_size]
        view = &self._files[self._file_count]
        PyObject_GetBuffer(file.buffer, view, PyBUF_SIMPLE)
        self._file_count += 1
        if self._first_file is None:
            self._first_file = file
        file_from[0] = file.file_from_offset
        file_to[0] = min(file_from[0] + min(<int64_t>file.size, view.len), max_offset)
        if not file_from[0] <= offset < file_to[0]:
            return NULL
        return <Bytes>view.buf

    cdef bytes _found(self, Pull* pull, bytes which, int64_t next_offset, int64_t low,
                      int64_t high):
        """Return the frame of the answer, None when it is too long for one."""
        cdef uint8_t head[FOUND_HEAD_MAX]
        cdef uint8_t* to = head + PREFIX
        cdef Py_ssize_t size
        cdef int i
        size = PREFIX + self._parts_size + PyBytes_GET_SIZE(which) + 4 * (DECIMAL_MAX + 1)
        if size > FOUND_HEAD_MAX or self._byte_count > FRAME_BYTES_MAX - FOUND_HEAD_MAX:
            return None
        to = put_part(put_part(to, <bytes>self._parts[0]), which)
        to = put_decimal(put_part(to, <bytes>self._parts[1]), next_offset)
        to = put_decimal(put_part(to, <bytes>self._parts[2]), low)
        to = put_decimal(put_part(to, <bytes>self._parts[3]), high)
        to = put_decimal(put_part(to, <bytes>self._parts[4]), pull.opaque)
        to = put_part(to, <bytes>self._parts[5])
        size = to - head
        put32(put32(head, <uint32_t>(size - 4 + self._byte_count)), <uint32_t>(size - PREFIX))
        answer = PyBytes_FromStringAndSize(NULL, size + self._byte_count)
        to = <uint8_t*>PyBytes_AS_STRING(answer)
        memcpy(to, head, size)
        to += size
        for i in range(self._run_count):
            memcpy(to, self._runs[i].at, self._runs[i].size)
            to += self._runs[i].size
        return answer

    cdef str _text(self, Text text):
        """Return a text of the header, None for one with a zero in it."""
        cdef Py_ssize_t size
        if not text.is_escaped:
            return text_of(text)
        size = unescape(text, self._scratch)
        return None if size < 0 else PyUnicode_DecodeUTF8(<const char*>self._scratch, size, NULL)
