# cython: language_level=3, cdivision=True, embedsignature=False
"""The event loop's turn for plain sends, batches, pulls and commits, compiled.

Load, run, store: a turn reads positions and buffers from the broker's objects, serves as many plain
sends as the received bytes hold, and writes the state back at the end. No Python code that could
read these objects runs in between. The only state kept afterwards is compared by identity at the
start of the next turn, so nothing needs invalidation.

A frame that isn't plain ends the turn and goes to the Python twin: `processors/send.py` with
`store/put.py`, or `processors/pull.py` with `store/reads.py`. Both produce the same bytes and
counts. All puts of a turn get the time of the first, and the slow-put watch runs once, for the
last.

Invariant, as in the twin: a record's head is written last, then its unit.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t size, const void* word, size_t word_size)
    void* memrchr(const void* data, int byte, size_t size)

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL
    struct iovec:
        void* iov_base
        size_t iov_len
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    Py_ssize_t send(int socket, const void* data, size_t size, int flags)
    Py_ssize_t sendmsg(int socket, const msghdr* message, int flags)

from broker_core.native.pack cimport (
    CRC_MASK,
    DECIMAL_MAX,
    HEX_SIZE,
    UNIT_SIZE,
    crc32_begin,
    crc32_of,
    put32,
    put64,
    put_decimal,
    put_hex,
    put_sized_decimal,
    put_unit,
    store_barrier,
)
from broker_core.native.scan cimport (
    BETWEEN,
    END_TRANSACTION,
    INT32_LEAST,
    INT32_MOST,
    LITE_PULL_MESSAGE,
    PROPERTIES_MAX,
    PULL_MESSAGE,
    SEND_MESSAGE,
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE_V2,
    SPECIAL_MAX,
    Bytes,
    End,
    Half,
    Item,
    Prepared,
    Properties,
    Pull,
    Send,
    Special,
    Text,
    big32,
    big64,
    characters,
    java_hash,
    java_hash_from,
    past_plain,
    read_common,
    read_end,
    read_first_code,
    read_half,
    read_int,
    read_item,
    read_item_properties,
    read_prepared,
    read_properties,
    read_pull,
    read_send,
    read_text,
    unescape,
    whole_int,
)

from time import monotonic as system_monotonic

from broker_core.clock import SystemClock
from broker_core.formats.record import CRC_DIGITS, CRC_NAME, CRC_ROOM, CRC_SEPARATOR
from broker_core.message.sys_flag import BORNHOST_V6_FLAG, HOST_V6_MASK, STOREHOST_V6_FLAG
from broker_core.store.batch_parts import BATCH_KEYS_MAX, BATCH_MESSAGES_MAX

include "header_cache.pxi"
include "slots.pxi"
include "names.pxi"
include "counts.pxi"

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec* now)

cdef object SYSTEM_MONOTONIC = system_monotonic
cdef int64_t MESSAGES_MAX = BATCH_MESSAGES_MAX
cdef int64_t KEYS_MAX = BATCH_KEYS_MAX


cdef inline double seconds_of(monotonic) except? -1.0:
    """Read a clock; the system clock is read without a Python call."""
    cdef timespec now
    if monotonic is not SYSTEM_MONOTONIC:
        return monotonic()
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>(<int64_t>now.tv_sec * 1000000000 + now.tv_nsec) / 1e9


cdef inline int64_t wall_ms() noexcept:
    """Return the same as `SystemClock.now_ms`."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef enum:
    PREFIX = 8
    START = 20
    # Offset of a frame's header type and size.
    SERIALIZER_AT = 4
    ROCKETMQ = 1
    HEADER_MASK = 0xFFFFFF
    LONG_HEADER = 65536
    PLACES_MAX = 64
    SLOTS = 128
    PARTS = 5
    NUMBERS_MAX = 96
    GUARD_DIGITS = 10
    HOST_MAX = 20
    HEAD_MAX = 72 + 2 * HOST_MAX
    ANSWERS_MAX = 262144
    # Eight kilobytes per queue: for 1 in 100, the picks of a consumer 50,000 messages behind.
    PICKS_MAX = 1024
    PICKS_HALF = 512
    PICKS_GAP_MAX = 16
    PICKS_QUEUES_MAX = 4096
    MAGIC = 0xDAA320A7

# Why a frame is left to Python: an index into FALLBACK_REASONS.
cdef enum:
    SERVED = 0
    CODE = 1
    HEADER = 2
    HANDLER = 3
    STORE = 4
    QUEUE = 5
    PROPERTY = 6
    ACKNOWLEDGEMENT = 7
    ROOM = 8
    BATCH = 9
    WATCHED = 10
    READER = 11
    OFFSET = 12
    MESSAGES = 13
    TRANSACTION = 14
    REASONS = 15

FALLBACK_REASONS = (
    "", "code", "header", "handler", "store", "queue", "property", "acknowledgement", "room",
    "batch", "watched", "reader", "offset", "messages", "transaction",
)

cdef const char* BEGINS = b'{"code":'
cdef Py_ssize_t BEGINS_SIZE = 8
cdef const char* UNIQ_KEY = b'UNIQ_KEY\x01'
cdef Py_ssize_t UNIQ_KEY_SIZE = 9

crc32_begin()


def crc32(const uint8_t[::1] data not None):
    """Return a CRC-32, for the test that compares it with zlib's."""
    return crc32_of(&data[0], data.shape[0]) if data.shape[0] else 0


