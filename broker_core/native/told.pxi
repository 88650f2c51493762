"""Told: messages of a sample that are put, handed out, acknowledged, as the JSON of watchers.

No event is made, and none is held against a filter: who has a place in `trace/takers.py` wants all
that the sample has. What a message is stands in one piece of JSON, made when it is handed out and
used again when it is acknowledged. The twin is `processors/consumer_trace.py`, which is left
whatever has to be decoded or escaped, and what was noted by it.
"""

from broker_core.message.properties import decode as decode_properties
from broker_core.message.ids import host_text
from broker_core.trace.event import encode as encode_json
from broker_core.trace.recorder import decode_event
from broker_core.trace.followed import FOLLOWED_MAX as FOLLOWED_LIMIT
from broker_core.trace.followed import STORED_MAX as STORED_LIMIT
from broker_core.trace.watch import FRESH_MAX as FRESH_LIMIT
from broker_core.trace.deliveries import DELIVERIES_MAX as DELIVERIES_LIMIT
from broker_core.trace.deliveries import Deliveries as DeliveriesType
from broker_core.trace.tracer import PUSH_SECONDS

cdef enum:
    COMMIT_LOG_OFFSET_AT = 28
    RECONSUMED_AT = 72
    BODY_SIZE_AT = 84
    BODY_AT = 88
    # Of a message's texts together, of where it is with who has it, and of an event.
    TEXTS_MAX = 2048
    AROUND_MAX = 4096
    GROUP_MAX = 255
    EVENT_MAX = 8192
    NAMES_MAX = 8

# So long a wall clock that is set goes unnoticed: what is told goes by the pushes anyhow.
cdef double WALL_SECONDS = PUSH_SECONDS
cdef Py_ssize_t FRESH_MAX = FRESH_LIMIT
cdef Py_ssize_t DELIVERIES_MAX = DELIVERIES_LIMIT
cdef int64_t V6_FLAGS = HOST_V6_MASK
cdef Py_ssize_t FOLLOWED_MAX = FOLLOWED_LIMIT
cdef Py_ssize_t STORED_MAX = STORED_LIMIT
cdef str STORED = "stored"
cdef str DELIVERED = "delivered"
cdef str ACKNOWLEDGED = "acknowledged"
cdef Py_ssize_t DELIVERIES_QUEUES = slot_of_class(DeliveriesType, "queues")


cdef extern from "<math.h>" nogil:
    long long llrint(double)


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Told:
    """See `Emitted` of broker_core/trace/event.py, whose twin this is."""

    cdef readonly str stage, topic, group
    # Its JSON, of so many bytes; behind it a message's properties may stand.
    cdef bytes text
    cdef Py_ssize_t size

    @property
    def ending(self):
        return self.text[: self.size]


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Handed:
    """See `Delivered` of broker_core/trace/deliveries.py, whose twin this is."""

    cdef readonly int64_t commit_log_offset, body_size
    cdef readonly double at_s
    # Below 0 where that is not known.
    cdef double _stored_s
    cdef bytes _store_host
    # What was told of it, and where there the fields are that are the same in all of its events.
    cdef Told _told
    cdef Py_ssize_t _what, _what_size

    @property
    def properties(self):
        return properties_of(self._told)

    @property
    def stored_s(self):
        return None if self._stored_s < 0 else self._stored_s

    @property
    def offset_msg_id(self):
        return self._store_host.decode() + "%016X" % self.commit_log_offset


cdef object properties_of(Told told):
    """Return the properties behind an event."""
    return decode_properties(told.text[told.size :].decode("utf-8", "replace"))


cdef struct Known:
    # What events say of a message; no text has anything that must be escaped.
    Text uniq_key
    Text tags
    Text keys
    Text traceparent
    Text properties
    int64_t body_size
    # Whether it is one that the console sent again.
    bint is_replayed


