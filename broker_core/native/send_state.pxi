"""State of the sends that a turn of the event loop serves."""

cdef struct Topic:
    # A topic that this turn puts to, with totals over its queues. Object references are owned. The
    # name as a string and as sent.
    PyObject* text
    Bytes name
    Py_ssize_t name_size
    # The topic's queues, and how many of them are plain.
    PyObject* queues
    int64_t plain
    # Shared by all its queues: the key seed, and the topic as written in a record, owned by
    # `field`; NULL before the first queue.
    PyObject* seed
    PyObject* field
    Bytes field_at
    Py_ssize_t field_size
    int64_t calls
    int64_t count
    int64_t size
    # Waiting pulls by queue; NULL if no pull waits.
    PyObject* parked_pulls


cdef struct Place:
    # A queue that this turn puts to. Object references are owned.
    PyObject* queue
    Topic* topic
    int32_t queue_id
    bint is_put
    Py_buffer units
    int64_t position
    int64_t limit
    int64_t next_offset
    int64_t end
    # Watchers want 1 in this many of its messages; 0: no watcher wants any.
    int64_t sample
    # The queue's Picks; NULL unless a sample is wanted.
    PyObject* picks


cdef class SendState:
    """The objects and buffers that sends use. Event loop only."""

    cdef object _send, _raw, _raw_batch, _raw_long
    # The lookup that found the handlers; the flags tell which handlers are raw.
    cdef object _finder
    cdef bint _is_raw, _is_raw_batch, _is_raw_long
    cdef object _puts, _config, _state, _queues, _index
    # Existing queues by topic.
    cdef dict _queues_of
    cdef Counts _counts
    cdef object _acknowledge, _latency, _now_ms, _monotonic, _plain_queues, _unwritten
    cdef object _waiting, _timestamp, _selection, _trace, _tracer
    cdef double _received_s
    cdef list _sampled_sends, _halves
    cdef Notes _notes
    cdef str _half_topic
    cdef bint _takes_halves
    # The client address in events, as sent and as JSON.
    cdef bytes _client_host, _client
    cdef tuple _parts
    cdef tuple _special_names
    # See PlainSends.
    cdef tuple _binary_parts
    cdef Py_ssize_t _entries_at, _msg_id_at
    cdef bytes _store_host, _store_host_hex, _cluster, _guard_name
    # The bytes after the cluster pair; with guarded records, room for the checksum.
    cdef bytes _ending
    cdef bint _is_guarded
    # The queues and topics put to in this turn; `_open` and `_topic_count` entries are in use.
    cdef Place _places[PLACES_MAX]
    cdef Topic _topics[PLACES_MAX]
    cdef int _open, _topic_count
    # By hash of topic and queue: 1 plus the index of the place opened there first, or 0.
    cdef uint8_t _slots[SLOTS]
    cdef object _visibility
    cdef dict _parked_by_topic
    cdef Names _names
    cdef Special _special
    cdef LikeSend _last
    cdef int32_t _kept_flags, _refused_flags, _set_flags
    cdef uint8_t* _answers
    cdef Py_ssize_t _parts_size, _answered
    cdef uint8_t* _scratch
    # State of the current turn.
    cdef Py_buffer _log
    cdef int64_t _from, _position, _limit, _body_max, _room, _now
    cdef int64_t _wait_limit, _requests
    # Size of the frames served, in bytes.
    cdef Py_ssize_t _served_bytes
    # Why the next frame isn't served.
    cdef int _why
    cdef bint _is_loaded, _waits, _is_picking
    cdef Bytes _born_host
    cdef Py_ssize_t _born_size, _head_size

    def __cinit__(self):
        self._answers = <uint8_t*>PyMem_Malloc(ANSWERS_MAX)
        # Fits the longest string of a header and a separator.
        self._scratch = <uint8_t*>PyMem_Malloc(LONG_HEADER_BYTES + 1)
        if self._answers == NULL or self._scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._answers)
        PyMem_Free(self._scratch)

    def __init__(self, send, puts, store_config, stats, tracer, acknowledge, parked_pulls, clock):
        """`send` is the processor, `puts` stores messages; see their attributes for the rest."""
        plain = send.plain
        self._send = send
        self._raw = send.send_message_v2
        self._raw_batch = send.send_batch_message
        self._raw_long = send.send_message
        self._finder = None
        self._is_raw = self._is_raw_batch = self._is_raw_long = False
        self._puts = puts
        self._config = exactly(StoreConfigType, store_config)
        self._state = exactly(StateType, puts.state)
        self._queues = puts.queues
        self._queues_of = puts.queues.table
        self._index = puts.index if puts.index is None else exactly(IndexType, puts.index)
        self._visibility = exactly(VisibilityType, puts.visibility)
        self._parked_by_topic = parked_pulls.parked
        self._counts = Counts(stats)
        self._latency = exactly(LatencyType, stats.put_latency)
        self._tracer = tracer
        self._selection = exactly(EventSelectionType, tracer.selection)
        self._trace = send.trace
        self._sampled_sends = []
        self._halves = []
        self._half_topic = plain.half_topic
        self._takes_halves = False
        self._notes = notes_of(tracer, puts.store_host)
        self._client_host = self._client = None
        self._acknowledge = exactly(AcknowledgementType, acknowledge)
        self._now_ms = None if type(clock) is SystemClock else clock.now_ms
        self._monotonic = clock.monotonic
        self._plain_queues = plain.queues
        self._unwritten = plain.unwritten_topics
        self._cluster = plain.cluster_pair
        self._is_guarded = puts.is_guarded
        self._ending = CRC_SEPARATOR + CRC_ROOM if self._is_guarded else b""
        self._guard_name = CRC_NAME[:-1]
        if self._is_guarded and (
            self._guard_name in self._cluster
            or len(CRC_ROOM) != len(CRC_NAME) + CRC_DIGITS + 1
        ):
            raise ValueError("records are guarded in another way than the turn does it")
        self._store_host = puts.store_host
        self._store_host_hex = puts.store_host.hex().upper().encode()
        self._kept_flags = plain.kept_sys_flags & ~HOST_V6_MASK
        self._refused_flags = ~plain.kept_sys_flags
        self._set_flags = puts.store_v6_flag
        self._special_names = tuple([each.encode() for each in sorted(plain.special_properties)])
        if len(self._special_names) > SPECIAL_MAX or len(self._store_host) > HOST_V6_SIZE:
            raise ValueError("more names or a longer host than the turn has room for")
        cdef bytes name
        self._special.count = 0
        for name in self._special_names:
            self._special.at[self._special.count] = <Bytes>PyBytes_AS_STRING(name)
            self._special.size[self._special.count] = PyBytes_GET_SIZE(name)
            self._special.count += 1
        self._parts = self._binary_parts = None
        self._open = self._topic_count = 0
        self._names = Names()
        self._is_loaded = False
        self._last.shape.size = 0