def sample_records(records not None, int64_t sample):
    """The twin of `sample_records` in broker_core/trace/records.py."""
    cdef Py_buffer view
    cdef Bytes begin
    cdef Bytes at
    cdef Bytes end
    cdef int64_t size, left
    found = []
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        begin = <Bytes>view.buf
        left = view.len
        at = begin
        while left >= 4:
            size = <int32_t>big32(at)
            if size < 4 or size > left:
                raise ValueError("these are no records side by side")
            end = at + size
            if is_in_sample(at, end, sample):
                found.append(records[at - begin : end - begin])
            at = end
            left -= size
        return found
    finally:
        PyBuffer_Release(&view)


cdef bint is_in_sample(Bytes begin, Bytes end, int64_t sample) noexcept:
    """Tell whether a record's key puts it in the sample, or no key is found quickly."""
    cdef Bytes key = uniq_key_before(begin, end)
    cdef Bytes stop
    if key == NULL:
        return True
    stop = <Bytes>memchr(key, 2, end - key)
    if stop == NULL:
        stop = end
    return crc32_of(key, stop - key) % sample == 0


cdef Bytes uniq_key_before(Bytes begin, Bytes end) noexcept:
    """Return the address of a record's last unique key, NULL when it isn't found quickly."""
    cdef Bytes at = end - UNIQ_KEY_SIZE + 1
    while at > begin + 3:
        at = <Bytes>memrchr(begin + 3, UNIQ_KEY[0], at - begin - 3)
        if at == NULL:
            return NULL
        if memcmp(at, UNIQ_KEY, UNIQ_KEY_SIZE) == 0:
            # A separator or the properties' length must precede it, or it is part of another value.
            if at[-1] != 2 and ((at[-2] << 8) | at[-1]) != end - at:
                return NULL
            return at + UNIQ_KEY_SIZE
    return NULL


@cython.final
cdef class Picks:
    """The messages put by the turn to a queue that a sample may include.

    Valid for queue offsets from `begin` to `end`. The oldest picks are dropped. Messages that
    Python put in between count as possibly included.
    """

    cdef int64_t sample, begin, end
    # Queue offsets doubled, plus 1 if the message's key has to be checked.
    cdef int64_t places[PICKS_MAX]
    cdef int count
    # Index of the first place at or behind the latest offset searched for.
    cdef int last
    # The watches notified here about stored messages, None where Python does it; the queue's JSON;
    # the topic.
    cdef tuple stored
    cdef bytes where
    cdef str topic

    cdef inline void note(self, int64_t queue_offset, bint is_picked, bint is_sure) noexcept:
        """Note the message after the last one; the oldest picks are dropped."""
        if queue_offset != self.end:
            self._pass_over(queue_offset)
        self.end = queue_offset + 1
        if is_picked:
            self._add(queue_offset, is_sure)

    cdef void _pass_over(self, int64_t queue_offset) noexcept:
        """Pick all messages that Python put before an offset, or start over if there are too many.
        """
        if not self.end <= queue_offset <= self.end + PICKS_GAP_MAX:
            self.begin = self.end = queue_offset
            self.count = 0
        while self.end < queue_offset:
            self._add(self.end, False)
            self.end += 1

    cdef void _add(self, int64_t queue_offset, bint is_sure) noexcept:
        if self.count == PICKS_MAX:
            self.begin = self.places[PICKS_HALF - 1] // 2 + 1
            self.count = PICKS_MAX - PICKS_HALF
            memcpy(self.places, &self.places[PICKS_HALF], self.count * sizeof(int64_t))
        self.places[self.count] = 2 * queue_offset + (not is_sure)
        self.count += 1

    cdef int at_or_behind(self, int64_t queue_offset) noexcept:
        """Return the index of the first place at or behind a queue offset."""
        cdef int low = self.last, high = self.count, middle
        cdef int64_t sought = 2 * queue_offset
        if low > high or (low and self.places[low - 1] >= sought):
            low = 0
        elif low == high or self.places[low] >= sought:
            # The usual case: the reader continues where it was, with nothing in between.
            return low
        while low < high:
            middle = (low + high) // 2
            if self.places[middle] < sought:
                low = middle + 1
            else:
                high = middle
        self.last = low
        return low


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
    # Waiting pulls by queue; NULL if there are none.
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
    # Watchers want 1 in this many of its messages; 0 for none.
    int64_t sample
    # The queue's Picks; NULL unless a sample is wanted.
    PyObject* picks


cdef inline void begin_topic(Topic* topic, str text, dict queues) noexcept:
    memset(topic, 0, sizeof(Topic))
    Py_INCREF(text)
    Py_INCREF(queues)
    topic.text = <PyObject*>text
    topic.queues = <PyObject*>queues


cdef inline void forget_topic(Topic* topic) noexcept:
    Py_CLEAR(topic.text)
    Py_CLEAR(topic.queues)
    Py_CLEAR(topic.seed)
    Py_CLEAR(topic.field)
    Py_CLEAR(topic.parked_pulls)


cdef inline void take_field(Topic* topic, seed, bytes field) noexcept:
    Py_INCREF(seed)
    Py_INCREF(field)
    topic.seed = <PyObject*>seed
    topic.field = <PyObject*>field
    topic.field_at = <Bytes>PyBytes_AS_STRING(field)
    topic.field_size = PyBytes_GET_SIZE(field)


