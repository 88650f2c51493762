"""EncodedEvent: put, delivered and acknowledged sample messages as JSON for watchers.

No event object is built or matched against filters: the sinks in `trace/event_sinks.py` want
everything in the sample. A message's fields are one piece of JSON, built when it is put or
delivered and shared by its later events. An event is that piece, a few numbers and the client, and
is written as JSON when it is pushed. The twin, `processors/consumer_trace.py`, handles whatever
must be decoded or escaped, and the deliveries that it noted itself.
"""

from broker_core.message.properties import decode as decode_properties
from broker_core.message.ids import host_text
from broker_core.trace.event import decode_event
from broker_core.trace.event import encode_members
from broker_core.trace.recorder import ACKNOWLEDGED as ACKNOWLEDGED_STAGE
from broker_core.trace.recorder import DELIVERED as DELIVERED_STAGE
from broker_core.trace.watched_messages import FOLLOWED_MAX as FOLLOWED_LIMIT
from broker_core.trace.watched_messages import FLUSHED as FLUSHED_STAGE
from broker_core.trace.watched_messages import REPLICATED as REPLICATED_STAGE
from broker_core.trace.watched_messages import STORED_MAX as STORED_LIMIT
from broker_core.trace.watch import FRESH_MAX as FRESH_LIMIT
from broker_core.trace.deliveries import DELIVERIES_MAX as DELIVERIES_LIMIT
from broker_core.trace.deliveries import Deliveries as DeliveriesType
from broker_core.trace.tracer import PUSH_SECONDS

cdef enum:
    # Limits for a message's texts, for location plus client, and for an event.
    TEXTS_MAX = 2048
    AROUND_MAX = 4096
    EVENT_MAX = 8192
    # Limits for what all events of a message share, and for the rest of an event.
    WHAT_MAX = 3072
    REST_MAX = 512
    NOTES_MAX = 64
    NOTED_BYTES = 65536
    NAMES_MAX = 8

cdef enum Kind:
    OF_PUT
    OF_FLUSH
    OF_SLAVE
    OF_DELIVERY
    OF_ACKNOWLEDGEMENT

# The longest time that a wall clock change can go unnoticed; watchers get pushes at this interval
# anyway.
cdef double WALL_SECONDS = PUSH_SECONDS
cdef Py_ssize_t FRESH_MAX = FRESH_LIMIT
cdef Py_ssize_t DELIVERIES_MAX = DELIVERIES_LIMIT
cdef Py_ssize_t FOLLOWED_MAX = FOLLOWED_LIMIT
cdef Py_ssize_t STORED_MAX = STORED_LIMIT
cdef str STORED = "stored"
cdef str FLUSHED = FLUSHED_STAGE
cdef str REPLICATED = REPLICATED_STAGE
cdef str DELIVERED = DELIVERED_STAGE
cdef str ACKNOWLEDGED = ACKNOWLEDGED_STAGE
cdef Py_ssize_t DELIVERIES_QUEUES = slot_of_class(DeliveriesType, "queues")


cdef extern from "<math.h>" nogil:
    long long llrint(double)


cdef extern from *:
    """
    /* Truncate a bytes object; steals the reference. */
    static PyObject *cut_bytes(PyObject *made, Py_ssize_t size) {
        _PyBytes_Resize(&made, size);
        return made;
    }
    static PyObject *bytes_of_size(Py_ssize_t size) {
        return PyBytes_FromStringAndSize(NULL, size);
    }
    """
    object cut_bytes(PyObject* made, Py_ssize_t size)
    PyObject* bytes_of_size(Py_ssize_t size) except NULL


@cython.no_gc
cdef class EncodedEvent:
    """The twin of `Emitted` in broker_core/trace/event.py.

    Created only in this file, so that its parts fit in EVENT_MAX.
    """

    cdef readonly str stage, topic, group
    # Parts of the JSON: topic and queue; the message, followed after `_what_size` bytes by its
    # properties; and the client.
    cdef bytes _where, _what, _who
    cdef Py_ssize_t _what_size
    cdef Kind _kind
    cdef readonly double at_s
    # The first in milliseconds, the others in microseconds; `_total` is negative when unknown.
    cdef int64_t _now_ms, _latency, _total
    # For a put, when it was validated, appended and dispatched; for a delivery, the record's size
    # and reconsume count; for a flush, how many messages it covered.
    cdef int64_t _numbers[3]

    @property
    def ending(self):
        cdef uint8_t room[EVENT_MAX]
        return PyBytes_FromStringAndSize(<char*>room, write_event(room, self) - room)

    @property
    def properties(self):
        return decode_properties(self._what[self._what_size :].decode("utf-8", "replace"))


