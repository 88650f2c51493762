"""The frame loop: the twin of `http2/frame_loop.py`, and of `http2/requests.py`, `dispatch.py` and
`outbox.py` for a call with a single request message and an immediate answer.

It works on the same objects, through the slots of their classes. Any unusual request goes to the
twin, with its header fields already decoded.
"""

from broker_core.errors import Http2StreamError
from broker_core.http2 import dispatch as dispatch_of_python
from broker_core.http2 import frame_loop as loop_of_python
from broker_core.http2 import frames as frames_of_python
from broker_core.http2 import outbox as outbox_of_python
from broker_core.http2.call import Call as CallType
from broker_core.http2.connection import Connection as ConnectionType
from broker_core.http2.grpc_framing import CONTENT_TYPE as CONTENT_TYPE_OF_PYTHON
from broker_core.http2.grpc_framing import HEAD_BLOCK, OK_BLOCK
from broker_core.http2.outbox import Outbox as OutboxType
from broker_core.http2.requests import Requests as RequestsType
from broker_core.http2.routes import BIDI, UNARY, Route
from broker_core.http2.wire import Wire as WireType

cdef enum:
    MESSAGE_PREFIX = 5
    CALL_SLOTS_MAX = 40

cdef Py_ssize_t FRAME_BYTES_MAX = frames_of_python.FRAME_BYTES_DEFAULT
cdef int64_t STREAM_ID_MAX = frames_of_python.STREAM_ID_MAX
cdef int NOT_PLAIN_HEADERS = loop_of_python.NOT_PLAIN_HEADERS
cdef int64_t RECEIVE_WINDOW = loop_of_python.RECEIVE_WINDOW
cdef object RECEIVE_WINDOW_NUMBER = loop_of_python.RECEIVE_WINDOW
cdef Py_ssize_t WORK_PER_FRAME = loop_of_python.WORK_PER_FRAME
cdef Py_ssize_t WORK_PER_LOOK = loop_of_python.WORK_PER_LOOK
cdef Py_ssize_t FLUSH_BYTES = outbox_of_python.FLUSH_BYTES
cdef int64_t BIDI_KIND = BIDI
cdef str CONTENT_TYPE = CONTENT_TYPE_OF_PYTHON
cdef object refuse_call = dispatch_of_python.refuse
cdef object wait_for_answer = dispatch_of_python.wait_for

cdef Py_ssize_t CONNECTION_BLOCK = field_offset(ConnectionType, "block")
cdef Py_ssize_t CONNECTION_IS_STOPPED = field_offset(ConnectionType, "is_stopped")
cdef Py_ssize_t CONNECTION_LIMITS = field_offset(ConnectionType, "limits")
cdef Py_ssize_t CONNECTION_NOW = field_offset(ConnectionType, "now")
cdef Py_ssize_t CONNECTION_OUTBOX = field_offset(ConnectionType, "outbox")
cdef Py_ssize_t CONNECTION_RECEIVE_WINDOW = field_offset(ConnectionType, "receive_window")
cdef Py_ssize_t CONNECTION_REQUESTS = field_offset(ConnectionType, "requests")
cdef Py_ssize_t CONNECTION_WIRE = field_offset(ConnectionType, "wire")
cdef Py_ssize_t REQUESTS_DECODER = field_offset(RequestsType, "decoder")
cdef Py_ssize_t REQUESTS_LAST_STREAM_ID = field_offset(RequestsType, "last_stream_id")
cdef Py_ssize_t REQUESTS_REFUSED_AFTER = field_offset(RequestsType, "refused_after")
cdef Py_ssize_t REQUESTS_STREAMS = field_offset(RequestsType, "streams")
cdef Py_ssize_t WIRE_LIMITS = field_offset(WireType, "limits")
cdef Py_ssize_t WIRE_ROUTES = field_offset(WireType, "routes")
cdef Py_ssize_t WIRE_STREAMS = field_offset(WireType, "streams")
cdef Py_ssize_t OUTBOX_FRAME_BYTES_MAX = field_offset(OutboxType, "_frame_bytes_max")
cdef Py_ssize_t OUTBOX_INITIAL_WINDOW = field_offset(OutboxType, "_initial_window")
cdef Py_ssize_t OUTBOX_OUT = field_offset(OutboxType, "_out")
cdef Py_ssize_t OUTBOX_OUT_BYTES = field_offset(OutboxType, "_out_bytes")
cdef Py_ssize_t OUTBOX_SENT_BYTES = field_offset(OutboxType, "sent_bytes")
cdef Py_ssize_t OUTBOX_WINDOW = field_offset(OutboxType, "_window")
cdef Py_ssize_t CALL_BODY = field_offset(CallType, "body")
cdef Py_ssize_t CALL_CONNECTION = field_offset(CallType, "connection")
cdef Py_ssize_t CALL_DEADLINE = field_offset(CallType, "deadline")
cdef Py_ssize_t CALL_ENDING = field_offset(CallType, "ending")
cdef Py_ssize_t CALL_HAS_BEGUN = field_offset(CallType, "has_begun")
cdef Py_ssize_t CALL_HAS_TIMER = field_offset(CallType, "has_timer")
cdef Py_ssize_t CALL_HEADERS = field_offset(CallType, "headers")
cdef Py_ssize_t CALL_IS_OPEN = field_offset(CallType, "is_open")
cdef Py_ssize_t CALL_IS_PLAIN = field_offset(CallType, "is_plain")
cdef Py_ssize_t CALL_IS_REQUEST_OVER = field_offset(CallType, "is_request_over")
cdef Py_ssize_t CALL_PROGRESS_AT = field_offset(CallType, "progress_at")
cdef Py_ssize_t CALL_QUEUE = field_offset(CallType, "queue")
cdef Py_ssize_t CALL_RECEIVED_AT = field_offset(CallType, "received_at")
cdef Py_ssize_t CALL_ROUTE = field_offset(CallType, "route")
cdef Py_ssize_t CALL_SEND_WINDOW = field_offset(CallType, "send_window")
cdef Py_ssize_t CALL_STREAM_ID = field_offset(CallType, "stream_id")