cdef bint load_place(Place* place, queue, Topic* topic) except -1:
    """Load a queue including its buffer; return whether it is plain and has room."""
    if not is_plain_queue(queue):
        return False
    place.position = number_slot(queue, QUEUE_POSITION)
    place.limit = number_slot(queue, QUEUE_LIMIT)
    if not 0 <= place.position < place.limit:
        return False
    if topic.seed == NULL:
        take_field(topic, slot(queue, QUEUE_KEY_SEED), slot(queue, QUEUE_TOPIC_FIELD))
    place.next_offset = number_slot(queue, QUEUE_NEXT_OFFSET)
    place.sample = 0
    place.picks = NULL
    place.is_put = False
    place.topic = topic
    PyObject_GetBuffer(slot(queue, QUEUE_BUFFER), &place.units, PyBUF_WRITABLE)
    Py_INCREF(queue)
    place.queue = <PyObject*>queue
    return True


@cython.final
cdef class SendTurn:
    """Serves plain sends of one broker. Event loop only."""

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
    # By hash of topic and queue: 1 plus the index of the place opened there first, 0 for none.
    cdef uint8_t _slots[SLOTS]
    cdef object _visibility
    cdef dict _parked_by_topic
    cdef Names _names
    cdef Special _special
    cdef LikeSend _last
    cdef int32_t _kept_flags, _refused_flags, _set_flags, _v6_flag
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
        self._scratch = <uint8_t*>PyMem_Malloc(LONG_HEADER + 1)
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
            or CRC_DIGITS != GUARD_DIGITS
            or len(CRC_ROOM) != len(CRC_NAME) + GUARD_DIGITS + 1
        ):
            raise ValueError("records are guarded in another way than the turn does it")
        self._store_host = puts.store_host
        self._store_host_hex = puts.store_host.hex().upper().encode()
        self._kept_flags = plain.kept_sys_flags & ~HOST_V6_MASK
        self._refused_flags = ~plain.kept_sys_flags
        self._set_flags = puts.store_v6_flag
        self._v6_flag = BORNHOST_V6_FLAG
        self._special_names = tuple([each.encode() for each in sorted(plain.special_properties)])
        if len(self._special_names) > SPECIAL_MAX or len(self._store_host) > HOST_MAX:
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

    cdef object serve(self, Bytes begin, Py_ssize_t size, int64_t frame_max, connection, dispatcher,
                      int to, Py_ssize_t room, int64_t requests_max):
        """Serve the next plain sends; return their answers, b"" when there are none.

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
                self._client = b',"client":' + encode_json(host_text(born_host))
        self._born_size = PyBytes_GET_SIZE(born_host)
        if self._born_size != 8 and self._born_size != HOST_MAX:
            return False
        self._born_host = <Bytes>PyBytes_AS_STRING(born_host)
        self._head_size = 72 + self._born_size + PyBytes_GET_SIZE(self._store_host)
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
        self._entries_at = PREFIX + len(binary[0]) + 4 + len(binary[1])
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
            header = big32(at + 4)
            is_binary = at[SERIALIZER_AT] == ROCKETMQ
            if is_binary:
                header &= HEADER_MASK
            # The first byte of `header` is the serializer; an unknown one makes the header too
            # long.
            if total < 4 or total > frame_max or header > LONG_HEADER or header > total - 4:
                break
            if total + 4 > end - at:
                break
            body = at + PREFIX + header
            if not read_like_send(&self._last, at + PREFIX, body, is_binary, &send):
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

    cdef int _load(self) except -1:
        self._load_log()
        self._body_max = number_slot(self._config, STORE_CONFIG_MESSAGE)
        self._now = -1
        # Empty unless the last turn was aborted.
        self._forget_places()
        memset(self._slots, 0, SLOTS)
        if self._index is not None:
            self._room = number_slot(self._index, INDEX_ROOM)
            self._waiting = slot(self._index, INDEX_WAITING)
        self._is_loaded = True
        return 0

    cdef int _load_log(self) except -1:
        state = self._state
        self._from = number_slot(state, STATE_FROM)
        self._position = number_slot(state, STATE_POSITION)
        self._limit = number_slot(state, STATE_LIMIT)
        PyObject_GetBuffer(slot(state, STATE_BUFFER), &self._log, PyBUF_WRITABLE)
        if self._limit > self._log.len:
            self._limit = self._log.len
        return 0

    cdef bint _make_room(self, Place* place, int64_t size) except -1:
        """Raise the log's limit in its file before a turn's first put; return whether the put fits."""
        if not self._puts.make_plain_room(<object>place.queue, size):
            return False
        PyBuffer_Release(&self._log)
        self._load_log()
        return self._position >= 0 and self._position + size <= self._limit

    cdef bint _make_index_room(self, Place* place, int64_t entries) except -1:
        """Have pending index entries written; return whether this many more fit now."""
        index = self._index
        index.room = self._room
        is_made = self._puts.make_index_room(<object>place.queue, entries)
        self._room = index.room
        self._waiting = index.waiting
        return is_made

    cdef Place* _place_of(self, Send* send) except? NULL:
        """Return the queue of a send, NULL unless it is plain and has room."""
        cdef Place* place
        cdef int i
        cdef int slot = slot_of(send)
        if self._slots[slot]:
            for i in range(self._slots[slot] - 1, self._open):
                place = &self._places[i]
                if place.queue_id == send.queue_id and is_named(place.topic, send.topic):
                    return place
        if self._open == PLACES_MAX:
            return NULL
        place = self._open_place(send)
        if place != NULL and self._slots[slot] == 0:
            self._slots[slot] = self._open
        return place

    cdef Place* _open_place(self, Send* send) except? NULL:
        """Load the queue of a send and return it, NULL unless it is plain and has room."""
        cdef Topic* topic = self._topic_of(send)
        cdef Place* place = &self._places[self._open]
        if topic == NULL or not 0 <= send.queue_id < topic.plain:
            return NULL
        queue = (<dict>topic.queues).get(send.queue_id)
        if not load_place(place, queue, topic):
            return NULL
        place.queue_id = send.queue_id
        self._open += 1
        if self._is_picking:
            self._take_picks(place, queue, <object>topic.text)
        return place

    cdef Topic* _topic_of(self, Send* send) except? NULL:
        """Return the topic of a send, checking this turn's first; NULL if it isn't plain."""
        cdef Topic* topic
        cdef int64_t plain
        cdef int i
        for i in range(self._topic_count - 1, -1, -1):
            if is_named(&self._topics[i], send.topic):
                return &self._topics[i]
        name = self._names.of(send.topic)
        plain = self._plain_queues[name]
        if plain <= 0 or (self._unwritten and name in self._unwritten):
            return NULL
        queues = self._queues_of.get(name)
        if queues is None or self._topic_count == PLACES_MAX:
            return NULL
        topic = self._begin_topic(name, queues)
        topic.plain = plain
        topic.name = send.topic.at
        topic.name_size = send.topic.size
        return topic

    cdef Topic* _begin_topic(self, str name, dict queues) noexcept:
        """Add a topic to the turn's topics; the caller ensures room."""
        cdef Topic* topic = &self._topics[self._topic_count]
        begin_topic(topic, name, queues)
        self._topic_count += 1
        return topic

    cdef void _forget_places(self) noexcept:
        """Release the queues and topics of the turn."""
        cdef int i
        for i in range(self._open):
            Py_CLEAR(self._places[i].queue)
            Py_CLEAR(self._places[i].picks)
        for i in range(self._topic_count):
            forget_topic(&self._topics[i])
        self._open = self._topic_count = 0

    cdef int _take_picks(self, Place* place, queue, topic) except -1:
        """Determine which of a queue's messages watchers want."""
        cdef dict picked = slot(self._selection, SELECTION_SAMPLE_CACHE)
        cdef Picks picks = picked.get(queue)
        if picks is None:
            place.sample = slot(self._selection, SELECTION_SENDS)[topic]
            if place.sample <= 1:
                return 0
            if len(picked) >= PICKS_QUEUES_MAX:
                picked.clear()
            picks = picked[queue] = Picks.__new__(Picks)
            picks.sample = place.sample
            told = self._tracer.event_sinks.of_puts[topic]
            picks.stored = None if told is None else told.stored
            picks.where = location_json(topic, place.queue_id)
            if PyBytes_GET_SIZE(picks.where) > AROUND_MAX // 2:
                picks.stored = None
            picks.topic = topic
        place.sample = picks.sample
        Py_INCREF(picks)
        place.picks = <PyObject*>picks
        return 0

    cdef bint _put(self, Send* send, Properties* properties, Bytes body,
                   int64_t body_size) except -1:
        """Put a message and write its answer if that is plain; return whether it is."""
        cdef Place* place = self._place_of(send)
        cdef int64_t properties_size, size, offset, code, keys_size
        cdef uint8_t* to
        cdef bint is_picked
        cdef double validated_s = 0, appended_s = 0
        if place == NULL:
            self._why = QUEUE
            return False
        if self._is_guarded and self._names_guard(self._scratch, properties.size):
            self._why = PROPERTY
            return False
        properties_size = properties.size + PyBytes_GET_SIZE(self._cluster)
        properties_size += PyBytes_GET_SIZE(self._ending)
        size = self._overhead(place) + body_size + properties_size
        if (
            self._position < 0
            or place.position >= place.limit
            or place.position + UNIT_SIZE > place.units.len
            or properties_size > PROPERTIES_MAX
            or body_size > self._body_max
        ):
            return False
        keys_size = characters(properties.keys) if properties.keys.size else 0
        is_indexed = self._index is not None and (properties.uniq_key.size or keys_size)
        if self._waits and self._from + self._position + size >= self._wait_limit:
            self._why = ACKNOWLEDGEMENT
            return False
        if self._position + size > self._limit and (
            self._requests or not self._make_room(place, size)
        ):
            return False
        # Last, when nothing else can leave the send to Python.
        if is_indexed and self._room <= keys_size and not self._make_index_room(
            place, keys_size + (1 if properties.uniq_key.size else 0)
        ):
            return False
        if self._now < 0:
            self._begin_time()
        offset = self._from + self._position
        entry = self._entry(place, properties, offset) if is_indexed else None
        is_picked = place.sample != 0 and is_wanted(properties, place.sample)
        if place.picks != NULL:
            (<Picks>place.picks).note(place.next_offset, is_picked, properties.uniq_key.size > 0)
        if is_picked:
            validated_s = seconds_of(self._monotonic)

        to = self._begin_record(place, body, body_size, properties_size)
        memcpy(to, self._scratch, properties.size)
        put_part(put_part(to + properties.size, self._cluster), self._ending)
        self._end_record(send, send.flag, place, size, offset, body, body_size)
        if is_picked:
            appended_s = seconds_of(self._monotonic)

        code = java_hash(properties.tags) if properties.tags.size else 0
        put_unit(<uint8_t*>place.units.buf + place.position, offset, <int32_t>size, code)
        if entry is not None:
            (<list>self._waiting).append(entry)
            self._room -= 1 + keys_size
        self._answer(send, place, offset)
        place.position += UNIT_SIZE
        place.next_offset += 1
        self._note_put(place, 1, size)
        if is_picked:
            self._pick(send, place, offset, size, body_size, properties.size, validated_s, appended_s)
        return True

    cdef int _pick(self, Send* send, Place* place, int64_t offset, int64_t size, int64_t body_size,
                   Py_ssize_t properties_size, double validated_s, double appended_s) except -1:
        """Note a message that watchers may want; `SendTrace.trace_plain_sends` reads the tuple."""
        cdef Py_ssize_t group_size
        cdef MessageFields known
        cdef Note* note
        cdef Text group = send.producer_group
        cdef double dispatched_s = seconds_of(self._monotonic)
        if (
            place.picks != NULL
            and (<Picks>place.picks).stored is not None
            and not group.is_escaped
            and group.size <= GROUP_MAX
            and is_bare(group)
            and read_known_fields(self._scratch, properties_size, &known)
            and not known.is_replayed
            and crc32_of(known.uniq_key.at, known.uniq_key.size) % place.sample == 0
        ):
            known.body_size = body_size
            note = self._notes.begin(
                OF_PUT,
                <Picks>place.picks,
                self._client,
                (<Picks>place.picks).stored,
                properties_size + group.size,
            )
            self._notes.know(note, &known)
            note.producer_group = group
            note.producer_group.at = self._notes._keep(group)
            note.queue_offset = place.next_offset - 1
            note.offset = offset
            note.size = size
            note.now_ms = self._now
            note.latency = max(0, self._now - send.born_timestamp) * 1000
            note.reconsumed = send.reconsume_times
            note.at_s = dispatched_s
            note.steps[0] = micros(validated_s - self._received_s)
            note.steps[1] = micros(appended_s - self._received_s)
            note.steps[2] = micros(dispatched_s - self._received_s)
            return 0
        properties = PyUnicode_DecodeUTF8(<const char*>self._scratch, properties_size, "replace")
        # The properties are stored, so the scratch buffer is free.
        group_size = max(0, unescape(send.producer_group, self._scratch))
        self._sampled_sends.append((
            <object>place.topic.text,
            place.queue_id,
            place.next_offset - 1,
            offset,
            size,
            body_size,
            properties,
            PyUnicode_DecodeUTF8(<const char*>self._scratch, group_size, NULL),
            send.born_timestamp,
            send.reconsume_times,
            validated_s,
            appended_s,
            dispatched_s,
        ))
        return 0

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

    cdef bint _put_batch(self, Send* send, Properties* common, Bytes body, Bytes end) except -1:
        """Put a batch and write its answer if it is plain; return whether it is.

        The whole batch is checked before anything is written.
        """
        cdef Place* place = self._place_of(send)
        cdef int64_t size = 0, entries = 0, count = 0
        cdef Py_ssize_t text_size, answer_size
        cdef Bytes at = body
        cdef Item item
        if place == NULL:
            self._why = QUEUE
            return False
        self._why = BATCH
        if end - body > self._body_max or send.sys_flag & self._refused_flags:
            return False
        if place.sample:
            # A watcher may want it.
            return False
        if self._is_guarded and self._names_guard(self._scratch, common.size):
            return False
        while at < end:
            at = read_item(at, end, &item)
            if at == NULL or not read_item_properties(&item):
                return False
            if self._is_guarded and self._names_guard(item.properties.at, item.properties.size):
                return False
            text_size = self._batch_text_size(&item, common)
            if text_size > PROPERTIES_MAX:
                return False
            size += self._overhead(place) + item.body.size + text_size
            entries += entries_of(
                common.keys if common.keys.size else item.keys,
                common.uniq_key.size or item.uniq_key.size,
            )
            count += 1
        if count > MESSAGES_MAX or (
            entries > KEYS_MAX and self._keys_of(common, body, end) > KEYS_MAX
        ):
            # Python reports this.
            return False
        self._why = ROOM
        answer_size = self._parts_size + NUMBERS_MAX
        answer_size += count * (1 + PyBytes_GET_SIZE(self._store_host_hex) + HEX_SIZE)
        if (
            not count
            or self._position < 0
            or place.position + (count - 1) * UNIT_SIZE >= place.limit
            or place.position + count * UNIT_SIZE > place.units.len
            or (self._waits and self._from + self._position + size >= self._wait_limit)
            or self._answered + answer_size > ANSWERS_MAX
        ):
            return False
        if self._position + size > self._limit and (
            self._requests or not self._make_room(place, size)
        ):
            return False
        if self._index is not None and self._room < entries and not self._make_index_room(
            place, entries
        ):
            return False
        if self._now < 0:
            self._begin_time()
        self._write_batch(send, common, place, body, end)
        if self._index is not None:
            self._room -= entries
        self._note_put(place, count, size)
        return True

    cdef int64_t _keys_of(self, Properties* common, Bytes at, Bytes end) noexcept:
        """Return the number of keys in a batch, counted as in `read_batch`."""
        cdef int64_t keys = 0
        cdef Item item
        while at < end:
            at = read_item(at, end, &item)
            if at == NULL or not read_item_properties(&item):
                return keys
            keys += words_of(common.keys if common.keys.size else item.keys)
        return keys

    cdef inline void _note_put(self, Place* place, int64_t messages, int64_t size) noexcept:
        """Note messages just put to a place."""
        cdef Topic* topic = place.topic
        topic.calls += 1
        topic.count += messages
        topic.size += size
        place.is_put = True
        place.end = self._from + self._position

    cdef Py_ssize_t _batch_text_size(self, Item* item, Properties* common) noexcept:
        """Return the size of a message's properties: its own, the common ones and the broker's."""
        cdef Py_ssize_t size = item.properties.size
        if size and item.properties.at[size - 1] != BETWEEN:
            size += 1
        if common.size:
            size += common.size + 1
        return size + PyBytes_GET_SIZE(self._cluster) + PyBytes_GET_SIZE(self._ending)

    cdef int _write_batch(self, Send* send, Properties* common, Place* place, Bytes at,
                          Bytes end) except -1:
        """Write the records, their units and the answer; there is room for all."""
        cdef Item item
        cdef int64_t size, text_size, offset, code, first = place.next_offset
        cdef uint8_t* to
        cdef uint8_t* answer = self._begin_answer(send)
        common_keys = text_of(common.keys) if common.keys.size else None
        common_uniq_key = text_of(common.uniq_key) if common.uniq_key.size else None
        while at < end:
            at = read_item(at, end, &item)
            read_item_properties(&item)
            offset = self._from + self._position
            entry = None
            if self._index is not None:
                keys = text_of(item.keys) if item.keys.size else None
                uniq_key = text_of(item.uniq_key) if item.uniq_key.size else None
                keys, uniq_key = common_keys or keys, common_uniq_key or uniq_key
                if keys is not None or uniq_key is not None:
                    entry = (<object>place.topic.seed, uniq_key, keys, offset, self._timestamp)

            text_size = self._batch_text_size(&item, common)
            size = self._overhead(place) + item.body.size + text_size
            to = self._begin_record(place, item.body.at, item.body.size, text_size)
            self._batch_text(to, &item, common)
            self._end_record(
                send, item.flag, place, size, offset, item.body.at, item.body.size
            )

            if common.tags.size:
                code = java_hash(common.tags)
            else:
                code = java_hash(item.tags) if item.tags.size else 0
            put_unit(<uint8_t*>place.units.buf + place.position, offset, <int32_t>size, code)
            if entry is not None:
                (<list>self._waiting).append(entry)
            if place.next_offset != first:
                answer[0] = 44
                answer = put_part(answer + 1, self._store_host_hex)
            answer = put_hex(answer, offset)
            place.position += UNIT_SIZE
            place.next_offset += 1
        self._end_answer(send, answer, first)
        return 0

    cdef void _batch_text(self, uint8_t* to, Item* item, Properties* common) noexcept:
        """Write the properties of a message."""
        memcpy(to, item.properties.at, item.properties.size)
        to += item.properties.size
        if item.properties.size and to[-1] != BETWEEN:
            to[0] = BETWEEN
            to += 1
        if common.size:
            memcpy(to, self._scratch, common.size)
            to += common.size
            to[0] = BETWEEN
            to += 1
        put_part(put_part(to, self._cluster), self._ending)

    cdef int64_t _overhead(self, Place* place) noexcept:
        """Return the size of a record without its body and properties."""
        return self._head_size + place.topic.field_size + 2

    cdef uint8_t* _begin_record(self, Place* place, Bytes body, int64_t body_size,
                                int64_t properties_size) noexcept:
        """Write a record after its head up to its properties; return where the properties go."""
        cdef uint8_t* to = <uint8_t*>self._log.buf + self._position + self._head_size
        memcpy(to, body, body_size)
        memcpy(to + body_size, place.topic.field_at, place.topic.field_size)
        to += body_size + place.topic.field_size
        to[0] = <uint8_t>(properties_size >> 8)
        to[1] = <uint8_t>properties_size
        return to + 2

    cdef void _end_record(self, Send* send, int32_t flag, Place* place, int64_t size,
                          int64_t offset, Bytes body, int64_t body_size) noexcept:
        """Write a record's head and move past the record.

        The head comes last: if the process is killed before, zeros remain in its place.
        """
        cdef uint8_t head[HEAD_MAX]
        self._head(head, send, flag, place, size, offset, body, body_size)
        store_barrier()
        memcpy(<uint8_t*>self._log.buf + self._position, head, self._head_size)
        store_barrier()
        if self._is_guarded:
            self._guard(<uint8_t*>self._log.buf + self._position, size)
        self._position += size

    cdef bint _names_guard(self, Bytes properties, Py_ssize_t size) noexcept:
        """Tell whether properties may already hold a checksum, which Python removes."""
        return memmem(
            properties, size, PyBytes_AS_STRING(self._guard_name),
            PyBytes_GET_SIZE(self._guard_name)
        ) != NULL

    cdef void _guard(self, uint8_t* record, int64_t size) noexcept:
        """Write a record's checksum in the reserved space, last digit first."""
        cdef int64_t guarded = size - PyBytes_GET_SIZE(self._ending) + 1
        cdef uint32_t left = crc32_of(record, guarded) & CRC_MASK
        cdef uint8_t* to = record + size - 1 - GUARD_DIGITS
        cdef int i
        for i in range(GUARD_DIGITS):
            to[i] = <uint8_t>(48 + left % 10)
            left //= 10

    cdef void _head(self, uint8_t* to, Send* send, int32_t flag, Place* place, int64_t size,
                    int64_t offset, Bytes body, int64_t body_size) noexcept:
        cdef int32_t sys_flag = send.sys_flag & self._kept_flags | self._set_flags
        cdef Py_ssize_t host_size = PyBytes_GET_SIZE(self._store_host)
        if self._born_size != 8:
            sys_flag |= self._v6_flag
        to = put32(to, <uint32_t>size)
        to = put32(to, <uint32_t>MAGIC)
        to = put32(to, crc32_of(body, body_size) & CRC_MASK if body_size else 0)
        to = put32(to, <uint32_t>place.queue_id)
        to = put32(to, <uint32_t>flag)
        to = put64(to, place.next_offset)
        to = put64(to, offset)
        to = put32(to, <uint32_t>sys_flag)
        to = put64(to, send.born_timestamp)
        memcpy(to, self._born_host, self._born_size)
        to = put64(to + self._born_size, self._now)
        memcpy(to, PyBytes_AS_STRING(self._store_host), host_size)
        to = put32(to + host_size, <uint32_t>send.reconsume_times)
        put32(put64(to, 0), <uint32_t>body_size)

    cdef tuple _entry(self, Place* place, Properties* properties, int64_t offset):
        """Return the entry for the index; see IndexService."""
        uniq_key = text_of(properties.uniq_key) if properties.uniq_key.size else None
        keys = text_of(properties.keys) if properties.keys.size else None
        return (<object>place.topic.seed, uniq_key, keys, offset, self._timestamp)

    cdef void _answer(self, Send* send, Place* place, int64_t offset) noexcept:
        """Append the answer to those of the turn; `_run` has ensured room."""
        self._end_answer(send, put_hex(self._begin_answer(send), offset), place.next_offset)

    cdef uint8_t* _begin_answer(self, Send* send) noexcept:
        """Write an answer up to the log offset of its first message."""
        cdef uint8_t* to = self._answers + self._answered + PREFIX
        if not send.is_binary:
            return put_part(to, <bytes>self._parts[0])
        to = put_part(to, <bytes>self._binary_parts[0])
        to = put_part(put32(to, <uint32_t>send.opaque), <bytes>self._binary_parts[1])
        # The sizes of the entries and of the message IDs aren't known yet.
        to = put_part(to + 4, <bytes>self._binary_parts[2])
        return put_part(to + 4, self._store_host_hex)

    cdef void _end_answer(self, Send* send, uint8_t* to, int64_t queue_offset) noexcept:
        """Write an answer from after its message IDs on, and fill in the sizes.

        The answer of a one-way send is discarded.
        """
        cdef uint8_t* begin = self._answers + self._answered
        cdef uint32_t header
        if send.is_binary:
            to = self._end_binary(begin, send, to, queue_offset)
            header = <uint32_t>ROCKETMQ << 24 | <uint32_t>(to - begin - PREFIX)
        else:
            to = put_part(to, <bytes>self._parts[1])
            to = put_part(put_decimal(to, send.queue_id), <bytes>self._parts[2])
            to = put_part(put_decimal(to, queue_offset), <bytes>self._parts[3])
            to = put_part(put_decimal(to, send.opaque), <bytes>self._parts[4])
            header = <uint32_t>(to - begin - PREFIX)
        put32(put32(begin, <uint32_t>(to - begin - 4)), header)
        if not send.is_oneway:
            self._answered = to - self._answers

    cdef uint8_t* _end_binary(self, uint8_t* begin, Send* send, uint8_t* to,
                              int64_t queue_offset) noexcept:
        cdef uint8_t* entries = begin + self._entries_at
        cdef uint8_t* msg_id = begin + self._msg_id_at
        put32(msg_id, <uint32_t>(to - msg_id - 4))
        to = put_sized_decimal(put_part(to, <bytes>self._binary_parts[3]), send.queue_id)
        to = put_sized_decimal(put_part(to, <bytes>self._binary_parts[4]), queue_offset)
        put32(entries, <uint32_t>(to - entries - 4))
        return to

    cdef int _begin_time(self) except -1:
        """Set the store time of this turn's puts."""
        now = wall_ms() if self._now_ms is None else self._now_ms()
        if now != slot(self._state, STATE_STORE_TIMESTAMP):
            now = self._puts.begin_millisecond(now)
        self._timestamp = now
        self._now = now
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


