"""Gather the records of a pull, from mapped memory or from the disk."""

cdef class PullRecords(PullFilters):
    """Gathers the records of a pull from the mapped files."""

    @cython.final
    cdef int _look(self, topic, int32_t queue_id, int64_t queue_offset, int64_t most,
                   wanted) except -1:
        """Determine the outcome of a pull without counting anything."""
        cdef int64_t units_max = self._filtered_units_max
        cdef bint is_filtered = wanted is not None
        self._low = self._high = self._scanned = self._count = self._byte_count = 0
        self._last_offset = self._disk_before = self._fresh_from = 0
        self._run_count = 0
        self._is_cold = False
        cdef dict queues = self._queues.get(topic)
        queue = None if queues is None else queues.get(queue_id)
        self._queue = queue
        if queue is not None:
            if type(queue) is not QueueType:
                return NOT_PLAIN
            self._high = number_slot(queue, QUEUE_MAX_OFFSET)
        if self._high == 0:
            return EMPTY if queue_offset == 0 else NOT_PLAIN
        self._low = number_slot(queue, QUEUE_MIN_OFFSET)
        if not self._low <= queue_offset <= self._high:
            return NOT_PLAIN
        if queue_offset == self._high:
            return AT_THE_END
        self._why = MESSAGES
        if is_filtered:
            if type(wanted) is not self._filter_type or queue.ext is not None:
                self._why = READER
                return NOT_PLAIN
            if not self._take_codes(wanted.codes):
                return NOT_PLAIN
        else:
            units_max = max(units_max, most)
        if PyList_GET_SIZE(slot(self._quarantine, QUARANTINE_RANGES)):
            return NOT_PLAIN
        if not self._gather(queue, queue_offset, units_max, most, is_filtered):
            return NOT_PLAIN
        if self._count:
            return FOUND
        return NO_MATCH if self._scanned else NOT_PLAIN

    @cython.final
    cdef bint _gather(self, queue, int64_t queue_offset, int64_t units_max, int64_t most,
                      bint is_filtered) except -1:
        """Scan units until a limit is reached, as `plan_transfer` does; return whether all are
        plain.
        """
        cdef Py_buffer view
        cdef int64_t begin = queue_offset * UNIT_SIZE, end = 0
        state, config = self._state, self._store_config
        cdef int64_t max_offset = number_slot(state, STATE_FROM)
        max_offset += number_slot(state, STATE_POSITION)
        cdef int64_t read_limit = number_slot(self._visibility, VISIBILITY_READ_LIMIT)
        cdef int64_t bytes_max = number_slot(config, STORE_CONFIG_BYTES)
        cdef int64_t count_max = number_slot(config, STORE_CONFIG_COUNT)
        count_max = min(count_max, most)
        if not 1 <= count_max <= MAX_MSG_NUMS_MAX:
            return False
        self._disk_before = max_offset - number_slot(self._reader, READER_MEMORY_BYTES)
        self._fresh_from = max_offset - number_slot(self._reader, READER_FRESH_BYTES)
        # As in `ConsumeQueue.place`, for units in the file being written.
        mapped = slot(queue, QUEUE_WRITE)
        if type(mapped) is MappedType:
            begin -= number_slot(mapped, MAPPED_FROM)
            end = min(begin + UNITS_ASKED * UNIT_SIZE, number_slot(mapped, MAPPED_SIZE))
            end = min(end, begin + (self._high - queue_offset) * UNIT_SIZE)
        if not 0 <= begin < end:
            mapped, begin, end = queue.place(queue_offset, UNITS_ASKED)
            if type(mapped) is not MappedType:
                return False
        if (
            self._high - queue_offset > UNITS_NEVER_ASKED
            and self._resident(mapped, begin, end - begin) < end - begin
        ):
            return False
        end = min(end, begin + units_max * UNIT_SIZE)
        PyObject_GetBuffer(slot(mapped, MAPPED_BUFFER), &view, PyBUF_SIMPLE)
        try:
            if end > view.len:
                return False
            if not self._go_through(
                <Bytes>view.buf + begin, (end - begin) // UNIT_SIZE, max_offset, read_limit,
                count_max, bytes_max, most, is_filtered
            ):
                return False
        finally:
            PyBuffer_Release(&view)
        return self._read_cold() if self._is_cold else True

    @cython.final
    cdef int64_t _resident(self, mapped, int64_t position, int64_t least) except -1:
        """Return how many bytes of a file, from a position on, can be read without waiting.

        The result can exceed the requested `least`; see `OsFile.resident`. For a mapping, ask the
        kernel about pages up to the end of an aligned piece, and reuse the answer for 50 ms: the
        system call costs more than the rest of a message.
        """
        cdef Py_buffer view
        cdef uint64_t at, end, piece_end
        cdef int64_t done = 0
        cdef Present* present
        buffer = slot(mapped, MAPPED_BUFFER)
        if type(buffer) is not mmap:
            return mapped.file.resident(buffer, position, least)
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= view.len - least:
                return 0
            end = <uint64_t>view.buf + <uint64_t>view.len
            while done < least:
                at = <uint64_t>view.buf + <uint64_t>(position + done)
                piece_end = min(end, at - at % PIECE + PIECE)
                present = &self._present[at // PIECE % PIECES_MAX]
                if not (present.begin <= at < present.end and self._now() < present.until_s):
                    present.begin = at - at % PAGE
                    present.end = _resident_to(present.begin, piece_end)
                    present.until_s = self._now() + BELIEVED_S
                if present.end <= at:
                    return done
                done += <int64_t>(present.end - at)
                if present.end < piece_end:
                    break
        finally:
            PyBuffer_Release(&view)
        return done

    @cython.final
    cdef bint _go_through(self, Bytes unit, Py_ssize_t units, int64_t max_offset,
                          int64_t read_limit, int64_t count_max, int64_t bytes_max, int64_t most,
                          bint is_filtered) except -1:
        cdef Py_ssize_t i
        cdef int64_t offset, size, file_from = 0, file_to = -1, disk_before = self._disk_before
        cdef int64_t cold_count_max = -1, cold_bytes_max = -1
        cdef int64_t fresh_from = self._fresh_from, here_from = 0, here_to = -1
        cdef bint is_on_disk
        cdef Bytes file = NULL
        cdef Bytes at
        cdef Run* run
        for i in range(units):
            offset = big64(unit)
            size = <int32_t>big32(unit + UNIT_SIZE_POSITION)
            if offset < 0 or size < SIZE_BYTES or size == FILLER_SIZE:
                return False
            self._last_offset = offset
            if size > read_limit - offset:
                if size > max_offset - offset:
                    return False
                break
            is_on_disk = offset < disk_before
            if is_on_disk:
                if cold_count_max < 0:
                    config = self._store_config
                    cold_count_max = config.max_transfer_count_on_message_in_disk
                    cold_count_max = min(cold_count_max, most)
                    cold_bytes_max = config.max_transfer_bytes_on_message_in_disk
                if self._count and (
                    self._count >= cold_count_max or self._byte_count + size > cold_bytes_max
                ):
                    break
            elif self._count and (self._count >= count_max or self._byte_count + size > bytes_max):
                break
            self._scanned += 1
            if is_filtered and not self._is_wanted(big64(unit + UNIT_TAGS_CODE_POSITION)):
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
            if (
                offset < fresh_from
                and not is_on_disk
                and not here_from <= offset <= here_to - size
            ):
                here_from = offset
                here_to = offset + self._resident(
                    self._mapped[self._file_count - 1], offset - file_from, size
                )
                if size > here_to - offset:
                    # On disk; the twin waits for it.
                    return False
            if is_on_disk:
                # Don't touch the record: it may not be in memory.
                self._is_cold = True
            elif <int32_t>big32(at) != size:
                return False
            if self._count == 0:
                if size < STORED_END_MAX:
                    return False
                if not is_on_disk:
                    self._take_first(at)
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

    @cython.final
    cdef void _take_first(self, Bytes record) noexcept:
        """Keep the first record's store time and queue offset."""
        self._first_stored = stored_of(record)
        self._first_offset = big64(record + QUEUE_OFFSET_POSITION)

    @cython.final
    cdef bint _read_cold(self) except -1:
        """Read a cold plan; return whether all data is in memory and every record is whole.

        The twin is `_pread_resident` with `_add_records` of `store/reads.py`.
        """
        cdef int i, which
        cdef int64_t start, found = 0
        cdef Run* run
        cdef Bytes at
        cdef bytearray part
        for i in range(self._run_count):
            run = &self._runs[i]
            which = 0
            while not <Bytes>self._files[which].buf <= run.at < (
                <Bytes>self._files[which].buf + self._files[which].len
            ):
                which += 1
                if which == self._file_count:
                    return False
            mapped = self._mapped[which]
            start = run.at - <Bytes>self._files[which].buf
            read = mapped.file.pread_resident(start, run.size)
            if type(read) is not bytearray:
                return False
            part = <bytearray>read
            if PyByteArray_GET_SIZE(part) != run.size:
                return False
            self._read.append(part)
            at = <Bytes>PyByteArray_AS_STRING(part)
            found += records_in(at, run.size, <int64_t>mapped.file_from_offset + start)
            run.at = at
        if found != self._count:
            return False
        self._take_first(self._runs[0].at)
        return True

    @cython.final
    cdef Bytes _file_at(self, int64_t offset, int64_t max_offset, int64_t* file_from,
                        int64_t* file_to) except? NULL:
        """Return the address of the mapped file that holds an offset, NULL if there isn't one."""
        cdef int64_t file_size = self._log_file_size
        cdef int64_t index
        cdef Py_buffer* view
        cdef list files = self._log_files
        if self._file_count == FILES_MAX or not files:
            return NULL
        file = files[0]
        if type(file) is not MappedType:
            return NULL
        index = offset - number_slot(file, MAPPED_FROM)
        if index < 0 or index // file_size >= len(files):
            return NULL
        file = files[index // file_size]
        if type(file) is not MappedType:
            return NULL
        view = &self._files[self._file_count]
        PyObject_GetBuffer(slot(file, MAPPED_BUFFER), view, PyBUF_SIMPLE)
        self._mapped[self._file_count] = file
        self._file_count += 1
        file_from[0] = number_slot(file, MAPPED_FROM)
        file_to[0] = min(file_from[0] + min(number_slot(file, MAPPED_SIZE), view.len), max_offset)
        if not file_from[0] <= offset < file_to[0]:
            return NULL
        return <Bytes>view.buf


cdef uint64_t _resident_to(uint64_t begin, uint64_t end) noexcept:
    """Return the address up to which pages are in memory, `end` if the kernel doesn't answer."""
    cdef unsigned char states[STATES_MAX]
    cdef uint64_t pages = (end - begin + PAGE - 1) // PAGE
    cdef uint64_t i = 0
    if mincore(<void*>begin, pages * PAGE, states) != 0:
        return end
    while i < pages and states[i]:
        i += 1
    return min(end, begin + i * PAGE)


cdef int64_t records_in(Bytes at, int64_t left, int64_t offset) noexcept:
    """Return the number of adjacent whole records, -1 if one is damaged; see `examine`."""
    cdef int64_t count = 0, size
    while left:
        size = <int32_t>big32(at) if left >= STORED_END_MAX else -1
        if size > left or not is_record(at, size, offset):
            return -1
        at += size
        offset += size
        left -= size
        count += 1
    return count


cdef bint is_record(Bytes at, int64_t size, int64_t offset) noexcept:
    """Tell whether a record is whole, apart from its checksums, and states the expected offset."""
    cdef uint32_t magic
    cdef int32_t flags
    cdef int64_t fixed, body, place, topic
    if size < STORED_END_MAX:
        return False
    magic = big32(at + MAGIC_POSITION)
    flags = <int32_t>big32(at + SYS_FLAG_POSITION)
    if magic != MESSAGE_MAGIC and magic != MESSAGE_MAGIC_V2:
        return False
    if big64(at + COMMIT_LOG_OFFSET_POSITION) != offset:
        return False
    fixed = FIXED_WITHOUT_HOSTS_SIZE
    fixed += HOST_V6_SIZE if flags & BORNHOST_V6_FLAG else HOST_V4_SIZE
    fixed += HOST_V6_SIZE if flags & STOREHOST_V6_FLAG else HOST_V4_SIZE
    if fixed > size:
        return False
    body = <int32_t>big32(at + fixed - 4)
    place = fixed + body
    if body < 0 or place + 2 > size:
        return False
    if magic == MESSAGE_MAGIC:
        topic = at[place]
        place += 1
    else:
        topic = <int16_t>(at[place] << 8 | at[place + 1])
        place += 2
    place += topic
    if topic < 0 or place + 2 > size:
        return False
    return place + 2 + (at[place] << 8 | at[place + 1]) == size


cdef inline int64_t stored_of(Bytes record) noexcept:
    """Return a record's store timestamp, as `store_timestamp_of` does."""
    cdef int32_t flags = <int32_t>big32(record + SYS_FLAG_POSITION)
    cdef int64_t born_size = HOST_V6_SIZE if flags & BORNHOST_V6_FLAG else HOST_V4_SIZE
    return big64(record + BORN_HOST_POSITION + born_size)
