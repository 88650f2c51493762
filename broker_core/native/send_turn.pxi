"""Serve the plain sends at the beginning of the received bytes."""

@cython.final
cdef class SendTurn(SendAppends):
    """Serves plain sends of one broker. Event loop only."""

    cdef object serve(self, Bytes begin, Py_ssize_t size, int64_t frame_max, connection, dispatcher,
                      int to, Py_ssize_t room, int64_t requests_max):
        """Serve the next plain sends and return their answers, or b"" without a plain send.

        Returns None when all are one-way, or when the answers were sent to the socket `to`
        (negative: no socket). Stops after `room` bytes of answers or `requests_max` requests. When
        puts don't count at once, returns a DeferredAnswer for all of them.
        """
        cdef Py_ssize_t taken = 0, sent = 0
        cdef bytes born_host = connection.remote_host
        self._answered = self._served_bytes = 0
        self._why = SERVED
        try:
            if not self._may_serve(dispatcher, born_host):
                return b""
            try:
                taken = self._run(begin, begin + size, frame_max, room, requests_max)
            finally:
                self._store()
                if self._halves:
                    self._trace_half_messages(born_host)
                if self._sampled_sends:
                    self._trace_sampled_sends(born_host)
            if taken == 0:
                return b""
            self._served_bytes = taken
            if self._answered == 0:
                return None
            if to >= 0 and not self._waits and may_send(connection):
                sent = send_at_once(to, self._answers, self._answered)
                if sent == self._answered:
                    return None
            answers = PyBytes_FromStringAndSize(
                <char*>self._answers + sent, self._answered - sent
            )
            if not self._waits:
                return answers
            return self._send.when_together(
                self._from + self._position, answers, self._requests, taken
            )
        finally:
            self._born_host = NULL

    cdef bint _may_serve(self, dispatcher, bytes born_host) except -1:
        """Tell whether a send would go to the raw processor and a plain, writable store."""
        finder = finder_of(dispatcher)
        if finder is not self._finder:
            self._is_raw = finder(SEND_MESSAGE_V2) == self._raw
            self._is_raw_batch = finder(SEND_BATCH_MESSAGE) == self._raw_batch
            self._is_raw_long = finder(SEND_MESSAGE) == self._raw_long
            self._finder = finder
        if not self._is_raw:
            self._why = HANDLER
            return False
        self._why = STORE
        if slot(self._state, STATE_IS_WRITABLE) is not True:
            return False
        self._waits = slot(self._acknowledge, ACKNOWLEDGEMENT_WAITS)
        if self._waits:
            self._wait_limit = self._acknowledge.plain_limit
        elif slot(self._visibility, VISIBILITY_WAITS) is not False:
            # With a TransientStorePool a put counts before it can be read.
            return False
        self._is_picking = slot(self._selection, SELECTION_IS_ON)
        if self._is_picking:
            self._received_s = seconds_of(self._monotonic)
            if born_host != self._client_host:
                self._client_host = born_host
                self._client = b"," + encode_members(client=host_text(born_host))
        self._born_size = PyBytes_GET_SIZE(born_host)
        if self._born_size != HOST_V4_SIZE and self._born_size != HOST_V6_SIZE:
            return False
        self._born_host = <Bytes>PyBytes_AS_STRING(born_host)
        self._head_size = FIXED_WITHOUT_HOSTS_SIZE + self._born_size
        self._head_size += PyBytes_GET_SIZE(self._store_host)
        plain = self._send.plain
        if plain.answer_parts is not self._parts and not self._take_parts(plain):
            return False
        self._why = SERVED
        return True

    cdef bint _take_parts(self, plain) except -1:
        """Load the answer texts after a configuration change; return whether there is room."""
        cdef tuple binary = plain.binary_parts
        self._parts = None
        if len(plain.answer_parts) != PARTS or len(binary) != PARTS:
            return False
        self._parts_size = max(
            sum(map(len, plain.answer_parts)), sum(map(len, binary)) + len(self._store_host_hex)
        )
        if self._parts_size > ANSWERS_MAX // 4:
            return False
        self._entries_at = FRAME_PREFIX_SIZE + len(binary[0]) + 4 + len(binary[1])
        self._msg_id_at = self._entries_at + 4 + len(binary[2])
        self._binary_parts = binary
        self._takes_halves = plain.takes_halves and not self._is_guarded
        self._parts = plain.answer_parts
        return True

    cdef inline bint _may_serve_code(self, int32_t code) noexcept:
        """Tell whether a send with this code would go to the raw processor."""
        if code == SEND_MESSAGE_V2:
            # Checked by `_may_serve`.
            return True
        return self._is_raw_long if code == SEND_MESSAGE else self._is_raw_batch

    cdef Py_ssize_t _run(self, Bytes begin, Bytes end, int64_t frame_max,
                         Py_ssize_t room, int64_t requests_max) except -1:
        """Serve frames; return their size in bytes."""
        cdef Bytes at = begin
        cdef Bytes body
        cdef int64_t total, header
        cdef bint is_binary, is_half
        cdef Send send
        cdef Properties properties
        cdef Prepared prepared
        cdef Py_ssize_t answer_max = self._parts_size + NUMBERS_MAX
        if room > ANSWERS_MAX - answer_max:
            room = ANSWERS_MAX - answer_max
        self._requests = 0
        while end - at >= START and self._answered <= room and self._requests < requests_max:
            total = big32(at)
            header = big32(at + FRAME_HEADER_POSITION)
            is_binary = at[FRAME_HEADER_POSITION] == SERIALIZE_ROCKETMQ
            if is_binary:
                header &= HEADER_MASK
            # The first byte of `header` is the serializer; an unknown one makes the header too
            # long.
            if total < 4 or total > frame_max or header > LONG_HEADER_BYTES or header > total - 4:
                break
            if total + 4 > end - at:
                break
            body = at + FRAME_PREFIX_SIZE + header
            if not read_like_send(&self._last, at + FRAME_PREFIX_SIZE, body, is_binary, &send):
                self._why = HEADER
                break
            if not self._may_serve_code(send.code):
                self._why = HANDLER
                break
            self._why = PROPERTY
            is_half = False
            if send.is_batch:
                if not read_common(send.properties, self._scratch, &self._special, &properties):
                    break
            elif not read_properties(send.properties, self._scratch, &self._special, &properties):
                if not self._takes_halves or not read_prepared(
                    send.properties, self._scratch, &self._special, &prepared
                ):
                    break
                is_half = True
                properties = prepared.properties
            self._why = ACKNOWLEDGEMENT
            if self._waits and (properties.is_unawaited or send.is_oneway):
                break
            self._why = ROOM
            if not self._is_loaded:
                self._load()
            if send.is_batch:
                if not self._put_batch(&send, &properties, body, body + total - 4 - header):
                    break
            elif is_half:
                if not put_half(self, &send, &prepared, body, total - 4 - header):
                    break
            elif not self._put(&send, &properties, body, total - 4 - header):
                break
            at += 4 + total
            self._requests += 1
            self._why = SERVED
        return at - begin

    cdef int _trace_half_messages(self, bytes born_host) except -1:
        halves = self._halves
        self._halves = []
        self._send.note_halves(halves, born_host)
        return 0

    cdef int _trace_sampled_sends(self, bytes born_host) except -1:
        sends = self._sampled_sends
        self._sampled_sends = []
        self._trace.trace_plain_sends(sends, born_host, self._timestamp, self._received_s)
        return 0

    cdef int _store(self) except -1:
        """Write back the changed state, then notify listeners of puts."""
        cdef Place* place
        cdef Place* last = NULL
        cdef Topic* topic
        cdef int i
        cdef int64_t count = 0, size = 0, end = self._from + self._position
        cdef bint waits = slot(self._visibility, VISIBILITY_WAITS)
        if not self._is_loaded:
            return 0
        self._is_loaded = False
        PyBuffer_Release(&self._log)
        for i in range(self._open):
            place = &self._places[i]
            PyBuffer_Release(&place.units)
            if place.is_put:
                queue = <object>place.queue
                set_number(queue, QUEUE_POSITION, place.position)
                if waits:
                    set_number(queue, QUEUE_NEXT_OFFSET, place.next_offset)
                else:
                    set_in_both(queue, QUEUE_NEXT_OFFSET, QUEUE_MAX_OFFSET, place.next_offset)
                if last == NULL or place.end > last.end:
                    last = place
        for i in range(self._topic_count):
            count += self._topics[i].count
            size += self._topics[i].size
        if count:
            state = self._state
            set_number(state, STATE_POSITION, self._position)
            add(state, STATE_PUT_TIMES, count)
            add(state, STATE_PUT_BYTES, size)
            if self._index is not None:
                set_number(self._index, INDEX_ROOM, self._room)
            if seconds_of(self._monotonic) > real_slot(state, STATE_SLOW_AT):
                self._puts.report_slow_put(<object>last.topic.text, last.queue_id, size)
            self._show(end, waits)
            if not self._waits:
                add(self._latency, LATENCY_SERVED, self._requests)
        for i in range(self._topic_count):
            topic = &self._topics[i]
            if topic.count:
                # Sends to a topic count together, across its queues.
                self._counts.put(<object>topic.text, topic.calls, topic.count, topic.size)
        self._forget_places()
        self._waiting = None
        return 0

    cdef int _show(self, int64_t end, bint waits) except -1:
        """Publish puts whose offsets are set. Python twin: `MessagePut.show`, `Visibility`."""
        cdef Place* place
        cdef Topic* topic
        cdef int i
        cdef list dirty = self._queues.dirty
        visibility = self._visibility
        if self._parked_by_topic:
            for i in range(self._topic_count):
                topic = &self._topics[i]
                topic.parked_pulls = PyDict_GetItem(self._parked_by_topic, <object>topic.text)
                Py_XINCREF(topic.parked_pulls)
        for i in range(self._open):
            place = &self._places[i]
            if not place.is_put:
                continue
            queue = <object>place.queue
            if slot(queue, QUEUE_DIRTY) is False:
                set_slot(queue, QUEUE_DIRTY, True)
                dirty.append(queue)
            if waits:
                visibility.leave_unflushed(queue, end)
                continue
            topic = place.topic
            if topic.parked_pulls != NULL and place.queue_id in <dict>topic.parked_pulls:
                visibility.on_arrival(<object>topic.text, place.queue_id, place.next_offset)
        return 0