cdef inline int slot_of(Send* send) noexcept:
    """Return the hash slot of a send's place."""
    cdef int last = send.topic.at[send.topic.size - 1] if send.topic.size > 0 else 0
    return (send.queue_id * 31 + last * 7 + <int>send.topic.size) & (SLOTS - 1)


cdef inline bint is_named(Topic* topic, Text name) noexcept:
    """Tell whether a send names this topic."""
    return topic.name_size == name.size and memcmp(topic.name, name.at, name.size) == 0


cdef int64_t words_of(Text text) noexcept:
    """Return the number of blank-separated keys, including empty ones."""
    cdef int64_t words = 1
    cdef Bytes at = text.at
    cdef Bytes end = text.at + text.size
    if not text.size:
        return 0
    while True:
        at = <Bytes>memchr(at, 32, end - at)
        if at == NULL:
            return words
        words += 1
        at += 1


cdef inline int64_t entries_of(Text keys, bint has_uniq_key) noexcept:
    """Return the maximum number of index entries for a message."""
    if keys.size:
        return 1 + characters(keys)
    return 1 if has_uniq_key else 0


cdef inline bint is_wanted(Properties* properties, int64_t sample) noexcept:
    """Tell whether a message may be in a 1-in-`sample` sample; without a key its ID decides later.
    """
    if sample == 1 or properties.uniq_key.size == 0:
        return True
    return crc32_of(properties.uniq_key.at, properties.uniq_key.size) % sample == 0