cdef inline Py_ssize_t most_of(EncodedEvent events) noexcept:
    """Return the maximum length of an event's JSON."""
    cdef Py_ssize_t around = PyBytes_GET_SIZE(events._where) + PyBytes_GET_SIZE(events._who)
    return around + events._what_size + REST_MAX


cdef uint8_t* write_event(uint8_t* to, EncodedEvent events) noexcept:
    """Write an event as JSON without its opening brace."""
    cdef int64_t* numbers = events._numbers
    to = put_decimal(put_known(to, TRACE_TIME_MS), events._now_ms)
    to = put_decimal(put_known(to, TRACE_AT_US), llrint(events.at_s * 1000000))
    to = put_known(to, TRACE_STAGE)
    if events._kind == OF_PUT:
        to = put_known(to, TRACE_STORED)
    elif events._kind == OF_FLUSH:
        to = put_known(to, TRACE_FLUSHED)
    elif events._kind == OF_SLAVE:
        to = put_known(to, TRACE_REPLICATED)
    elif events._kind == OF_DELIVERY:
        to = put_known(to, TRACE_DELIVERED)
    else:
        to = put_known(to, TRACE_ACKNOWLEDGED)
    to = put_part(to, events._where)
    memcpy(to, PyBytes_AS_STRING(events._what), events._what_size)
    to = put_part(to + events._what_size, events._who)
    if events._kind == OF_DELIVERY:
        to = put_decimal(put_known(to, TRACE_STORE_SIZE), numbers[0])
        if events._total >= 0:
            to = put_decimal(put_known(to, TRACE_TOTAL_US), events._total)
        to = put_decimal(put_known(to, TRACE_LATENCY_US), events._latency)
        if numbers[1]:
            to = put_decimal(put_known(to, TRACE_RECONSUME_TIMES), numbers[1])
        return put_known(to, TRACE_FROM_MEMORY)
    to = put_decimal(put_known(to, TRACE_LATENCY_US), events._latency)
    if events._total >= 0:
        to = put_decimal(put_known(to, TRACE_TOTAL_US), events._total)
    if events._kind == OF_PUT:
        to = put_decimal(put_known(to, TRACE_VALIDATED), numbers[0])
        to = put_decimal(put_known(to, TRACE_APPENDED), numbers[1])
        to = put_decimal(put_known(to, TRACE_DISPATCHED), numbers[2])
        return put_word(to, b"}}", 2)
    if numbers[0]:
        to = put_decimal(put_known(to, TRACE_TOGETHER), numbers[0])
    return put_word(to, b"}", 1)


@cython.final
@cython.no_gc
cdef class EncodedDelivery(EncodedEvent):
    """The twin of `Delivered` in broker_core/trace/deliveries.py."""

    cdef readonly int64_t commit_log_offset, body_size
    # Negative when unknown.
    cdef double _stored_s
    cdef bytes _store_host

    @property
    def stored_s(self):
        return None if self._stored_s < 0 else self._stored_s

    @property
    def offset_msg_id(self):
        return self._store_host.decode() + "%016X" % self.commit_log_offset


cdef struct MessageFields:
    # A message's fields in events; none of the texts needs escaping.
    Text uniq_key
    Text tags
    Text keys
    Text traceparent
    Text properties
    int64_t body_size
    # Whether the console replayed the message.
    bint is_replayed


