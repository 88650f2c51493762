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

from broker_core.native.constants cimport (
    BEGIN_CODE,
    BEGIN_CODE_SIZE,
    BEGIN_UNIQ_KEY,
    BEGIN_UNIQ_KEY_SIZE,
    BODY_CRC_POSITION,
    BODY_SIZE_POSITION,
    BORNHOST_V6_FLAG,
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    COMMIT_LOG_OFFSET_POSITION,
    CRC_DIGITS,
    CRC_MASK,
    END_TRANSACTION,
    FILLER_SIZE,
    FIXED_V4_SIZE,
    FIXED_WITHOUT_HOSTS_SIZE,
    FLAG_COMMIT_OFFSET,
    FLAG_POSITION,
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    FRAME_BYTES_MAX,
    FRAME_HEADER_POSITION,
    FRAME_PREFIX_SIZE,
    GROUP_LENGTH_MAX,
    HEAD_SIZE,
    HOST_V4_SIZE,
    HOST_V6_MASK,
    HOST_V6_SIZE,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SECONDS_MAX,
    INDEX_SLOT_SIZE,
    INT32_MAX,
    KEY_SEPARATOR,
    LITE_PULL_MESSAGE,
    LONG_HEADER_BYTES,
    MAGIC_POSITION,
    MAX_MSG_NUMS_MAX,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    NAME_VALUE_SEPARATOR,
    OVERHEAD_V4,
    PAIR_REAL_QUEUE_ID,
    PAIR_REAL_QUEUE_ID_SIZE,
    PAIR_REAL_TOPIC,
    PAIR_REAL_TOPIC_SIZE,
    PAIR_WAIT_STORE_MSG_OK,
    PAIR_WAIT_STORE_MSG_OK_SIZE,
    PROPERTIES_BYTES_MAX,
    PROPERTY_KEYS,
    PROPERTY_REPLAYED,
    PROPERTY_SEPARATOR,
    PROPERTY_TAGS,
    PROPERTY_TRACEPARENT,
    PROPERTY_UNIQ_KEY,
    PULL_MESSAGE,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECONSUME_TIMES_POSITION,
    RETRY_TOPIC_LENGTH_MAX,
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SERIALIZE_ROCKETMQ,
    STOREHOST_V6_FLAG,
    STORE_HOST_POSITION,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG_POSITION,
    TRACE_ACKNOWLEDGED,
    TRACE_APPENDED,
    TRACE_AT_US,
    TRACE_BODY_SIZE,
    TRACE_COMMIT_LOG_OFFSET,
    TRACE_DELIVERED,
    TRACE_DISPATCHED,
    TRACE_FLUSHED,
    TRACE_FROM_MEMORY,
    TRACE_KEYS,
    TRACE_LATENCY_US,
    TRACE_MESSAGE_ID,
    TRACE_NUMBER,
    TRACE_NUMBER_SIZE,
    TRACE_OFFSET_MSG_ID,
    TRACE_PRODUCER_GROUP,
    TRACE_RECONSUME_TIMES,
    TRACE_REPLICATED,
    TRACE_STAGE,
    TRACE_STORED,
    TRACE_STORE_SIZE,
    TRACE_TAGS,
    TRACE_TIME_MS,
    TRACE_TOGETHER,
    TRACE_TOTAL_US,
    TRACE_TRACEPARENT,
    TRACE_UNIQ_KEY,
    TRACE_VALIDATED,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    UNIT_SIZE,
    UNIT_SIZE_POSITION,
    UNIT_TAGS_CODE_POSITION,
    is_word,
    put_known,
)
from broker_core.native.pack cimport (
    DECIMAL_MAX,
    HEX_SIZE,
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
    INT32_LEAST,
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
from broker_core.formats.record import CRC_NAME, CRC_ROOM, CRC_SEPARATOR
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
    START = 20
    HEADER_MASK = 0xFFFFFF
    PLACES_MAX = 64
    SLOTS = 128
    PARTS = 5
    NUMBERS_MAX = 96
    HEAD_MAX = FIXED_WITHOUT_HOSTS_SIZE + 2 * HOST_V6_SIZE
    ANSWERS_MAX = 262144
    # Eight kilobytes per queue: for 1 in 100, the picks of a consumer 50,000 messages behind.
    PICKS_MAX = 1024
    PICKS_HALF = 512
    PICKS_GAP_MAX = 16
    PICKS_QUEUES_MAX = 4096

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


cdef inline str text_of(Text text):
    return PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)


include "samples.pxi"
include "send_state.pxi"
include "send_place.pxi"
include "send_answer.pxi"
include "send_record.pxi"
include "send_append.pxi"
include "receive.pxi"
include "half_messages.pxi"
include "send_turn.pxi"
include "pull_state.pxi"
include "pull_filter.pxi"
include "pull_gather.pxi"
include "pull_answer.pxi"
include "pull_report.pxi"
include "pull_turn.pxi"
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
        if begin[FRAME_HEADER_POSITION] == SERIALIZE_ROCKETMQ:
            code = begin[FRAME_PREFIX_SIZE] << 8 | begin[FRAME_PREFIX_SIZE + 1]
        else:
            code = -1
            if memcmp(begin + FRAME_PREFIX_SIZE, BEGIN_CODE, BEGIN_CODE_SIZE) == 0:
                code = code_at(begin + FRAME_PREFIX_SIZE + BEGIN_CODE_SIZE)
            if code < 0 and not read_first_code(begin + FRAME_PREFIX_SIZE, begin + size, &code):
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