# Template for new calls; the fields specific to a call are set afterwards.
cdef object MODEL = CallType(
    None, 0, Route("", UNARY, None), {}, 0.0, frames_of_python.WINDOW_DEFAULT
)
cdef Py_ssize_t[CALL_SLOTS_MAX] CALL_SLOTS
cdef int CALL_SLOTS_COUNT = 0


cdef int fill_call_slots() except -1:
    global CALL_SLOTS_COUNT
    names = CallType.__slots__
    if len(names) > CALL_SLOTS_MAX:
        raise ImportError("a call has more fields")
    for name in names:
        CALL_SLOTS[CALL_SLOTS_COUNT] = field_offset(CallType, name)
        CALL_SLOTS_COUNT += 1
    return 0


fill_call_slots()

cdef bytes ANSWER_HEAD = bytes(HEAD_BLOCK)
cdef bytes ANSWER_END = bytes(OK_BLOCK)


cdef inline uint32_t big_32(Octets at) noexcept:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef class Loop:
    """One turn of a connection, with the objects it needs already looked up."""

    cdef object connection, requests, outbox, wire
    cdef dict streams
    cdef HeaderDecoder decoder

    cdef int open(self, int64_t stream_id, int flags, Octets block, Py_ssize_t size) except -1:
        """Open a call from its header block."""
        cdef dict headers = self.decoder.decoded(block, size)
        cdef object requests = self.requests, wire = self.wire, route, text, call, now
        cdef double timeout = 0
        if (
            flags & HTTP2_END_STREAM
            or self.decoder.malformed
            or stream_id <= <int64_t>kept_at(requests, REQUESTS_LAST_STREAM_ID)
            or not stream_id & 1
            or stream_id > <int64_t>kept_at(requests, REQUESTS_REFUSED_AFTER)
            or len(self.streams) >= <int64_t>kept_at(self.connection, CONNECTION_LIMITS).streams_max
            or <int64_t>kept_at(wire, WIRE_STREAMS)
            >= <int64_t>kept_at(wire, WIRE_LIMITS).all_streams_max
            or ":scheme" not in headers
            or "content-length" in headers
            or "grpc-encoding" in headers
            or headers.get(":method") != "POST"
            or headers.get("content-type") != CONTENT_TYPE
        ):
            requests.decoded(stream_id, flags, headers)
            return 0
        route = (<dict>kept_at(wire, WIRE_ROUTES)).get(headers.get(":path"))
        text = headers.get("grpc-timeout")
        if text is not None:
            timeout = seconds_of(text)
        if route is None or <int64_t>(<tuple>route)[1] == BIDI_KIND or timeout < 0:
            requests.decoded(stream_id, flags, headers)
            return 0
        now = kept_at(self.connection, CONNECTION_NOW)
        call = new_call()
        number = stream_id
        keep_at(call, CALL_CONNECTION, self.connection)
        keep_at(call, CALL_STREAM_ID, number)
        keep_at(call, CALL_ROUTE, route)
        keep_at(call, CALL_HEADERS, headers)
        keep_at(call, CALL_RECEIVED_AT, now)
        keep_at(call, CALL_PROGRESS_AT, now)
        if text is not None:
            keep_at(call, CALL_DEADLINE, <double>now + timeout)
        keep_at(requests, REQUESTS_LAST_STREAM_ID, number)
        keep_at(wire, WIRE_STREAMS, <int64_t>kept_at(wire, WIRE_STREAMS) + 1)
        self.streams[number] = call
        return 0

    cdef bint serve(self, int64_t stream_id, Octets payload, Py_ssize_t length) except -1:
        """Serve a DATA frame that ends its stream if it holds the call's whole request; else return
        False.
        """
        call = self.streams.get(stream_id)
        if (
            call is None
            or length < MESSAGE_PREFIX
            or kept_at(call, CALL_IS_PLAIN) is not True
            or payload[0]
            or big_32(payload + 1) != <uint32_t>(length - MESSAGE_PREFIX)
        ):
            return False
        keep_at(call, CALL_IS_PLAIN, False)
        keep_at(call, CALL_IS_REQUEST_OVER, True)
        message = PyBytes_FromStringAndSize(
            <const char*>payload + MESSAGE_PREFIX, length - MESSAGE_PREFIX
        )
        try:
            answer = (<tuple>kept_at(call, CALL_ROUTE))[2](call, message)
        except MemoryError:
            # The work may be half done, so close the connection instead of reporting success or
            # failure.
            raise
        except Exception as error:
            refuse_call(call, error)
            return True
        if type(answer) is bytes:
            self.answer(call, stream_id, <bytes>answer)
        else:
            wait_for_answer(call, answer)
        return True

    cdef int answer(self, call, int64_t stream_id, bytes message) except -1:
        """Send the single message of an answer and end the call."""
        cdef object outbox = self.outbox, wire = self.wire
        cdef Py_ssize_t size = MESSAGE_PREFIX + PyBytes_GET_SIZE(message)
        cdef int64_t window = kept_at(outbox, OUTBOX_WINDOW)
        if (
            kept_at(call, CALL_IS_OPEN) is not True
            or kept_at(call, CALL_ENDING) is not None
            or kept_at(call, CALL_HAS_BEGUN) is not False
            or kept_at(call, CALL_HAS_TIMER) is not False
            or kept_at(call, CALL_BODY) is not None
            or kept_at(call, CALL_QUEUE) is not None
            or size > window
            or size > <int64_t>kept_at(outbox, OUTBOX_FRAME_BYTES_MAX)
            or size
            > <int64_t>kept_at(outbox, OUTBOX_INITIAL_WINDOW)
            + <int64_t>kept_at(call, CALL_SEND_WINDOW)
        ):
            call.answer(message)
            return 0
        data = answer_frames(<uint32_t>stream_id, message)
        keep_at(outbox, OUTBOX_WINDOW, window - size)
        keep_at(
            outbox, OUTBOX_SENT_BYTES, <int64_t>kept_at(outbox, OUTBOX_SENT_BYTES) + size
        )
        (<list>kept_at(outbox, OUTBOX_OUT)).append(data)
        cdef Py_ssize_t out_bytes = kept_at(outbox, OUTBOX_OUT_BYTES)
        out_bytes += PyBytes_GET_SIZE(data)
        keep_at(outbox, OUTBOX_OUT_BYTES, out_bytes)
        del self.streams[stream_id]
        keep_at(wire, WIRE_STREAMS, <int64_t>kept_at(wire, WIRE_STREAMS) - 1)
        keep_at(call, CALL_IS_OPEN, False)
        if (
            not self.streams
            and <int64_t>kept_at(self.requests, REQUESTS_REFUSED_AFTER) < STREAM_ID_MAX
        ):
            self.connection.end_drain()
        if out_bytes >= FLUSH_BYTES:
            outbox.put(b"")
        return 0