cdef bint read_known(Bytes record, int64_t size, MessageFields* known) noexcept:
    """Read a record; return whether it needs no decoding."""
    cdef int64_t body_size, at, properties_size
    cdef Bytes begin
    if size < FIXED_V4_SIZE + 3 or big32(record + MAGIC_POSITION) != MESSAGE_MAGIC:
        return False
    if big32(record + SYS_FLAG_POSITION) & HOST_V6_MASK:
        return False
    body_size = <int32_t>big32(record + BODY_SIZE_POSITION)
    if not 0 <= body_size <= size - FIXED_V4_SIZE - 3:
        return False
    at = FIXED_V4_SIZE + body_size
    at += 1 + record[at]
    if at + 2 > size:
        return False
    properties_size = (record[at] << 8) | record[at + 1]
    begin = record + at + 2
    if begin + properties_size > record + size:
        return False
    known.body_size = body_size
    return read_known_fields(begin, properties_size, known)


cdef bint read_known_fields(Bytes begin, Py_ssize_t size, MessageFields* known) noexcept:
    """Read properties; return whether all values shown in events can be written as JSON unescaped.
    """
    cdef Bytes end = begin + size
    cdef Bytes stop
    cdef Bytes middle
    cdef Text* found
    known.properties.at = begin
    known.properties.size = size
    known.uniq_key.size = known.tags.size = known.keys.size = known.traceparent.size = 0
    known.is_replayed = False
    while begin < end:
        stop = <Bytes>memchr(begin, PROPERTY_SEPARATOR, end - begin)
        if stop == NULL:
            stop = end
        middle = <Bytes>memchr(begin, NAME_VALUE_SEPARATOR, stop - begin)
        if middle != NULL and middle > begin and middle + 1 < stop:
            found = known_text(known, begin, middle - begin)
            if found != NULL:
                found.at = middle + 1
                found.size = stop - middle - 1
        begin = stop + 1
    size = known.uniq_key.size + known.tags.size + known.keys.size + known.traceparent.size
    return (
        known.uniq_key.size > 0
        and size + known.uniq_key.size <= TEXTS_MAX
        and is_bare(known.uniq_key)
        and is_bare(known.tags)
        and is_bare(known.keys)
        and is_bare(known.traceparent)
    )


cdef inline Text* known_text(MessageFields* known, Bytes name, Py_ssize_t size) noexcept:
    """Return where to keep a property's value, NULL if events don't include it."""
    if is_word(name, size, PROPERTY_UNIQ_KEY):
        return &known.uniq_key
    if is_word(name, size, PROPERTY_TAGS):
        return &known.tags
    if is_word(name, size, PROPERTY_KEYS):
        return &known.keys
    if is_word(name, size, PROPERTY_TRACEPARENT):
        return &known.traceparent
    if is_word(name, size, PROPERTY_REPLAYED):
        known.is_replayed = True
    return NULL


cdef inline bint is_bare(Text text) noexcept:
    """Tell whether JSON shows a text unescaped: printable ASCII without quotes and slashes."""
    cdef Bytes at
    cdef Bytes end
    if text.size == 0:
        return True
    end = text.at + text.size
    at = past_plain(text.at, end)
    while at < end:
        if not 32 <= at[0] < 127 or at[0] == 34 or at[0] == 92:
            return False
        at += 1
    return memchr(text.at, 127, text.size) == NULL


cdef inline uint8_t* put_word(uint8_t* to, const char* word, Py_ssize_t size) noexcept:
    memcpy(to, word, size)
    return to + size


cdef inline uint8_t* put_text(uint8_t* to, Text text) noexcept:
    memcpy(to, text.at, text.size)
    return to + text.size


cdef uint8_t* put_what(uint8_t* to, MessageFields* known, int64_t queue_offset,
                       int64_t commit_log_offset,
                       bytes store_host) noexcept:
    """Write what all events of a message share, after its queue."""
    to = put_decimal(to, queue_offset)
    to = put_text(put_known(to, TRACE_MESSAGE_ID), known.uniq_key)
    to = put_decimal(put_known(to, TRACE_COMMIT_LOG_OFFSET), commit_log_offset)
    to = put_decimal(put_known(to, TRACE_BODY_SIZE), known.body_size)
    if known.tags.size:
        to = put_text(put_known(to, TRACE_TAGS), known.tags)
        to = put_word(to, b'"', 1)
    if known.keys.size:
        to = put_text(put_known(to, TRACE_KEYS), known.keys)
        to = put_word(to, b'"', 1)
    if known.traceparent.size:
        to = put_text(put_known(to, TRACE_TRACEPARENT), known.traceparent)
        to = put_word(to, b'"', 1)
    to = put_text(put_known(to, TRACE_UNIQ_KEY), known.uniq_key)
    to = put_part(put_known(to, TRACE_OFFSET_MSG_ID), store_host)
    return put_word(put_hex(to, <uint64_t>commit_log_offset), b'"', 1)


