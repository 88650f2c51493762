"""Serve a plain pull, or let it wait until messages arrive."""

cdef class WaitingPull:
    """A pull that found nothing and waits; see Parkable."""

    cdef readonly object connection, group
    cdef readonly int64_t queue_offset
    cdef PullTurn _turn
    cdef object _topic, _wanted
    cdef int32_t _code, _opaque, _queue_id
    cdef bint _is_binary
    cdef int64_t _most
    # When it was parked if a watcher was on, else 0.
    cdef double _parked_at
    # The Receiver that received it, None for Python.
    cdef Receiver _receiver

    cdef bint _is_open(self) except -1:
        """Tell whether the connection accepts frames, as `Connection.is_open` does."""
        cdef Receiver receiver = self._receiver
        if receiver is None:
            return self.connection.is_open
        return receiver._transport is not None and not receiver._transport.is_closing()

    cdef bint _is_writable(self) except -1:
        """Tell whether the client reads fast enough; the connection must be open."""
        connection = self.connection
        if type(connection) is ConnectionType:
            return slot(connection, CONNECTION_IS_WRITABLE) is True
        return connection.is_writable

    cdef bint _may_send(self) except -1:
        """Tell whether the answer may go straight to the socket."""
        return self._receiver is not None and may_send(self.connection)

    @property
    def is_answerable(self):
        """See Parkable."""
        return not self._is_open() or self._is_writable()

    def attempt(self, *, bint is_last):
        """See Parkable."""
        return self._turn._attempt(self, is_last)


