"""Plain pulls: messages that are already in memory, or an empty result at the end of a queue.

A pull that passes every check is served here; otherwise Python decides and says why not. Counts go
to Python's objects. Work per message happens here: units, tags, log positions and the answer, whose
body is copied once. A waiting pull is a WaitingPull, which `delivery/parked_pulls.py` tries again.
The twin is `processors/pull.py` with `processors/subscription_check.py`, `store/reads.py` and
`store/transfer.py`; anything irregular goes to the twin before anything is counted.

Data far behind the end of the log is read through the storage layer, as in Python, and verified:
touching a mapped page that isn't in memory would stall the event loop.

A pull extends the recorder's span of it without a call. Watchers hear of it after the answer is
built, and only about sampled messages: `Picks` has recorded those since they were put; for others
the hash of the key decides. `trace_events.pxi` builds the events, and Python the rest.
"""

from mmap import PAGESIZE, mmap

from broker_core.formats.record import MESSAGE_MAGIC_V2
from broker_core.message.names import HIDDEN_TOPICS
from broker_core.message.subscription import EXPRESSION_TYPE_TAG
from broker_core.message.topic_config import PERM_READ
from broker_core.store.reads import FRESH_UNITS, UNITS_MAX
from broker_core.trace.recorder import SPAN_SECONDS

cdef extern from "<sys/mman.h>" nogil:
    int mincore(void* address, size_t length, unsigned char* states)

cdef enum:
    FLAG_COMMIT_OFFSET = 1
    FLAG_SUSPEND = 2
    FLAG_SUBSCRIPTION = 4
    # The outcome of a pull: an index into PlainPulls.statuses, or NOT_PLAIN.
    FOUND = 0
    NO_MATCH = 1
    AT_THE_END = 2
    EMPTY = 3
    NOT_PLAIN = 4
    KINDS = 4
    QUEUE_OFFSET_AT = 20
    OWN_OFFSET_AT = 28
    SYS_FLAG_AT = 36
    STORED_AT = 48
    STORED_END_MAX = 76
    MAX_MSG_NUMS_MAX = 1024
    FILLER_SIZE = 0x7FFFFFFF
    SIZE_BYTES = 4
    CODES_MAX = 64
    FILES_MAX = 4
    FOUND_PARTS = 6
    # Three offsets, the opaque and, in a binary header, five sizes.
    FOUND_NUMBERS_MAX = 100
    FOUND_HEAD_MAX = 1024
    # Linux accepts up to about 1,000 parts per sendmsg.
    RUNS_MAX = 1000
    PIECES_MAX = 64
    STATES_MAX = 64
    READINGS = 4096
    FRAME_BYTES_MAX = 16777216

cdef int64_t ADDRESS_MAX = -2147483649
cdef int32_t BORN_V6 = BORNHOST_V6_FLAG
cdef int32_t STORE_V6 = STOREHOST_V6_FLAG
cdef uint32_t MAGIC_V2 = MESSAGE_MAGIC_V2 & 0xFFFFFFFF
cdef int32_t READABLE = PERM_READ
cdef double SPAN_S = SPAN_SECONDS
cdef int64_t UNITS_NEVER_ASKED = FRESH_UNITS
cdef int64_t UNITS_ASKED = UNITS_MAX
cdef int64_t PAGE = PAGESIZE
cdef int64_t PIECE = STATES_MAX * PAGESIZE
cdef double BELIEVED_S = 0.05


cdef struct Run:
    # Adjacent records.
    Bytes at
    Py_ssize_t size


cdef struct Present:
    # Mapped addresses that the kernel reported as resident, valid until `until_s`.
    uint64_t begin
    uint64_t end
    double until_s


@cython.final
@cython.no_gc
cdef class Span:
    """The twin of Span in broker_core/trace/recorder.py."""

    cdef public double at_s, wall_ms, acknowledged_s
    cdef public tuple queue
    cdef public int64_t first, end, byte_count, worst_ms, worst
    cdef public str client, source, acknowledged_by
    cdef public bint is_sifted

    def __init__(self, double at_s, tuple queue not None, int64_t first, int64_t end,
                 str client not None, int64_t byte_count, str source not None, int64_t worst_ms,
                 int64_t worst, bint is_sifted, double wall_ms):
        self.at_s = at_s
        self.queue = queue
        self.first = first
        self.end = end
        self.client = client
        self.byte_count = byte_count
        self.source = source
        self.worst_ms = worst_ms
        self.worst = worst
        self.is_sifted = is_sifted
        self.wall_ms = wall_ms
        self.acknowledged_s = 0.0
        self.acknowledged_by = ""