cdef bytes message_json(uint8_t* room, uint8_t* end, Text rest):
    """Return the bytes written to `room`, followed by `rest`."""
    cdef Py_ssize_t size = end - room
    cdef bytes what = PyBytes_FromStringAndSize(NULL, size + rest.size)
    cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(what)
    memcpy(to, room, size)
    memcpy(to + size, rest.at, rest.size)
    return what


cdef inline int64_t micros(double seconds) noexcept:
    return max(0, llrint(seconds * 1000000))


cdef EncodedEvent later_event(EncodedEvent of, Kind kind, str stage, int64_t now_ms, double at_s):
    """Return a later event of a reported message, with the time since the first."""
    cdef EncodedEvent event = EncodedEvent.__new__(EncodedEvent)
    event._kind = kind
    event.stage = stage
    event.topic = of.topic
    event._where = of._where
    event._what = of._what
    event._what_size = of._what_size
    event.at_s = at_s
    event._now_ms = now_ms
    event._latency = micros(at_s - of.at_s)
    event._total = -1
    return event


cdef inline bint is_encoded(event) noexcept:
    return type(event) is EncodedEvent or type(event) is EncodedDelivery or type(event) is Put


cdef bytes location_json(topic, int32_t queue_id):
    """Return the JSON before a message's queue offset."""
    return encode_members(topic=topic, queue_id=queue_id, queue_offset="")[:-1]


cdef int give(tuple watches, list events) except -1:
    """Add events to watches, which number them later."""
    cdef list fresh
    cdef Py_ssize_t count = len(events)
    for watch in watches:
        fresh = <list>slot(exactly(WatchType, watch), WATCH_FRESH)
        if slot(watch, WATCH_IS_UP_TO_DATE) is True:
            watch.wake()
        if count == 1:
            fresh.append(events[0])
        else:
            fresh += events
        if len(fresh) >= FRESH_MAX:
            watch.number_fresh()
    return 0


@cython.final
cdef class Numbered:
    """The twin of Numbered in broker_core/trace/ring.py."""

    cdef public int64_t first
    cdef public bytes head
    cdef public list events

    def __init__(self, int64_t first, bytes head not None, list events not None):
        self.first = first
        self.head = head
        self.events = events

    def stages(self):
        """Return the number of events by stage."""
        cdef dict found = {}
        # Count the first few stages without a dict lookup.
        cdef list names = []
        cdef PyObject* known[NAMES_MAX]
        cdef int64_t counts[NAMES_MAX]
        cdef int i, count = 0
        cdef str stage
        for event in self.events:
            stage = (<EncodedEvent>event).stage if is_encoded(event) else event.stage
            for i in range(count):
                if known[i] == <PyObject*>stage:
                    counts[i] += 1
                    break
            else:
                if count < NAMES_MAX:
                    known[count] = <PyObject*>stage
                    counts[count] = 1
                    names.append(stage)
                    count += 1
                else:
                    found[stage] = found.get(stage, 0) + 1
        for i in range(count):
            name = names[i]
            found[name] = found.get(name, 0) + counts[i]
        return found

    def body(self, bytes before not None=b"", bytes behind not None=b""):
        """Return the events' JSON, separated by commas, between `before` and `behind`."""
        cdef Py_ssize_t count = len(self.events), size = 0
        cdef int64_t number = self.first
        cdef bytes ending
        cdef PyObject* made
        cdef uint8_t* begin
        cdef uint8_t* to
        if not count:
            return before + behind
        for event in self.events:
            if is_encoded(event):
                size += most_of(<EncodedEvent>event)
            else:
                ending = event.ending
                size += PyBytes_GET_SIZE(ending)
        # Each event adds its opening, number and head.
        size += count * (TRACE_NUMBER_SIZE + 1 + DECIMAL_MAX + PyBytes_GET_SIZE(self.head))
        size += PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(behind)
        made = bytes_of_size(size)
        try:
            begin = to = <uint8_t*>PyBytes_AS_STRING(<object>made)
            to = put_part(to, before)
            for event in self.events:
                if number > self.first:
                    to = put_word(to, b",", 1)
                to = put_decimal(put_known(to, TRACE_NUMBER), number)
                to = put_part(to, self.head)
                if is_encoded(event):
                    to = write_event(to, <EncodedEvent>event)
                else:
                    to = put_part(to, event.ending)
                number += 1
            to = put_part(to, behind)
        except BaseException:
            Py_XDECREF(made)
            raise
        return cut_bytes(made, to - begin)