cdef bint read_known(Bytes record, int64_t size, Known* known) noexcept:
    """Read a record; tell whether it is one that needs no decoding."""
    cdef int64_t body_size, at, properties_size
    cdef Bytes begin
    if size < BODY_AT + 3 or big32(record + 4) != MAGIC:
        return False
    if big32(record + SYS_FLAG_AT) & V6_FLAGS:
        return False
    body_size = <int32_t>big32(record + BODY_SIZE_AT)
    if not 0 <= body_size <= size - BODY_AT - 3:
        return False
    at = BODY_AT + body_size
    at += 1 + record[at]
    if at + 2 > size:
        return False
    properties_size = (record[at] << 8) | record[at + 1]
    begin = record + at + 2
    if begin + properties_size > record + size:
        return False
    known.body_size = body_size
    return read_what(begin, properties_size, known)


cdef bint read_what(Bytes begin, Py_ssize_t size, Known* known) noexcept:
    """Read properties; tell whether all that events say of them stands in JSON as it is."""
    cdef Bytes end = begin + size
    cdef Bytes stop
    cdef Bytes middle
    cdef Text* found
    known.properties.at = begin
    known.properties.size = size
    known.uniq_key.size = known.tags.size = known.keys.size = known.traceparent.size = 0
    known.is_replayed = False
    while begin < end:
        stop = <Bytes>memchr(begin, 2, end - begin)
        if stop == NULL:
            stop = end
        middle = <Bytes>memchr(begin, 1, stop - begin)
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


cdef inline Text* known_text(Known* known, Bytes name, Py_ssize_t size) noexcept:
    """Return where a property's value belongs, NULL when no event has it."""
    if size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        return &known.uniq_key
    if size == 4 and memcmp(name, b"TAGS", 4) == 0:
        return &known.tags
    if size == 4 and memcmp(name, b"KEYS", 4) == 0:
        return &known.keys
    if size == 11 and memcmp(name, b"traceparent", 11) == 0:
        return &known.traceparent
    if size == 16 and memcmp(name, b"TREBUCHET_REPLAY", 16) == 0:
        known.is_replayed = True
    return NULL


cdef inline bint is_bare(Text text) noexcept:
    """Tell whether a text stands in JSON as it is: what ASCII can show, but quotes and slashes."""
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


cdef uint8_t* put_what(uint8_t* to, Known* known, int64_t queue_offset, int64_t commit_log_offset,
                       bytes store_host) noexcept:
    """Write what is the same in all events of a message, behind where its queue is."""
    to = put_decimal(to, queue_offset)
    to = put_text(put_word(to, b'","messageId":"', 15), known.uniq_key)
    to = put_decimal(put_word(to, b'","commitLogOffset":"', 21), commit_log_offset)
    to = put_decimal(put_word(to, b'","bodySize":', 13), known.body_size)
    if known.tags.size:
        to = put_text(put_word(to, b',"tags":"', 9), known.tags)
        to = put_word(to, b'"', 1)
    if known.keys.size:
        to = put_text(put_word(to, b',"keys":"', 9), known.keys)
        to = put_word(to, b'"', 1)
    if known.traceparent.size:
        to = put_text(put_word(to, b',"traceparent":"', 16), known.traceparent)
        to = put_word(to, b'"', 1)
    to = put_text(put_word(to, b',"uniqKey":"', 12), known.uniq_key)
    to = put_part(put_word(to, b'","offsetMsgId":"', 17), store_host)
    return put_word(put_hex(to, <uint64_t>commit_log_offset), b'"', 1)


cdef Told told_of(uint8_t* room, uint8_t* end, Text* rest, str stage, str topic, str group):
    """Return the event whose JSON stands in a room; keep the rest, if there is any, behind it."""
    cdef Told told = Told.__new__(Told)
    cdef Py_ssize_t size = end - room
    cdef uint8_t* to
    told.stage = stage
    told.topic = topic
    told.group = group
    told.size = size
    if rest == NULL:
        told.text = PyBytes_FromStringAndSize(<char*>room, size)
        return told
    told.text = PyBytes_FromStringAndSize(NULL, size + rest.size)
    to = <uint8_t*>PyBytes_AS_STRING(told.text)
    memcpy(to, room, size)
    memcpy(to + size, rest.at, rest.size)
    return told


