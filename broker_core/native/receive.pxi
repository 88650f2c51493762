"""Receiving: callbacks from a connection's transport, and answers sent straight to the socket.

The twin is `Connection.buffer_updated` in `remoting/connection.py` with `Latency.end_turn`. Most
turns of the loop are a single request that finds all it needs, so every call by name counts. The
connection handles whatever isn't plain or is rare.

An answer bypasses the transport when the transport has nothing buffered. A pull's answer is sent
from where its records lie, so that they are copied only once. The transport gets the bytes that the
socket doesn't accept at once, and sees any error.
"""

from asyncio import BufferedProtocol

from broker_core.remoting.connection import FLUSH_BYTES as FLUSH_BYTES_OF_PYTHON
from broker_core.remoting.connection import Connection as ConnectionType
from broker_core.remoting.wire import RECEIVE_BYTES as RECEIVE_BYTES_OF_PYTHON
from broker_core.remoting.wire import Wire as WireType

cdef Py_ssize_t FLUSH_BYTES = FLUSH_BYTES_OF_PYTHON
cdef Py_ssize_t RECEIVE_BYTES = RECEIVE_BYTES_OF_PYTHON
cdef Py_ssize_t CONNECTION_DECODER = slot_of_class(ConnectionType, "_decoder")
cdef Py_ssize_t CONNECTION_IN_FLIGHT = slot_of_class(ConnectionType, "_in_flight")
cdef Py_ssize_t CONNECTION_IS_CROWDED = slot_of_class(ConnectionType, "_is_crowded")
cdef Py_ssize_t CONNECTION_IS_HANDLING = slot_of_class(ConnectionType, "_is_handling")
cdef Py_ssize_t CONNECTION_IS_STOPPED = slot_of_class(ConnectionType, "_is_stopped")
cdef Py_ssize_t CONNECTION_IS_WRITABLE = slot_of_class(ConnectionType, "_is_writable")
cdef Py_ssize_t CONNECTION_KEPT_BYTES = slot_of_class(ConnectionType, "_kept_bytes")
cdef Py_ssize_t CONNECTION_LIMITS = slot_of_class(ConnectionType, "_limits")
cdef Py_ssize_t CONNECTION_OUT = slot_of_class(ConnectionType, "_out")
cdef Py_ssize_t CONNECTION_REMOTE_ADDRESS = slot_of_class(ConnectionType, "remote_address")
cdef Py_ssize_t CONNECTION_TURN_BEGAN = slot_of_class(ConnectionType, "turn_began")
cdef Py_ssize_t CONNECTION_WAS_ACTIVE = slot_of_class(ConnectionType, "_was_active")
cdef Py_ssize_t CONNECTION_WIRE = slot_of_class(ConnectionType, "_wire")
cdef Py_ssize_t WIRE_DISPATCHER = slot_of_class(WireType, "dispatcher")
cdef Py_ssize_t WIRE_ON_TURN = slot_of_class(WireType, "on_turn")
cdef Py_ssize_t WIRE_PLAIN_REQUESTS = slot_of_class(WireType, "plain_requests")
cdef Py_ssize_t WIRE_RECEIVE_BUFFER = slot_of_class(WireType, "receive_buffer")


cdef inline object remote_address_of(connection):
    """Return the address of the remote end."""
    if type(connection) is ConnectionType:
        return slot(connection, CONNECTION_REMOTE_ADDRESS)
    return connection.remote_address