@cython.final
cdef class PullTurn(PullReports):
    """Serves the plain pulls of one broker. Event loop only."""

    cdef object serve(self, Bytes begin, Py_ssize_t size, int64_t frame_max, connection,
                      dispatcher, int code, int to, Receiver receiver):
        """Serve the next pull; return its answer, b"" when it isn't plain.

        Returns None when the pull waits, or when the answer was sent to the socket `to` (negative:
        no socket).
        """
        cdef int64_t total, header
        cdef double started_s
        cdef bint is_binary = begin[FRAME_HEADER_POSITION] == SERIALIZE_ROCKETMQ
        cdef Pull pull
        self._served_bytes = 0
        self._why = HEADER
        total = big32(begin)
        header = big32(begin + FRAME_HEADER_POSITION)
        if is_binary:
            header &= HEADER_MASK
        # The first byte of `header` is the serializer; an unknown one makes the header too long.
        if total < 4 or total > frame_max or header > LONG_HEADER_BYTES:
            return b""
        if header > total - 4 or total + 4 > size:
            return b""
        if not self._is_raw_handler(dispatcher, code):
            self._why = HANDLER
            return b""
        if slot(self._slow_consumers, SLOW_CONSUMERS_IS_WATCHING):
            self._why = WATCHED
            return b""
        self._at_s = started_s = seconds_of(self._monotonic) if self._is_timed else -1.0
        self._reading = self._client = None
        if not read_like_pull(
            &self._last, begin + FRAME_PREFIX_SIZE, begin + FRAME_PREFIX_SIZE + header, is_binary,
            &pull
        ):
            return b""
        if pull.code != code:
            return b""
        try:
            answer = self._answer(&pull, header, connection, to, receiver)
        finally:
            self._release()
        if answer is not None and not PyBytes_GET_SIZE(answer):
            return answer
        self._served_bytes = 4 + total
        # Waiting time doesn't count towards the pull latency.
        if started_s >= 0 and not self._is_parked:
            time_some(self._latency, seconds_of(self._monotonic) - started_s, 1)
        return answer

    cdef bint _is_raw_handler(self, dispatcher, int code) except -1:
        """Tell whether a pull would go to the raw processor, timed or not."""
        finder = finder_of(dispatcher)
        if finder is not self._finder or code != self._found_code:
            handler = finder(code)
            untimed = self._latency.untimed(handler)
            self._is_timed = untimed is not handler
            self._is_raw = untimed == self._raw
            self._finder = finder
            self._found_code = code
        return self._is_raw

    cdef bytes _answer(self, Pull* pull, int64_t header, connection, int to, Receiver receiver):
        """Return the answer to a pull, None when it waits or is sent, b"" if it isn't plain."""
        cdef int64_t timeout_ms = 0, most = max(1, min(pull.max_msg_nums, MAX_MSG_NUMS_MAX))
        cdef int kind
        cdef bint is_committed = pull.sys_flag & FLAG_COMMIT_OFFSET and pull.commit_offset >= 0
        cdef bytes answer = None
        self._is_parked = False
        cdef str topic = self._name(pull.topic)
        cdef str group = self._name(pull.group)
        cdef dict queues = None
        committed = None
        if topic is None or group is None:
            return b""
        if is_committed:
            is_committed = slot(self._role, ROLE_IS_SLAVE) is False
        if is_committed:
            queues = (<dict>slot(self._offsets, OFFSETS_TABLE)).get(
                self._reading_of(group, topic, pull.queue_id).offsets_key
            )
            committed = None if queues is None else queues.get(pull.queue_id)
            if committed is None:
                # The offset table may be full; Python reports that.
                self._why = OFFSET
                return b""
        elif self._former.count and self._commits.is_former(
            group, topic, pull.queue_id, pull.queue_offset, connection
        ):
            # The group continues from a deleted topic; Python moves it to the new topic's first
            # message.
            self._why = OFFSET
            return b""
        self._why = READER
        try:
            if not self._find_filter(pull, group, topic, connection):
                return b""
            wanted = self._wanted
            self._sample = 0
            if slot(self._selection, SELECTION_IS_ON):
                self._sample = self._wanted_of(group, topic, pull.queue_id)
            self._why = OFFSET
            kind = self._look(topic, pull.queue_id, pull.queue_offset, most, wanted)
        except Exception:
            # Python hits the same error and answers it.
            return b""
        if kind == NOT_PLAIN:
            return b""
        if is_committed and pull.commit_offset > self._high:
            # No client can have read this far; Python discards the offset.
            self._why = OFFSET
            return b""
        if kind >= AT_THE_END and pull.sys_flag & FLAG_SUSPEND:
            timeout_ms = pull.suspend_timeout_ms
            if not self._config.long_polling_enable:
                timeout_ms = self._config.short_polling_time_mills
            timeout_ms = min(timeout_ms, self._suspend_timeout_ms_max)
            if timeout_ms and header > self._parked_chars_max:
                self._why = HEADER
                return b""
            if timeout_ms and self._parked_pulls.is_full(connection):
                timeout_ms = 0
        if not timeout_ms:
            if not self._begin_frame(kind, group, pull.queue_offset, pull.opaque, pull.is_binary):
                return b""
        if is_committed:
            self._commit(
                group, topic, pull.queue_id, pull.commit_offset, committed, queues, connection
            )
        self._tell(
            kind, group, topic, pull.queue_id, pull.queue_offset, connection, wanted, 0.0
        )
        if timeout_ms:
            self._is_parked = True
            self._park(pull, group, topic, most, wanted, connection, receiver, timeout_ms)
        elif self._whole is not None or not may_send(connection):
            answer = self._frame_as_bytes()
        else:
            answer = self._send(to)
        return answer

    cdef int _park(self, Pull* pull, group, topic, int64_t most, wanted, connection,
                   Receiver receiver, int64_t timeout_ms) except -1:
        cdef WaitingPull waiting = WaitingPull.__new__(WaitingPull)
        waiting.connection = connection
        waiting._receiver = receiver
        waiting.queue_offset = pull.queue_offset
        waiting._turn = self
        waiting.group = group
        waiting._topic = topic
        waiting._wanted = wanted
        waiting._code = pull.code
        waiting._opaque = pull.opaque
        waiting._is_binary = pull.is_binary
        waiting._queue_id = pull.queue_id
        waiting._most = most
        waiting._parked_at = self._now() if slot(self._selection, SELECTION_IS_ON) else 0.0
        self._parked_pulls.park(topic, pull.queue_id, waiting, timeout_ms)
        return 0

    cdef bint _attempt(self, WaitingPull waiting, bint is_last) except -1:
        """Try a pull again; return whether it is answered. Python twin: `Pull.attempt`."""
        if not waiting._is_open():
            return True
        if not waiting._is_writable():
            return False
        self._at_s = -1.0
        self._reading = self._client = None
        try:
            return self._answer_waiting(waiting, is_last)
        finally:
            self._release()

    cdef bint _answer_waiting(self, WaitingPull waiting, bint is_last) except -1:
        """Answer a waiting pull if it now has a result; return whether it is answered."""
        cdef int kind = self._look_again(waiting, is_last)
        cdef bint is_answered = kind == FOUND or is_last
        cdef bytes rest
        if kind == NOT_PLAIN:
            return self._hand_over(waiting, is_last)
        self._tell(
            kind, waiting.group, waiting._topic, waiting._queue_id, waiting.queue_offset,
            waiting.connection, waiting._wanted, waiting._parked_at
        )
        if not is_answered:
            waiting.queue_offset += self._scanned
            return False
        if self._whole is None and waiting._may_send():
            rest = self._send(waiting._receiver._free_socket())
            set_slot(waiting.connection, CONNECTION_WAS_ACTIVE, True)
        else:
            rest = self._frame_as_bytes()
        if rest is not None:
            waiting.connection.send(rest, at_once=True)
        return True

    cdef int _look_again(self, WaitingPull waiting, bint is_last) except -1:
        """Evaluate a waiting pull again and begin its answer if it gets one."""
        cdef int kind = NOT_PLAIN
        try:
            if not slot(self._slow_consumers, SLOW_CONSUMERS_IS_WATCHING):
                self._sample = 0
                if slot(self._selection, SELECTION_IS_ON):
                    self._sample = self._wanted_of(
                        waiting.group, waiting._topic, waiting._queue_id
                    )
                kind = self._look(
                    waiting._topic, waiting._queue_id, waiting.queue_offset, waiting._most,
                    waiting._wanted
                )
            if (kind == FOUND or (is_last and kind != NOT_PLAIN)) and not self._begin_frame(
                kind, waiting.group, waiting.queue_offset, waiting._opaque, waiting._is_binary
            ):
                kind = NOT_PLAIN
        except Exception:
            # Python hits the same error.
            kind = NOT_PLAIN
        return kind

    cdef bint _hand_over(self, WaitingPull waiting, bint is_last) except -1:
        """Let Python try a pull that is no longer plain."""
        pull = self._again(
            waiting._code, waiting._opaque, SERIALIZE_ROCKETMQ if waiting._is_binary else 0,
            waiting.connection, waiting.group, waiting._topic, waiting._queue_id,
            waiting.queue_offset, waiting._most, waiting._wanted, waiting._parked_at
        )
        is_answered = pull.attempt(is_last=is_last)
        waiting.queue_offset = pull.queue_offset
        return is_answered
