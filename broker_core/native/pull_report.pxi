"""Report what pulls deliver and acknowledge: counters, offsets, the recorder and watchers."""

cdef class PullReports(PullAnswers):
    """Reports deliveries and acknowledgements of pulls."""

    @cython.final
    cdef int _commit(self, group, topic, int32_t queue_id, int64_t offset, before,
                     dict queues, connection) except -1:
        """Store an offset. The twin is OffsetCommits; a pull without an offset runs no hooks.

        `queues` maps the topic's queues to the group's offsets; `before` is this queue's offset.
        """
        if self._sample == 1 or (
            self._sample and self._pull_trace.waits(self._reading_of(group, topic, queue_id))
        ):
            # A watcher may want to know which messages the offset covers.
            if not self._note_acknowledgement(group, topic, queue_id, before, offset, connection):
                self._commits.commit(group, topic, queue_id, offset, connection)
                return 0
        if slot(self._recorder, RECORDER_IS_ON) is True:
            self._note_acknowledged(group, topic, queue_id, offset, self._client_of(connection))
        if before != offset:
            queues[queue_id] = offset
            set_slot(self._offsets, OFFSETS_IS_DIRTY, True)
        return 0

    @cython.final
    cdef bint _note_acknowledgement(self, group, topic, int32_t queue_id, before, int64_t offset,
                                 connection) except -1:
        """Report the messages that an offset covers; return False if Python must do it."""
        cdef _Reading reading = self._reading_of(group, topic, queue_id)
        if self._sample == 1 or reading.of_acknowledgements is None:
            return False
        if before == offset:
            return True
        return self._pull_trace.acknowledged(
            reading, connection, max(0, min(<int64_t>before, offset)), offset, self._now()
        )

    @cython.final
    cdef _Reading _reading_of(self, group, topic, int32_t queue_id):
        """Return the cached state of a reader."""
        cdef Py_ssize_t at
        cdef _Reading reading
        if self._reading is not None:
            return self._reading
        at = (hash(group) ^ (hash(topic) << 1) ^ queue_id) & (READINGS - 1)
        reading = <_Reading>self._readings[at]
        if (
            reading.queue_id != queue_id
            or not is_same(reading.topic, topic)
            or not is_same(reading.group, group)
        ):
            reading = _no_reading()
            reading.group = group
            reading.topic = topic
            reading.queue_id = queue_id
            reading.queue = (group, topic, queue_id)
            reading.offsets_key = f"{topic}@{group}"
            self._find_spans(reading)
            # The reader replaced here may have pending notes.
            self._pull_trace.notes.emit()
            self._readings[at] = reading
        self._reading = reading
        return reading

    @cython.final
    cdef int64_t _wanted_of(self, group, topic, int32_t queue_id) except -1:
        """Return N if watchers want 1 in N of the messages delivered to a reader, or 0."""
        cdef _Reading reading = self._reading_of(group, topic, queue_id)
        pulls = slot(self._selection, SELECTION_PULLS)
        if reading.pulls is not pulls:
            reading.pulls = pulls
            reading.sample = pulls[topic, group]
            told = self._tracer.event_sinks.of_pulls[topic, group]
            reading.of_deliveries = None if told is None else told.delivered
            reading.of_acknowledgements = None if told is None else told.acknowledged
        return reading.sample

    @cython.final
    cdef int _find_spans(self, _Reading reading) except -1:
        spans = self._recorder.spans.get((reading.group, reading.topic, reading.queue_id))
        if spans is not None:
            reading.spans = spans
        return 0

    @cython.final
    cdef int _note_delivered(self, group, topic, int32_t queue_id, int64_t first,
                             client) except -1:
        """Add messages to the span they follow; the recorder handles every other case."""
        cdef _Reading reading = self._reading_of(group, topic, queue_id)
        cdef Py_ssize_t count = len(reading.spans)
        cdef int64_t end = first + self._scanned, waited_ms
        cdef bint is_sifted = self._scanned > self._count
        cdef double at_s = self._now()
        cdef Span last
        if count and self._extends_spans:
            last = <Span>reading.spans[count - 1]
            if (
                last.first <= first <= last.end
                and at_s - last.at_s < SPAN_S
                and (last.client is client or last.client == client)
            ):
                if end > last.end:
                    last.end = end
                last.byte_count += self._byte_count
                last.acknowledged_s = 0.0
                if is_sifted:
                    last.is_sifted = True
                waited_ms = <int64_t>(at_s * 1000 + last.wall_ms + 0.5)
                waited_ms -= max(0, self._first_stored)
                if waited_ms > last.worst_ms:
                    last.worst_ms = waited_ms
                    last.worst = self._first_offset if is_sifted else first
                return 0
        self._recorder.delivered(
            (group, topic, queue_id), first, end, self._first_stored, self._byte_count, client,
            is_cold=False, handed_out=self._first_offset if is_sifted else None,
        )
        self._find_spans(reading)
        return 0

    @cython.final
    cdef int _note_acknowledged(self, group, topic, int32_t queue_id, int64_t offset,
                                client) except -1:
        """Record an offset in the only span that it ends; the recorder handles every other case."""
        cdef _Reading reading = self._reading_of(group, topic, queue_id)
        cdef Py_ssize_t count = len(reading.spans)
        cdef Span oldest
        if count and self._extends_spans:
            oldest = <Span>reading.spans[0]
            if oldest.end > offset or oldest.acknowledged_s != 0:
                return 0
            if count == 1:
                oldest.acknowledged_s = self._now()
                oldest.acknowledged_by = client
                return 0
        self._recorder.acknowledged((group, topic, queue_id), offset, client)
        return 0

    @cython.final
    cdef int _trace_delivery(self, group, topic, int32_t queue_id, int64_t queue_offset,
                               connection, wanted, double parked_at) except -1:
        """Report the sampled messages and the messages that a filter skipped."""
        cdef list records = None
        cdef bint is_sifted = wanted is not None and self._scanned > self._count
        cdef int count
        buffers = ()
        if self._sample > 1:
            count = 0
            if self._count:
                count = self._choose(self._reading_of(group, topic, queue_id), queue_offset)
            if not is_sifted and (
                count == 0
                or (
                    parked_at == 0
                    and self._note_deliveries(group, topic, queue_id, connection, count)
                )
            ):
                return 0
            records = self._copies(count)
        if self._count:
            buffers = (memoryview(self._frame_as_bytes())[self._head_size :],)
        self._trace_pull(
            self._answered(
                group, topic, queue_id, queue_offset, queue_offset + self._scanned, connection,
                buffers, self._count, wanted, False, parked_at,
            ),
            records,
        )
        return 0

    @cython.final
    cdef bint _note_deliveries(self, group, topic, int32_t queue_id, connection,
                              int count) except -1:
        """Report the chosen records; return False if Python must do it."""
        cdef _Reading reading = self._reading_of(group, topic, queue_id)
        if reading.of_deliveries is None:
            return False
        return self._pull_trace.delivered(
            reading, connection, self._chosen, count, self._sample, self._now()
        )

    @cython.final
    cdef list _copies(self, int count):
        """Return copies of the chosen records."""
        cdef int i
        return [
            memoryview(
                PyBytes_FromStringAndSize(<const char*>self._chosen[i], big32(self._chosen[i]))
            )
            for i in range(count)
        ]

    @cython.final
    cdef int _choose(self, _Reading reading, int64_t queue_offset) except -1:
        """Choose the sampled records of an answer; return their count."""
        cdef Bytes at = self._runs[0].at
        cdef Bytes end = at + self._runs[0].size
        cdef int run = 0
        cdef int64_t size, offset = queue_offset, limit = queue_offset + self._scanned
        cdef int number = 0, count = 0
        cdef bint is_picked, is_sure = False
        # Nothing was skipped, so the offsets needn't be read.
        cdef bint is_each = self._count == self._scanned
        cdef Picks picks = reading.picks
        table = slot(self._selection, SELECTION_SAMPLE_CACHE)
        if picks is None or reading.picks_table is not table or limit > picks.end:
            # The table was replaced, or it held too many queues.
            picks = reading.picks = (<dict>table).get(self._queue)
            reading.picks_table = table
        if picks is not None:
            if (
                queue_offset < picks.begin
                or limit > picks.end
                or self._sample % picks.sample
            ):
                picks = None
            else:
                number = picks.at_or_behind(queue_offset)
        while True:
            if at == end:
                run += 1
                if run >= self._run_count:
                    break
                at = self._runs[run].at
                end = at + self._runs[run].size
            size = big32(at)
            if size < STORED_END_MAX:
                break
            if picks is not None:
                if number == picks.count or picks.places[number] >= 2 * limit:
                    break
                if is_each:
                    while offset < picks.places[number] >> 1 and size >= STORED_END_MAX:
                        at += size
                        offset += 1
                        if at == end:
                            break
                        size = big32(at)
                    if at == end or size < STORED_END_MAX:
                        continue
                else:
                    offset = big64(at + QUEUE_OFFSET_POSITION)
                while number < picks.count and picks.places[number] < 2 * offset:
                    number += 1
                is_picked = number < picks.count and picks.places[number] <= 2 * offset + 1
                is_sure = (
                    is_picked
                    and picks.places[number] == 2 * offset
                    and picks.sample == self._sample
                )
            else:
                is_picked = True
            if is_picked and (is_sure or is_in_sample(at, at + size, self._sample)):
                self._chosen[count] = at
                count += 1
            at += size
            offset += 1
        return count

    @cython.final
    cdef int _tell(self, int kind, group, topic, int32_t queue_id, int64_t queue_offset,
                   connection, wanted, double parked_at) except -1:
        """Count the result of a pull, record its span and report the delivered messages."""
        reader = self._reader
        if kind == FOUND:
            add(reader, READER_FOUND_TIMES, 1)
            add(reader, READER_MESSAGES, self._count)
            self._counts.got(
                self._reading_of(group, topic, queue_id), self._count, self._byte_count
            )
            if slot(self._recorder, RECORDER_IS_ON) is True:
                self._note_delivered(
                    group, topic, queue_id, queue_offset, self._client_of(connection)
                )
        else:
            add(reader, READER_MISS_TIMES, 1)
        if self._sample and kind <= NO_MATCH:
            self._trace_delivery(
                group, topic, queue_id, queue_offset, connection, wanted, parked_at
            )
        return 0