cdef object new_call():
    cdef object call = CallType.__new__(CallType)
    cdef int number
    for number in range(CALL_SLOTS_COUNT):
        keep_at(call, CALL_SLOTS[number], kept_at(MODEL, CALL_SLOTS[number]))
    return call


cdef bytes answer_frames(uint32_t stream_id, bytes message):
    """Return the HEADERS, DATA and HEADERS frames of an answer with one message."""
    cdef Py_ssize_t length = PyBytes_GET_SIZE(message)
    cdef Py_ssize_t head = PyBytes_GET_SIZE(ANSWER_HEAD), end = PyBytes_GET_SIZE(ANSWER_END)
    cdef bytes made = PyBytes_FromStringAndSize(
        NULL, 3 * HTTP2_HEAD_BYTES + head + MESSAGE_PREFIX + length + end
    )
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(made)
    at = put_frame(at, head, HTTP2_HEADERS, HTTP2_END_HEADERS, stream_id)
    memcpy(at, PyBytes_AS_STRING(ANSWER_HEAD), head)
    at = put_frame(at + head, MESSAGE_PREFIX + length, HTTP2_DATA, 0, stream_id)
    at[0] = 0
    put_32(at + 1, <uint32_t>length)
    memcpy(at + MESSAGE_PREFIX, PyBytes_AS_STRING(message), length)
    at += MESSAGE_PREFIX + length
    at = put_frame(at, end, HTTP2_HEADERS, HTTP2_END_HEADERS | HTTP2_END_STREAM, stream_id)
    memcpy(at, PyBytes_AS_STRING(ANSWER_END), end)
    return made