@cython.final
@cython.no_gc
cdef class Put(EncodedEvent):
    """The twin of `Stored` in broker_core/trace/watched_messages.py."""

    cdef readonly int64_t commit_log_offset, end

    @property
    def event(self):
        """The reported event, for callers that match it against filters."""
        return decode_event(b"{" + self.ending)

    def move_until(self, waiting not None, messages not None, int64_t end):
        """See `Put.move_until` in broker_core/trace/watched_messages.py."""
        popleft, append = waiting.popleft, messages.append
        while waiting:
            first = waiting[0]
            if type(first) is not Put or (<Put>first).end > end:
                break
            append(popleft())

    def emit_progress(self, messages not None, Py_ssize_t count, put_sinks, str stage not None,
                client, double at_s, int64_t together):
        """See `Put.emit_progress` in broker_core/trace/watched_messages.py."""
        cdef Kind kind = OF_FLUSH if stage == FLUSHED else OF_SLAVE
        cdef bytes who = b"" if client is None else b"," + encode_members(client=client)
        cdef str topic = None
        cdef tuple watches = None
        cdef list events = []
        cdef Py_ssize_t taken = 0
        cdef Put put
        popleft = messages.popleft
        if stage not in (FLUSHED, REPLICATED) or PyBytes_GET_SIZE(who) > AROUND_MAX // 2:
            raise ValueError(f"{stage} or {client} is no stage, or longer than slaves are")
        while taken < count:
            message = popleft()
            if type(message) is not Put:
                messages.appendleft(message)
                break
            put = <Put>message
            if put.topic is not topic:
                event_sinks = put_sinks[put.topic]
                if event_sinks is None:
                    messages.appendleft(message)
                    break
                if events:
                    give(watches, events)
                    events = []
                topic = put.topic
                # The fields have the names of the stages.
                watches = <tuple>getattr(event_sinks, stage)
            taken += 1
            if watches:
                events.append(put.progress_event(kind, stage, who, at_s, together))
        if events:
            give(watches, events)
        return taken

    cdef EncodedEvent progress_event(self, Kind kind, str stage, bytes who, double at_s,
                                     int64_t together):
        """Return the event for a message that reached the disk or a slave."""
        cdef EncodedEvent event = later_event(self, kind, stage, self._now_ms, at_s)
        event._now_ms += event._latency // 1000
        event._total = event._latency
        event._who = who
        event._numbers[0] = together
        return event


cdef Put put_of(Note* note, bytes store_host):
    """Return a stored message with its event."""
    cdef uint8_t room[WHAT_MAX]
    cdef uint8_t* to = put_what(room, &note.known, note.queue_offset, note.offset, store_host)
    cdef Picks picks = <Picks>note.of
    cdef Put put = Put.__new__(Put)
    to = put_decimal(put_known(to, TRACE_STORE_SIZE), note.size)
    if note.producer_group.size:
        to = put_text(put_known(to, TRACE_PRODUCER_GROUP), note.producer_group)
        to = put_word(to, b'"', 1)
    if note.reconsumed:
        to = put_decimal(put_known(to, TRACE_RECONSUME_TIMES), note.reconsumed)
    put._what_size = to - room
    put._what = message_json(room, to, note.known.properties)
    put._kind = OF_PUT
    put.stage = STORED
    put.topic = picks.topic
    put._where = picks.where
    put._who = <bytes>note.who
    put.at_s = note.at_s
    put._now_ms = note.now_ms
    put._latency = note.latency
    put._total = -1
    memcpy(put._numbers, note.steps, sizeof(note.steps))
    put.commit_log_offset = note.offset
    put.end = note.offset + note.size
    return put