cdef inline uint8_t* put_some(uint8_t* to, Told told, Py_ssize_t at, Py_ssize_t size) noexcept:
    """Copy a part of an event."""
    memcpy(to, PyBytes_AS_STRING(told.text) + at, size)
    return to + size


cdef inline uint8_t* put_times(uint8_t* to, int64_t now_ms, double at_s) noexcept:
    to = put_decimal(put_word(to, b'"timeMs":"', 10), now_ms)
    to = put_decimal(put_word(to, b'","atUs":"', 10), llrint(at_s * 1000000))
    return put_word(to, b'","stage":"', 11)


cdef inline int64_t micros(double seconds) noexcept:
    return max(0, llrint(seconds * 1000000))


cdef class Teller:
    """Tells of what pulls hand out and acknowledge. Event loop only."""

    cdef object _deliveries, _order, _append, _popleft, _now_ms
    cdef dict _stored_at, _groups
    # Wall time less monotonic time in milliseconds, as it was found at some moment of the latter.
    cdef double _wall_ms, _wall_at_s
    # As ids of messages have it.
    cdef bytes _store_host

    def __init__(self, tracer, consumers, bytes store_host not None, clock):
        self._deliveries = exactly(DeliveriesType, tracer.deliveries)
        self._order = tracer.deliveries.order
        self._append = self._order.append
        self._popleft = self._order.popleft
        self._stored_at = tracer.followed.stored_at
        self._groups = consumers.groups
        self._store_host = store_host.hex().upper().encode()
        self._now_ms = clock.now_ms
        self._wall_ms = self._wall_at_s = -1.0

    cdef int64_t _now(self, double at_s) except -1:
        """Return the wall time of a moment of just now; the clock is asked once in a while."""
        if not self._wall_at_s <= at_s < self._wall_at_s + WALL_SECONDS:
            self._wall_ms = <double>self._now_ms() - at_s * 1000
            self._wall_at_s = at_s
        # Floating point may fall just short of a whole millisecond.
        return <int64_t>(self._wall_ms + at_s * 1000 + 0.001)

    cdef dict waiting(self, _Reading reading):
        """Return what was delivered to a reader and is not acknowledged."""
        queues = slot(self._deliveries, DELIVERIES_QUEUES)
        if reading.waiting_in is not queues:
            reading.waiting = self._deliveries.waiting(reading.queue)
            # Another one if those without deliveries went.
            reading.waiting_in = slot(self._deliveries, DELIVERIES_QUEUES)
        return reading.waiting

    cdef bint delivered(self, _Reading reading, connection, Bytes* records, int count,
                        int64_t one_of, double at_s) except -1:
        """Tell of records that are handed out; tells whether all of them could be."""
        cdef int i
        cdef Handed handed
        cdef list all_handed = []
        cdef int64_t now_ms = self._now(at_s)
        if not self._find_who(reading, connection):
            return False
        for i in range(count):
            handed = self._handed(reading, records[i], one_of, now_ms, at_s)
            if handed is None:
                return False
            all_handed.append(handed)
        for i in range(count):
            handed = <Handed>all_handed[i]
            self._note(reading, big64(records[i] + QUEUE_OFFSET_AT), handed)
            all_handed[i] = handed._told
        give(reading.of_deliveries, all_handed)
        return True

    cdef Handed _handed(self, _Reading reading, Bytes record, int64_t one_of, int64_t now_ms,
                        double at_s):
        """Return a record that is handed out, with what is told of that; None if Python must."""
        cdef uint8_t room[EVENT_MAX]
        cdef uint8_t* to
        cdef Known known
        cdef Handed handed
        cdef int64_t offset, latency_us, reconsumed
        if not read_known(record, <int32_t>big32(record), &known):
            return None
        if crc32_of(known.uniq_key.at, known.uniq_key.size) % one_of:
            return None
        offset = big64(record + COMMIT_LOG_OFFSET_AT)
        stored = self._stored_at.get(offset)
        handed = Handed.__new__(Handed)
        handed.commit_log_offset = offset
        handed.body_size = known.body_size
        handed.at_s = at_s
        handed._stored_s = -1.0 if stored is None else <double>stored
        handed._store_host = self._store_host
        to = put_word(put_times(room, now_ms, at_s), b'delivered",', 11)
        to = put_part(to, reading.where)
        handed._what = to - room
        to = put_what(to, &known, big64(record + QUEUE_OFFSET_AT), offset, self._store_host)
        handed._what_size = to - room - handed._what
        to = put_part(to, reading.who)
        to = put_decimal(put_word(to, b',"storeSize":', 13), <int32_t>big32(record))
        if stored is not None:
            latency_us = micros(at_s - handed._stored_s)
            to = put_decimal(put_word(to, b',"totalUs":', 11), latency_us)
        else:
            latency_us = max(0, now_ms - stored_of(record)) * 1000
        to = put_decimal(put_word(to, b',"latencyUs":', 13), latency_us)
        reconsumed = <int32_t>big32(record + RECONSUMED_AT)
        if reconsumed:
            to = put_decimal(put_word(to, b',"reconsumeTimes":', 18), reconsumed)
        to = put_word(to, b',"source":"memory"}', 19)
        handed._told = told_of(
            room, to, &known.properties, DELIVERED, reading.topic, reading.group
        )
        return handed

    cdef bint acknowledged(self, _Reading reading, connection, int64_t first, int64_t end,
                           double at_s) except -1:
        """Tell of an offset that moved from `first` to `end`; tells whether all could be told."""
        cdef dict waiting = self.waiting(reading)
        cdef int64_t now_ms
        cdef Py_ssize_t i
        cdef list offsets = None
        for number, noted in waiting.items():
            if first <= <int64_t>number < end:
                if type(noted) is not Handed:
                    return False
                if offsets is None:
                    offsets = [number]
                else:
                    offsets.append(number)
        if offsets is None:
            return True
        if not self._find_who(reading, connection):
            return False
        if len(offsets) > 1:
            offsets.sort()
        now_ms = self._now(at_s)
        for i in range(len(offsets)):
            offsets[i] = self._told_acknowledged(
                reading, <Handed>waiting.pop(offsets[i]), now_ms, at_s
            )
        give(reading.of_acknowledgements, offsets)
        return True

    cdef Told _told_acknowledged(self, _Reading reading, Handed handed, int64_t now_ms,
                                 double at_s):
        cdef uint8_t room[EVENT_MAX]
        cdef uint8_t* to = put_times(room, now_ms, at_s)
        to = put_part(put_word(to, b'acknowledged",', 14), reading.where)
        to = put_some(to, handed._told, handed._what, handed._what_size)
        to = put_part(to, reading.who)
        to = put_decimal(put_word(to, b',"latencyUs":', 13), micros(at_s - handed.at_s))
        if handed._stored_s >= 0:
            to = put_decimal(put_word(to, b',"totalUs":', 11), micros(at_s - handed._stored_s))
        return told_of(
            room, put_word(to, b"}", 1), NULL, ACKNOWLEDGED, reading.topic, reading.group
        )

    cdef int _note(self, _Reading reading, int64_t queue_offset, Handed handed) except -1:
        """Remember a delivery, as `Deliveries.note` does."""
        cdef dict waiting
        if len(self._order) >= DELIVERIES_MAX:
            before, number = <tuple>self._popleft()
            (<dict>before).pop(number, None)
        number = queue_offset
        waiting = self.waiting(reading)
        waiting[number] = handed
        self._append((waiting, number))
        return 0

    cdef bint _find_who(self, _Reading reading, connection) except -1:
        """Have the JSON of who reads where; tell whether an event has room for it."""
        cdef str client = remote_address_of(connection)
        client_id = None
        group = self._groups.get(reading.group)
        if group is not None:
            member = (<dict>slot(exactly(GroupType, group), GROUP_MEMBERS)).get(connection)
            if member is not None:
                client_id = slot(exactly(MemberType, member), MEMBER_CLIENT_ID)
        if reading.who is None or reading.client is not client or reading.client_id is not client_id:
            who = {"group": reading.group, "client": client}
            if client_id is not None:
                who["clientId"] = client_id
            reading.client = client
            reading.client_id = client_id
            reading.who = b"," + encode_json(who)[1:-1]
        if reading.where is None:
            reading.where = where_of(reading.topic, reading.queue_id)
        return PyBytes_GET_SIZE(reading.where) + PyBytes_GET_SIZE(reading.who) <= AROUND_MAX