cdef class _Reading:
    """A group reading a queue, with the spans that the recorder holds for it."""

    cdef str group, topic
    cdef int32_t queue_id
    # The key of the group's offsets in the topic; see ConsumerOffsets.
    cdef str offsets_key
    # The counters of delivered messages, valid while `gets` stays the same table.
    cdef object gets, flow
    cdef list spans
    # Watchers want 1 in `sample` messages, valid while `pulls` stays the same table.
    cdef object pulls
    cdef int64_t sample
    # The watches that Teller notifies, None where Python does; the key of deliveries; event
    # fragments.
    cdef tuple of_deliveries, of_acknowledgements, queue
    cdef bytes where, who
    # Which messages of the queue the sample may include, valid while `picks_table` is the same table.
    cdef Picks picks
    cdef object picks_table
    # Unacknowledged deliveries, valid while `waiting_in` stays the same table.
    cdef dict waiting
    cdef object waiting_in
    cdef object client, client_id
    # The membership version when `client` was looked up, and whether an event has room for it.
    cdef object heartbeats
    cdef bint has_room
    # Queue offsets, both inclusive, of noted deliveries that are neither reported nor acknowledged;
    # empty when the first is above the second.
    cdef int64_t noted_first, noted_last


include "trace_events.pxi"


cdef class PullTurn


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