cdef inline uint8_t* put_part(uint8_t* to, bytes part) noexcept:
    memcpy(to, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
    return to + PyBytes_GET_SIZE(part)


cdef inline str text_of(Text text):
    return PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)


cdef class Turn


include "receive.pxi"
include "half_messages.pxi"
include "gather.pxi"
include "replay.pxi"
include "index.pxi"
include "transaction_ends.pxi"


cdef class Turn:
    """Serves the plain requests of one broker. Event loop only."""

    cdef SendTurn _sends
    cdef PullTurn _pulls
    cdef EndTurn _ends
    cdef int64_t _fallbacks[REASONS]
    # The Receiver that called `serve`, None for Python; the socket for immediate answers, negative
    # for none.
    cdef Receiver _receiver
    cdef int _socket
    cdef readonly Py_ssize_t served_bytes

    def __init__(self, SendTurn sends, PullTurn pulls, EndTurn ends):
        """Each may be None; the Python twin then serves its requests."""
        cdef int i
        self._sends = sends
        self._pulls = pulls
        self._ends = ends
        self._socket = -1
        for i in range(REASONS):
            self._fallbacks[i] = 0

    def protocol_of(self, connection):
        """See PlainRequests."""
        return PlainProtocol(self, connection)

    @property
    def fallbacks(self):
        """How many requests were left to Python, by reason; see PlainRequests."""
        return {FALLBACK_REASONS[i]: self._fallbacks[i] for i in range(1, REASONS)}

    cpdef serve(self, connection, received, Py_ssize_t size, int64_t frame_max, dispatcher,
              Py_ssize_t room, int64_t requests_max):
        """See PlainRequests."""
        cdef Py_buffer view
        PyObject_GetBuffer(received, &view, PyBUF_SIMPLE)
        try:
            if size > view.len:
                raise ValueError(f"{size} bytes are more than the {view.len} of the buffer")
            return self._serve(
                connection, <Bytes>view.buf, size, frame_max, dispatcher, room, requests_max
            )
        finally:
            PyBuffer_Release(&view)

    cdef object _serve(self, connection, Bytes begin, Py_ssize_t size, int64_t frame_max,
                       dispatcher, Py_ssize_t room, int64_t requests_max):
        cdef int code
        cdef int why = CODE
        self.served_bytes = 0
        if size < START:
            return b""
        if begin[SERIALIZER_AT] == ROCKETMQ:
            code = begin[PREFIX] << 8 | begin[PREFIX + 1]
        else:
            code = -1
            if memcmp(begin + PREFIX, BEGINS, BEGINS_SIZE) == 0:
                code = code_at(begin + PREFIX + BEGINS_SIZE)
            if code < 0 and not read_first_code(begin + PREFIX, begin + size, &code):
                return self._leave(begin, size, HEADER)
        answers = b""
        if code == SEND_MESSAGE_V2 or code == SEND_BATCH_MESSAGE or code == SEND_MESSAGE:
            why = STORE
            if self._sends is not None:
                answers = self._sends.serve(
                    begin, size, frame_max, connection, dispatcher, self._socket, room,
                    requests_max
                )
                self.served_bytes = self._sends._served_bytes
                why = self._sends._why
        elif code == PULL_MESSAGE or code == LITE_PULL_MESSAGE:
            why = STORE
            if self._pulls is not None:
                answers = self._pulls.serve(
                    begin, size, frame_max, connection, dispatcher, code, self._socket,
                    self._receiver
                )
                self.served_bytes = self._pulls._served_bytes
                why = self._pulls._why
        elif code == END_TRANSACTION:
            why = STORE
            if self._ends is not None:
                answers = self._ends.serve(begin, size, frame_max, dispatcher)
                self.served_bytes = self._ends._served_bytes
                why = self._ends._why
        return answers if self.served_bytes else self._leave(begin, size, why)

    cdef bytes _leave(self, Bytes begin, Py_ssize_t size, int why):
        """Count a request left to Python once it has arrived completely."""
        if why != SERVED and 4 + <int64_t>big32(begin) <= size:
            self._fallbacks[why] += 1
        return b""


cdef inline int code_at(Bytes at) noexcept:
    """Return the two- or three-digit number that ends at a comma, -1 for anything else."""
    cdef int i, code = 0
    for i in range(4):
        if at[i] == 44 and i >= 2:
            return code
        if not 48 <= at[i] <= 57:
            return -1
        code = code * 10 + at[i] - 48
    return -1