cdef inline void put_32(uint8_t* at, uint32_t value) noexcept:
    at[0] = value >> 24
    at[1] = value >> 16 & 0xFF
    at[2] = value >> 8 & 0xFF
    at[3] = value & 0xFF


cdef uint8_t* put_frame(
    uint8_t* at, Py_ssize_t length, int kind, int flags, uint32_t stream_id
) noexcept:
    put_32(at, <uint32_t>length << 8 | <uint32_t>kind)
    at[4] = flags
    put_32(at + 5, stream_id)
    return at + HTTP2_HEAD_BYTES


cdef double seconds_of(str text) noexcept:
    """Return a grpc-timeout in seconds; -1 if the twin must report an error."""
    cdef Octets at = latin_1_of(text)
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text), digit
    cdef double value = 0
    if at == NULL or size < 2 or size > 9:
        return -1
    for digit in range(size - 1):
        if at[digit] < c"0" or at[digit] > c"9":
            return -1
        value = value * 10 + (at[digit] - c"0")
    if at[size - 1] == c"H":
        return value * 3600.0
    if at[size - 1] == c"M":
        return value * 60.0
    if at[size - 1] == c"S":
        return value
    if at[size - 1] == c"m":
        return value * 1e-3
    if at[size - 1] == c"u":
        return value * 1e-6
    return value * 1e-9 if at[size - 1] == c"n" else -1


def take_frames(connection, bytes data not None):
    """See http2/frame_loop.py."""
    if type(connection) is not ConnectionType:
        raise TypeError("it is no connection")
    cdef Loop loop = Loop()
    cdef object requests = kept_at(connection, CONNECTION_REQUESTS)
    loop.connection = connection
    loop.requests = requests
    loop.outbox = kept_at(connection, CONNECTION_OUTBOX)
    loop.wire = kept_at(connection, CONNECTION_WIRE)
    loop.streams = <dict>kept_at(requests, REQUESTS_STREAMS)
    loop.decoder = <HeaderDecoder?>kept_at(requests, REQUESTS_DECODER)
    cdef Octets octets = <Octets>PyBytes_AS_STRING(data)
    cdef Py_ssize_t at = 0, end = PyBytes_GET_SIZE(data), start, length, work = 0
    cdef int64_t window = kept_at(connection, CONNECTION_RECEIVE_WINDOW), stream_id
    cdef int kind, flags
    cdef bint is_within_block
    while end - at >= HTTP2_HEAD_BYTES:
        length = big_32(octets + at) >> 8
        kind, flags = octets[at + 3], octets[at + 4]
        stream_id = big_32(octets + at + 5) & 0x7FFFFFFF
        if length > FRAME_BYTES_MAX:
            raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"a frame has {length} bytes")
        start = at + HTTP2_HEAD_BYTES
        if length > end - start:
            break
        at = start + length
        work += WORK_PER_FRAME
        is_within_block = kept_at(connection, CONNECTION_BLOCK) is not None
        if kind == HTTP2_DATA and not is_within_block:
            window -= length
            if flags != HTTP2_END_STREAM or not loop.serve(stream_id, octets + start, length):
                connection.other_frame(kind, flags, stream_id, data[start:at])
            if window < RECEIVE_WINDOW // 2:
                keep_at(connection, CONNECTION_RECEIVE_WINDOW, window)
                connection.widen()
                window = RECEIVE_WINDOW
        elif (
            kind == HTTP2_HEADERS
            and flags & HTTP2_END_HEADERS
            and not flags & NOT_PLAIN_HEADERS
            and not is_within_block
        ):
            work += length
            try:
                loop.open(stream_id, flags, octets + start, length)
            except Http2StreamError as error:
                requests.fault(stream_id, error)
        else:
            work += length
            connection.other_frame(kind, flags, stream_id, data[start:at])
        if kept_at(connection, CONNECTION_IS_STOPPED) is True:
            at = end
            break
        if work >= WORK_PER_LOOK:
            work = 0
            if at < end and connection.is_turn_over():
                connection.postpone()
                break
    keep_at(connection, CONNECTION_RECEIVE_WINDOW, window)
    return at