cdef class PullTurn:
    """Serves the plain pulls of one broker. Event loop only."""

    cdef object _raw, _check, _kept_filter, _filter_type, _commits, _offsets, _former, _pull_redirect
    cdef object _tracer
    cdef object _slow_consumers, _config, _reader, _store_config, _state
    # These tables are never replaced; only their contents change.
    cdef dict _groups, _topics, _readers, _queues
    cdef list _log_files
    cdef int64_t _log_file_size
    cdef Counts _counts
    cdef Names _names
    cdef object _visibility, _quarantine, _latency, _monotonic, _parked_pulls, _again
    cdef object _finder, _role, _recorder, _selection, _trace_pull, _answered
    cdef PullTrace _pull_trace
    cdef list _readings
    cdef bint _is_raw, _is_timed, _extends_spans
    cdef int _found_code
    # Indexed by kind.
    cdef tuple _parts, _binary_parts
    cdef Py_ssize_t _parts_size
    cdef int64_t _filtered_units_max, _parked_chars_max, _suspend_timeout_ms_max, _kept_chars_max
    cdef uint8_t* _scratch
    # State of the current pull.
    cdef Bytes _chosen[MAX_MSG_NUMS_MAX]
    cdef int64_t _codes[CODES_MAX]
    cdef int _code_count
    cdef LikePull _last
    cdef Run _runs[MAX_MSG_NUMS_MAX]
    cdef int _run_count
    # The answer: its head, then the head and the runs as parts for sendmsg.
    cdef uint8_t _head[FOUND_HEAD_MAX]
    cdef Py_ssize_t _head_size
    # The whole answer, once a caller has asked for it as bytes.
    cdef bytes _whole
    cdef iovec _parts_of_frame[1 + RUNS_MAX]
    cdef bint _is_parked
    cdef Py_buffer _files[FILES_MAX]
    cdef list _mapped
    cdef int _file_count
    # The data read for a cold plan; its runs point into these buffers.
    cdef list _read
    cdef bint _is_cold
    cdef object _wanted, _queue, _client
    cdef _Reading _reading
    # When the pull is served, on the monotonic clock; negative until the clock is read.
    cdef double _at_s
    # Watchers want 1 in this many messages; 0 for none.
    cdef int64_t _sample
    # Size of the frames served, in bytes.
    cdef Py_ssize_t _served_bytes
    # Why the pull isn't plain.
    cdef int _why
    cdef int64_t _low, _high, _scanned, _count, _byte_count, _first_stored, _first_offset
    # The log offset in the last unit examined, and the offset from which all data is in memory.
    cdef int64_t _last_offset, _disk_before
    # The offset from which residency isn't checked, and the kernel's latest answers.
    cdef int64_t _fresh_from
    cdef Present _present[PIECES_MAX]

    def __cinit__(self):
        self._file_count = 0
        # Fits the longest string of a header.
        self._scratch = <uint8_t*>PyMem_Malloc(LONG_HEADER + 1)
        if self._scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._scratch)

    def __init__(self, pull, reader, put_state, stats, clock):
        """`pull` is the processor, `reader` the source of its messages; see their attributes."""
        plain = pull.plain
        self._raw = pull.pull_message
        self._check = plain.check
        self._kept_filter = plain.kept_filter
        self._kept_chars_max = plain.kept_chars_max
        self._parked_chars_max = plain.parked_chars_max
        self._suspend_timeout_ms_max = plain.suspend_timeout_ms_max
        self._filter_type = plain.filter_type
        self._filtered_units_max = plain.filtered_units_max
        self._commits = plain.commits
        self._offsets = exactly(OffsetsType, plain.commits.offsets)
        self._former = plain.commits.offsets.former
        self._pull_redirect = plain.pull_redirect
        self._role = exactly(RoleType, plain.pull_redirect.role)
        self._tracer = tracer = plain.tracer
        self._recorder = exactly(RecorderType, tracer.recorder)
        self._extends_spans = tracer.recorder.span_type is Span
        self._readings = [_no_reading()] * READINGS
        self._names = Names()
        self._groups = plain.check.groups.table
        self._topics = plain.check.topics.table
        self._readers = plain.check.consumers.groups
        self._mapped = [None] * FILES_MAX
        self._last.shape.size = 0
        self._read = []
        self._selection = exactly(EventSelectionType, tracer.selection)
        self._pull_trace = PullTrace(notes_of(tracer, plain.store_host), plain.check.consumers, clock)
        self._trace_pull = plain.trace_pull
        self._answered = plain.answered
        self._slow_consumers = exactly(SlowConsumersType, plain.slow_consumers)
        self._config = exactly(BrokerConfigType, plain.config)
        self._parts = plain.answer_parts
        self._binary_parts = plain.binary_parts
        self._parts_size = max([
            sum(map(len, parts)) for parts in (*self._parts, *self._binary_parts)
        ])
        self._parked_pulls = plain.parked_pulls
        self._again = plain.again
        self._reader = exactly(ReaderType, reader)
        self._store_config = exactly(StoreConfigType, reader.config)
        self._log_files = reader.log.files
        self._log_file_size = reader.log.file_size
        self._queues = reader.queues.table
        self._visibility = exactly(VisibilityType, reader.visibility)
        self._quarantine = exactly(QuarantineType, reader.quarantine)
        self._state = exactly(StateType, put_state)
        self._counts = Counts(stats)
        self._latency = exactly(LatencyType, stats.get_latency)
        self._monotonic = clock.monotonic
        self._finder = None
        self._found_code = -1
        self._is_raw = self._is_timed = False
        names = ("FOUND", "NO_MATCHED_MESSAGE", "OFFSET_OVERFLOW_ONE", "NO_MESSAGE_IN_QUEUE")
        if plain.statuses != names or not len(self._parts) == len(self._binary_parts) == KINDS:
            raise ValueError("pulls come to other things than the turn knows")
        if any([len(parts) != FOUND_PARTS for parts in (*self._parts, *self._binary_parts)]):
            raise ValueError("the answer has other places than the turn fills")

    cdef object serve(self, Bytes begin, Py_ssize_t size, int64_t frame_max, connection,
                      dispatcher, int code, int to, Receiver receiver):
        """Serve the next pull; return its answer, b"" when it isn't plain.

        Returns None when the pull waits, or when the answer was sent to the socket `to` (negative:
        no socket).
        """
        cdef int64_t total, header
        cdef double started_s
        cdef bint is_binary = begin[SERIALIZER_AT] == ROCKETMQ
        cdef Pull pull
        self._served_bytes = 0
        self._why = HEADER
        total = big32(begin)
        header = big32(begin + 4)
        if is_binary:
            header &= HEADER_MASK
        # The first byte of `header` is the serializer; an unknown one makes the header too long.
        if total < 4 or total > frame_max or header > LONG_HEADER:
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
            &self._last, begin + PREFIX, begin + PREFIX + header, is_binary, &pull
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

    cdef int _release(self) except -1:
        while self._file_count:
            self._file_count -= 1
            PyBuffer_Release(&self._files[self._file_count])
            self._mapped[self._file_count] = None
        if self._is_cold:
            self._read.clear()
        return 0

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
            waiting._code, waiting._opaque, ROCKETMQ if waiting._is_binary else 0,
            waiting.connection, waiting.group, waiting._topic, waiting._queue_id,
            waiting.queue_offset, waiting._most, waiting._wanted, waiting._parked_at
        )
        is_answered = pull.attempt(is_last=is_last)
        waiting.queue_offset = pull.queue_offset
        return is_answered

    cdef double _now(self) except? -1.0:
        """Return the time at which this pull is served."""
        if self._at_s < 0:
            self._at_s = seconds_of(self._monotonic)
        return self._at_s

    cdef object _client_of(self, connection):
        """Return the client that sent this pull."""
        if self._client is None:
            self._client = remote_address_of(connection)
        return self._client

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

    cdef int64_t _wanted_of(self, group, topic, int32_t queue_id) except -1:
        """Return N if watchers want 1 in N of the messages delivered to a reader; 0 for none."""
        cdef _Reading reading = self._reading_of(group, topic, queue_id)
        pulls = slot(self._selection, SELECTION_PULLS)
        if reading.pulls is not pulls:
            reading.pulls = pulls
            reading.sample = pulls[topic, group]
            told = self._tracer.event_sinks.of_pulls[topic, group]
            reading.of_deliveries = None if told is None else told.delivered
            reading.of_acknowledgements = None if told is None else told.acknowledged
        return reading.sample

    cdef int _find_spans(self, _Reading reading) except -1:
        spans = self._recorder.spans.get((reading.group, reading.topic, reading.queue_id))
        if spans is not None:
            reading.spans = spans
        return 0

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
                or (parked_at == 0 and self._note_deliveries(group, topic, queue_id, connection, count))
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

    cdef bint _note_deliveries(self, group, topic, int32_t queue_id, connection,
                              int count) except -1:
        """Report the chosen records; return False if Python must do it."""
        cdef _Reading reading = self._reading_of(group, topic, queue_id)
        if reading.of_deliveries is None:
            return False
        return self._pull_trace.delivered(
            reading, connection, self._chosen, count, self._sample, self._now()
        )

    cdef list _copies(self, int count):
        """Return copies of the chosen records."""
        cdef int i
        return [
            memoryview(PyBytes_FromStringAndSize(<const char*>self._chosen[i], big32(self._chosen[i])))
            for i in range(count)
        ]

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
                    offset = big64(at + QUEUE_OFFSET_AT)
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

    cdef bint _find_filter(self, Pull* pull, group, topic, connection) except -1:
        """Find the reader's filter if it may read the queue. Python twin: SubscriptionCheck.

        Returns whether every check passed; Python reports the failure otherwise.
        """
        check = self._check
        config = self._config
        group_config = self._groups.get(group)
        if group_config is None:
            group_config = check.groups.find_or_create(group)
        topic_config = self._topics.get(topic)
        if (
            type(group_config) is not GroupConfigType
            or type(topic_config) is not TopicConfigType
            or not number_slot(config, CONFIG_BROKER_PERMISSION) & READABLE
            or not slot(group_config, GROUP_CONFIG_CONSUMES)
            or not number_slot(topic_config, TOPIC_CONFIG_PERM) & READABLE
            or topic in HIDDEN_TOPICS
            or not 0 <= pull.queue_id < number_slot(topic_config, TOPIC_CONFIG_READ_QUEUES)
            or slot(config, CONFIG_FILTER_RETRY)
        ):
            return False
        if pull.sys_flag & FLAG_SUBSCRIPTION:
            return self._find_own_filter(pull, topic)
        readers = self._readers.get(group)
        if type(readers) is not GroupType or (
            not slot(group_config, GROUP_CONFIG_BROADCASTS)
            and slot(readers, GROUP_MESSAGE_MODEL) == "BROADCASTING"
        ):
            return False
        subscription = (<dict>slot(readers, GROUP_SUBSCRIPTIONS)).get(topic)
        if type(subscription) is not SubscriptionType:
            return False
        data = slot(subscription, SUBSCRIPTION_DATA)
        if type(data) is not SubscriptionDataType:
            return False
        if number_slot(data, DATA_SUB_VERSION) < pull.sub_version:
            return False
        if not (
            is_same(<str>slot(data, DATA_EXPRESSION_TYPE), EXPRESSION_TYPE_TAG)
            or data.is_tag_expression
        ):
            return False
        self._wanted = slot(subscription, SUBSCRIPTION_TAG_FILTER)
        return True

    cdef bint _find_own_filter(self, Pull* pull, topic) except -1:
        expression = self._text(pull.subscription)
        expression_type = self._text(pull.expression_type)
        if expression is None or expression_type is None:
            return False
        most = min(self._kept_chars_max, <int64_t>self._check.limits.client_expression_chars_max)
        if len(expression) > most:
            return False
        wanted = self._kept_filter(topic, expression, expression_type or None)
        if wanted is not None and type(wanted) is not self._filter_type:
            return False
        self._wanted = wanted
        return True

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

    cdef bint _go_through(self, Bytes unit, Py_ssize_t units, int64_t max_offset,
                          int64_t read_limit, int64_t count_max, int64_t bytes_max,
                          int64_t most, bint is_filtered) except -1:
        cdef Py_ssize_t i
        cdef int64_t offset, size, file_from = 0, file_to = -1
        cdef int64_t disk_before = self._disk_before
        cdef int64_t cold_count_max = -1, cold_bytes_max = -1
        cdef int64_t fresh_from = self._fresh_from, here_from = 0, here_to = -1
        cdef bint is_on_disk
        cdef Bytes file = NULL
        cdef Bytes at
        cdef Run* run
        for i in range(units):
            offset = big64(unit)
            size = <int32_t>big32(unit + 8)
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

    cdef void _take_first(self, Bytes record) noexcept:
        """Keep the first record's store time and queue offset."""
        self._first_stored = stored_of(record)
        self._first_offset = big64(record + QUEUE_OFFSET_AT)

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
        size = PREFIX + self._parts_size + PyBytes_GET_SIZE(which) + FOUND_NUMBERS_MAX
        if size > FOUND_HEAD_MAX or self._byte_count > FRAME_BYTES_MAX - FOUND_HEAD_MAX:
            return False
        if is_binary:
            to = self._binary_head(head + PREFIX, kind, which, queue_offset, opaque)
        else:
            to = self._json_head(head + PREFIX, kind, which, queue_offset, opaque)
        size = to - head
        header = <uint32_t>(size - PREFIX)
        if is_binary:
            header |= <uint32_t>ROCKETMQ << 24
        put32(put32(head, <uint32_t>(size - 4 + self._byte_count)), header)
        self._parts_of_frame[0].iov_base = head
        self._parts_of_frame[0].iov_len = size
        self._head_size = size
        return True

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

    cdef bytes _frame_as_bytes(self):
        """Return the frame as bytes; from now on the runs point into them."""
        if self._whole is None:
            self._whole = self._frame(0)
            self._run_count = 1 if self._byte_count else 0
            self._runs[0].at = <Bytes>PyBytes_AS_STRING(self._whole) + self._head_size
            self._runs[0].size = self._byte_count
        return self._whole

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

    cdef uint8_t* _json_head(self, uint8_t* to, int kind, bytes which, int64_t queue_offset,
                             int32_t opaque) except NULL:
        cdef tuple parts = <tuple>self._parts[kind]
        to = put_part(put_part(to, <bytes>parts[0]), which)
        to = put_decimal(put_part(to, <bytes>parts[1]), queue_offset + self._scanned)
        to = put_decimal(put_part(to, <bytes>parts[2]), self._low)
        to = put_decimal(put_part(to, <bytes>parts[3]), self._high)
        to = put_decimal(put_part(to, <bytes>parts[4]), opaque)
        return put_part(to, <bytes>parts[5])

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

    cdef str _name(self, Text name):
        """Return a topic or group of the header, None if it contains a zero byte."""
        return self._text(name) if name.is_escaped else self._names.of(name)

    cdef str _text(self, Text text):
        """Return a text of the header, None if it contains a zero byte."""
        cdef Py_ssize_t size
        if not text.is_escaped:
            return text_of(text)
        size = unescape(text, self._scratch)
        return None if size < 0 else PyUnicode_DecodeUTF8(<const char*>self._scratch, size, NULL)


cdef _Reading _no_reading():
    cdef _Reading reading = _Reading.__new__(_Reading)
    reading.queue_id = -1
    reading.noted_last = -1
    reading.spans = []
    return reading


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
    magic = big32(at + 4)
    flags = <int32_t>big32(at + SYS_FLAG_AT)
    if (magic != MAGIC and magic != MAGIC_V2) or big64(at + OWN_OFFSET_AT) != offset:
        return False
    fixed = STORED_AT + 8 + 16
    fixed += HOST_MAX if flags & BORN_V6 else 8
    fixed += HOST_MAX if flags & STORE_V6 else 8
    if fixed > size:
        return False
    body = <int32_t>big32(at + fixed - 4)
    place = fixed + body
    if body < 0 or place + 2 > size:
        return False
    if magic == MAGIC:
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
    cdef int32_t flags = <int32_t>big32(record + SYS_FLAG_AT)
    return big64(record + STORED_AT + (HOST_MAX if flags & BORN_V6 else 8))
