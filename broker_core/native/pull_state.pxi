"""Plain pulls: messages that are already in memory, or an empty result at the end of a queue.

A pull that passes every check is served here; otherwise Python decides and says why not. Counts go
to Python's objects. Work per message happens here: units, tags, log positions and the answer, whose
body is copied once. A waiting pull is a WaitingPull (`pull_turn.pxi`), which
`delivery/parked_pulls.py` tries again.
The twin is `processors/pull.py` with `processors/subscription_check.py`, `store/reads.py` and
`store/transfer.py`; anything irregular goes to the twin before anything is counted.

Data far behind the end of the log is read through the storage layer, as in Python, and verified:
touching a mapped page that isn't in memory would stall the event loop.

A pull extends the recorder's span of it without a call. Watchers hear of it after the answer is
built, and only about sampled messages: `Picks` has recorded those since they were put; for others
the hash of the key decides. `trace_events.pxi` builds the events, and Python the rest.
"""

from mmap import PAGESIZE, mmap

from broker_core.formats.cq_ext_unit import ADDRESS_MAX as EXT_ADDRESS_MAX
from broker_core.message.names import HIDDEN_TOPICS
from broker_core.message.subscription import EXPRESSION_TYPE_TAG
from broker_core.message.topic_config import PERM_READ
from broker_core.store.reads import FRESH_UNITS, UNITS_MAX
from broker_core.trace.recorder import SPAN_SECONDS

cdef extern from "<sys/mman.h>" nogil:
    int mincore(void* address, size_t length, unsigned char* states)

cdef enum:
    # The outcome of a pull: an index into PlainPulls.statuses, or NOT_PLAIN.
    FOUND = 0
    NO_MATCH = 1
    AT_THE_END = 2
    EMPTY = 3
    NOT_PLAIN = 4
    KINDS = 4
    # The store timestamp follows the born host.
    STORED_END_MAX = STORE_HOST_POSITION + HOST_V6_SIZE - HOST_V4_SIZE
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

cdef int64_t ADDRESS_MAX = EXT_ADDRESS_MAX
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
    # The messages of the queue that the sample may include, valid while `picks_table` is the same.
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
include "trace_notes.pxi"
include "pull_trace.pxi"


cdef _Reading _no_reading():
    cdef _Reading reading = _Reading.__new__(_Reading)
    reading.queue_id = -1
    reading.noted_last = -1
    reading.spans = []
    return reading


cdef class PullState:
    """The objects and buffers that pulls use. Event loop only."""

    cdef object _raw, _check, _kept_filter, _filter_type, _commits, _offsets, _former
    cdef object _pull_redirect, _tracer
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
    # Watchers want 1 in this many messages; 0: no watcher wants any.
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
        self._scratch = <uint8_t*>PyMem_Malloc(LONG_HEADER_BYTES + 1)
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
        notes = notes_of(tracer, plain.store_host)
        self._pull_trace = PullTrace(notes, plain.check.consumers, clock)
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

    @cython.final
    cdef int _release(self) except -1:
        while self._file_count:
            self._file_count -= 1
            PyBuffer_Release(&self._files[self._file_count])
            self._mapped[self._file_count] = None
        if self._is_cold:
            self._read.clear()
        return 0

    @cython.final
    cdef double _now(self) except? -1.0:
        """Return the time at which this pull is served."""
        if self._at_s < 0:
            self._at_s = seconds_of(self._monotonic)
        return self._at_s

    @cython.final
    cdef object _client_of(self, connection):
        """Return the client that sent this pull."""
        if self._client is None:
            self._client = remote_address_of(connection)
        return self._client

    @cython.final
    cdef str _name(self, Text name):
        """Return a topic or group of the header, None if it contains a zero byte."""
        return self._text(name) if name.is_escaped else self._names.of(name)

    @cython.final
    cdef str _text(self, Text text):
        """Return a text of the header, None if it contains a zero byte."""
        cdef Py_ssize_t size
        if not text.is_escaped:
            return text_of(text)
        size = unescape(text, self._scratch)
        return None if size < 0 else PyUnicode_DecodeUTF8(<const char*>self._scratch, size, NULL)