cdef class Receiver:
    """Receives for one connection. Event loop only."""

    cdef Turn _turn
    cdef object _connection, _wire, _monotonic, _limits, _transport
    cdef int64_t _frame_max, _requests_max
    # The latest on_turn callback, and the Latency behind it; None if Python must count.
    cdef object _on_turn, _latency
    cdef int _socket

    def __init__(self, Turn turn not None, connection):
        self._turn = turn
        self._connection = exactly(ConnectionType, connection)
        self._wire = exactly(WireType, slot(connection, CONNECTION_WIRE))
        self._monotonic = self._wire.clock.monotonic
        self._frame_max = slot(connection, CONNECTION_DECODER).frame_max
        self._limits = self._on_turn = self._latency = self._transport = None
        self._socket = -1

    def get_buffer(self, sizehint):
        return slot(self._wire, WIRE_RECEIVE_BUFFER)

    def connection_made(self, transport):
        self._socket = socket_of(transport)
        self._transport = transport
        self._connection.connection_made(transport)

    def connection_lost(self, exc):
        self._socket = -1
        self._transport = None
        self._connection.connection_lost(exc)

    def pause_writing(self):
        self._connection.pause_writing()

    def resume_writing(self):
        self._connection.resume_writing()

    def buffer_updated(self, Py_ssize_t nbytes):
        """See Connection."""
        connection = self._connection
        cdef Py_ssize_t size = 0
        cdef bint is_tried = False
        if slot(connection, CONNECTION_IS_STOPPED) is True:
            return
        if slot(self._wire, WIRE_PLAIN_REQUESTS) is not self._turn:
            connection.buffer_updated(nbytes)
            return
        set_slot(connection, CONNECTION_WAS_ACTIVE, True)
        try:
            if (
                slot(connection, CONNECTION_IS_WRITABLE) is True
                and not number_slot(connection, CONNECTION_KEPT_BYTES)
                and not PyList_GET_SIZE(slot(connection, CONNECTION_OUT))
                and slot(connection, CONNECTION_IS_CROWDED) is False
            ):
                size = self._serve(connection, nbytes)
                if size == nbytes:
                    if nbytes == RECEIVE_BYTES:
                        connection.end_full_buffer()
                    return
                is_tried = size == 0
            connection.serve_rest(size, nbytes, is_tried=is_tried)
        except MemoryError:
            connection.give_up()

    cdef Py_ssize_t _serve(self, connection, Py_ssize_t nbytes) except -1:
        """Serve the plain requests at the start of the received data; return their size in bytes.
        """
        cdef Turn turn = self._turn
        cdef Py_ssize_t size
        wire = self._wire
        limits = slot(connection, CONNECTION_LIMITS)
        if limits is not self._limits:
            self._requests_max = limits.requests_in_flight_max
            self._limits = limits
        on_turn = slot(wire, WIRE_ON_TURN)
        cdef double started_s = 0.0 if on_turn is None else seconds_of(self._monotonic)
        set_real(connection, CONNECTION_TURN_BEGAN, started_s)
        set_slot(connection, CONNECTION_IS_HANDLING, True)
        turn._receiver = self
        turn._socket = self._free_socket()
        try:
            answers = turn.serve(
                connection, slot(wire, WIRE_RECEIVE_BUFFER), nbytes, self._frame_max,
                slot(wire, WIRE_DISPATCHER), FLUSH_BYTES,
                self._requests_max - number_slot(connection, CONNECTION_IN_FLIGHT),
            )
        finally:
            turn._socket = -1
            turn._receiver = None
        size = turn.served_bytes
        set_slot(connection, CONNECTION_IS_HANDLING, False)
        if on_turn is not None:
            self._end_turn(on_turn, seconds_of(self._monotonic) - started_s)
        if (
            answers is None
            and not PyList_GET_SIZE(slot(connection, CONNECTION_OUT))
            or type(answers) is bytes
            and not PyBytes_GET_SIZE(answers)
        ):
            return size
        connection.send_answers(answers)
        return size

    cdef int _free_socket(self) except? -2:
        """Return the socket, -1 if the transport has buffered data."""
        if self._socket >= 0 and <int64_t>self._transport.get_write_buffer_size() == 0:
            return self._socket
        return -1

    cdef int _end_turn(self, on_turn, double seconds) except -1:
        """Count the turn's requests with its duration, as `Latency.end_turn` does."""
        if on_turn is not self._on_turn:
            latency = getattr(on_turn, "__self__", None)
            is_latency = type(latency) is LatencyType and on_turn == latency.end_turn
            self._latency = latency if is_latency else None
            self._on_turn = on_turn
        latency = self._latency
        if latency is None:
            on_turn(seconds)
            return 0
        cdef int64_t served = number_slot(latency, LATENCY_SERVED)
        if served:
            set_number(latency, LATENCY_SERVED, 0)
            time_some(latency, seconds, served)
        return 0


class PlainProtocol(Receiver, BufferedProtocol):
    """The protocol object passed to a transport; see Connection.protocol."""

    __slots__ = ()


cdef int socket_of(transport) except? -2:
    """Return the descriptor of a transport's socket, -1 if the transport transforms bytes (TLS)."""
    if transport.get_extra_info("sslcontext") is not None:
        return -1
    its = transport.get_extra_info("socket")
    return -1 if its is None else its.fileno()


cdef inline bint may_send(connection) except -1:
    """Tell whether nothing has to be sent before the answers of this turn."""
    return (
        slot(connection, CONNECTION_IS_STOPPED) is False
        and PyList_GET_SIZE(slot(connection, CONNECTION_OUT)) == 0
    )


cdef Py_ssize_t send_at_once(int to, const void* at, Py_ssize_t size) noexcept:
    """Return how many bytes a socket accepts without waiting; 0 on an error too."""
    cdef Py_ssize_t sent = send(to, at, size, MSG_DONTWAIT | MSG_NOSIGNAL)
    return sent if sent > 0 else 0