cdef bytes where_of(topic, int32_t queue_id):
    """Return the JSON that a message's queue offset follows."""
    where = {"topic": topic, "queueId": queue_id, "queueOffset": ""}
    return encode_json(where)[1:-2]


cdef int give(tuple watches, list told) except -1:
    """Hand events to watches, which number them later."""
    cdef list fresh
    cdef Py_ssize_t count = len(told)
    for watch in watches:
        fresh = <list>slot(exactly(WatchType, watch), WATCH_FRESH)
        if slot(watch, WATCH_IS_TOLD) is True:
            watch.wake()
        if count == 1:
            fresh.append(told[0])
        else:
            fresh += told
        if len(fresh) >= FRESH_MAX:
            watch.number_fresh()
    return 0


@cython.final
cdef class Numbered:
    """See broker_core/trace/ring.py, whose twin this is."""

    cdef public int64_t first
    cdef public bytes head
    cdef public list events

    def __init__(self, int64_t first, bytes head not None, list events not None):
        self.first = first
        self.head = head
        self.events = events

    def stages(self):
        """Return how many of each stage they are."""
        cdef dict found = {}
        # Of those that come first it is known without a look-up which they are.
        cdef list names = []
        cdef PyObject* known[NAMES_MAX]
        cdef int64_t counts[NAMES_MAX]
        cdef int i, count = 0
        cdef str stage
        for event in self.events:
            stage = (<Told>event).stage if type(event) is Told else event.stage
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
        """Return their JSON, with commas between them, and something around it."""
        cdef Py_ssize_t count = len(self.events), size = 0
        cdef int64_t number = self.first
        cdef int digits = 1
        cdef int64_t longer = 10
        cdef bytes ending, made
        cdef uint8_t* to
        cdef Told told
        if not count:
            return before + behind
        while number >= longer:
            digits += 1
            longer *= 10
        for event in self.events:
            if number == longer:
                digits += 1
                longer *= 10
            number += 1
            if type(event) is Told:
                size += digits + (<Told>event).size
            else:
                ending = event.ending
                size += digits + PyBytes_GET_SIZE(ending)
        # Around each its beginning and its head, and a comma behind all but the last.
        size += count * (9 + PyBytes_GET_SIZE(self.head)) - 1
        size += PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(behind)
        made = PyBytes_FromStringAndSize(NULL, size)
        to = put_part(<uint8_t*>PyBytes_AS_STRING(made), before)
        number = self.first
        for event in self.events:
            if number > self.first:
                to = put_word(to, b",", 1)
            to = put_decimal(put_word(to, b'{"seq":"', 8), number)
            to = put_part(to, self.head)
            if type(event) is Told:
                told = <Told>event
                to = put_some(to, told, 0, told.size)
            else:
                to = put_part(to, event.ending)
            number += 1
        put_part(to, behind)
        return made


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Put:
    """See `Stored` of broker_core/trace/followed.py, whose twin this is."""

    cdef readonly int64_t commit_log_offset, end
    cdef readonly double at_s
    # What was told of it, whom, and where there it says what it is, from its topic to its producer.
    cdef Told _told
    cdef tuple _watches
    cdef Py_ssize_t _what, _what_size
    cdef int64_t _now_ms

    @property
    def topic(self):
        return self._told.topic

    @property
    def event(self):
        """What was told of it, for who holds it against filters."""
        return decode_event(b"{" + self._told.ending)

    @property
    def properties(self):
        return properties_of(self._told)

    def moved(self, waiting not None, messages not None, int64_t end):
        """See `Put.moved` of broker_core/trace/followed.py."""
        popleft, append = waiting.popleft, messages.append
        while waiting:
            first = waiting[0]
            if type(first) is not Put or (<Put>first).end > end:
                break
            append(popleft())

    def covered(self, messages not None, Py_ssize_t count, takers_of_puts, str stage not None,
                client, double at_s, int64_t together):
        """See `Put.covered` of broker_core/trace/followed.py."""
        cdef bytes name = stage.encode()
        cdef bytes who = b"" if client is None else b',"client":' + encode_json(client)
        cdef str topic = None
        cdef tuple watches = None
        cdef list told = []
        cdef Py_ssize_t taken = 0
        cdef Put put
        popleft = messages.popleft
        if PyBytes_GET_SIZE(name) > DECIMAL_MAX or PyBytes_GET_SIZE(who) > AROUND_MAX // 2:
            raise ValueError(f"{stage} or {client} is longer than stages and slaves are")
        while taken < count:
            message = popleft()
            if type(message) is not Put:
                messages.appendleft(message)
                break
            put = <Put>message
            if put._told.topic is not topic:
                takers = takers_of_puts[put._told.topic]
                if takers is None:
                    messages.appendleft(message)
                    break
                if told:
                    give(watches, told)
                    told = []
                topic = put._told.topic
                # Its fields are named as the stages are.
                watches = <tuple>getattr(takers, stage)
            taken += 1
            if watches:
                told.append(put.covered_told(stage, name, who, at_s, together))
        if told:
            give(watches, told)
        return taken

    cdef Told covered_told(self, str stage, bytes name, bytes who, double at_s,
                           int64_t together):
        """Return what is told when the disk or a slave has it."""
        cdef uint8_t room[EVENT_MAX]
        cdef uint8_t* to
        cdef int64_t latency_us = micros(at_s - self.at_s)
        to = put_times(room, self._now_ms + latency_us // 1000, at_s)
        to = put_word(put_part(to, name), b'",', 2)
        to = put_part(put_some(to, self._told, self._what, self._what_size), who)
        to = put_decimal(put_word(to, b',"latencyUs":', 13), latency_us)
        to = put_decimal(put_word(to, b',"totalUs":', 11), latency_us)
        if together:
            to = put_decimal(put_word(to, b',"together":', 12), together)
        return told_of(room, put_word(to, b"}", 1), NULL, stage, self._told.topic, None)


cdef Put put_of(Send* send, Picks picks, Known* known, int64_t queue_offset, int64_t offset,
                int64_t size, bytes store_host, bytes client, int64_t now_ms, double received_s,
                double validated_s, double appended_s, double dispatched_s):
    """Return a message that was put, with what is told of that."""
    cdef uint8_t room[EVENT_MAX]
    cdef uint8_t* to = put_word(put_times(room, now_ms, dispatched_s), b'stored",', 8)
    cdef Put put = Put.__new__(Put)
    put._what = to - room
    to = put_what(put_part(to, picks.where), known, queue_offset, offset, store_host)
    to = put_decimal(put_word(to, b',"storeSize":', 13), size)
    if send.producer_group.size:
        to = put_text(put_word(to, b',"producerGroup":"', 18), send.producer_group)
        to = put_word(to, b'"', 1)
    if send.reconsume_times:
        to = put_decimal(put_word(to, b',"reconsumeTimes":', 18), send.reconsume_times)
    put._what_size = to - room - put._what
    to = put_decimal(
        put_word(put_part(to, client), b',"latencyUs":', 13),
        max(0, now_ms - send.born_timestamp) * 1000
    )
    to = put_word(to, b',"steps":{"received":0,"validated":', 35)
    to = put_decimal(to, micros(validated_s - received_s))
    to = put_decimal(put_word(to, b',"appended":', 12), micros(appended_s - received_s))
    to = put_decimal(put_word(to, b',"dispatched":', 14), micros(dispatched_s - received_s))
    to = put_word(to, b"}}", 2)
    put._told = told_of(room, to, &known.properties, STORED, picks.topic, None)
    put._watches = picks.stored
    put.commit_log_offset = offset
    put.end = offset + size
    put.at_s = dispatched_s
    put._now_ms = now_ms
    return put
