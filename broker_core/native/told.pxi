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
from broker_core.trace.tracer import PUSH_SECONDS

cdef enum:
    COMMIT_LOG_OFFSET_AT = 28
    RECONSUMED_AT = 72
    BODY_SIZE_AT = 84
    BODY_AT = 88
    # Of a message's texts together, and all that stands around them and of an event's numbers.
    TEXTS_MAX = 2048
    NUMBERS_ROOM = 1024
    GROUP_MAX = 255
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


cdef extern from "<math.h>" nogil:
    long long llrint(double)


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Told:
    """See `Emitted` of broker_core/trace/event.py, whose twin this is."""

    cdef readonly str stage, topic, group
    cdef readonly bytes ending


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Handed:
    """See `Delivered` of broker_core/trace/deliveries.py, whose twin this is."""

    cdef readonly int64_t commit_log_offset, body_size
    cdef readonly double at_s
    # Below 0 where that is not known.
    cdef double _stored_s
    # The fields that are the same in all of its events, as JSON.
    cdef bytes _what, _properties, _store_host

    @property
    def properties(self):
        return decode_properties(self._properties.decode("utf-8", "replace"))

    @property
    def stored_s(self):
        return None if self._stored_s < 0 else self._stored_s

    @property
    def offset_msg_id(self):
        return self._store_host.decode() + "%016X" % self.commit_log_offset


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
    cdef Py_ssize_t i
    for i in range(text.size):
        if not 32 <= text.at[i] < 127 or text.at[i] == 34 or text.at[i] == 92:
            return False
    return True


cdef inline uint8_t* put_word(uint8_t* to, const char* word, Py_ssize_t size) noexcept:
    memcpy(to, word, size)
    return to + size


cdef inline uint8_t* put_text(uint8_t* to, Text text) noexcept:
    memcpy(to, text.at, text.size)
    return to + text.size


cdef bytes what_of(Known* known, int64_t queue_offset, int64_t commit_log_offset,
                   bytes store_host):
    """Return the JSON of what is the same in all events of a message."""
    cdef uint8_t room[TEXTS_MAX + NUMBERS_ROOM]
    cdef uint8_t* to = room
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
    to = put_word(put_hex(to, <uint64_t>commit_log_offset), b'"', 1)
    return PyBytes_FromStringAndSize(<char*>room, to - room)


cdef inline uint8_t* put_times(uint8_t* to, int64_t now_ms, double at_s) noexcept:
    to = put_decimal(put_word(to, b'"timeMs":"', 10), now_ms)
    to = put_decimal(put_word(to, b'","atUs":"', 10), llrint(at_s * 1000000))
    return put_word(to, b'","stage":"', 11)


cdef inline int64_t micros(double seconds) noexcept:
    return max(0, llrint(seconds * 1000000))


cdef class Teller:
    """Tells of what pulls hand out and acknowledge. Event loop only."""

    cdef object _order, _append, _popleft, _now_ms
    cdef dict _queues, _stored_at, _groups
    # Wall time less monotonic time in milliseconds, as it was found at some moment of the latter.
    cdef double _wall_ms, _wall_at_s
    # As ids of messages have it.
    cdef bytes _store_host

    def __init__(self, tracer, consumers, bytes store_host not None, clock):
        self._order = tracer.deliveries.order
        self._append = self._order.append
        self._popleft = self._order.popleft
        self._queues = tracer.deliveries.queues
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

    cdef bint delivered(self, _Reading reading, connection, Bytes* records, int count,
                        int64_t one_of, double at_s) except -1:
        """Tell of records that are handed out; tells whether all of them could be."""
        cdef Known known
        cdef Handed handed
        cdef Told told
        cdef Bytes record
        cdef int i
        cdef int64_t now_ms = self._now(at_s), size
        cdef bytes who = self._who(reading, connection)
        cdef list all_handed = [], all_told = []
        for i in range(count):
            record = records[i]
            size = <int32_t>big32(record)
            if not read_known(record, size, &known):
                return False
            if crc32_of(known.uniq_key.at, known.uniq_key.size) % one_of:
                return False
            handed = Handed.__new__(Handed)
            handed.commit_log_offset = big64(record + COMMIT_LOG_OFFSET_AT)
            handed.body_size = known.body_size
            handed.at_s = at_s
            stored = self._stored_at.get(handed.commit_log_offset)
            handed._stored_s = -1.0 if stored is None else <double>stored
            handed._store_host = self._store_host
            handed._properties = PyBytes_FromStringAndSize(
                <char*>known.properties.at, known.properties.size
            )
            handed._what = what_of(
                &known, big64(record + QUEUE_OFFSET_AT), handed.commit_log_offset,
                self._store_host
            )
            all_handed.append(handed)
            told = Told.__new__(Told)
            told.stage = DELIVERED
            told.topic = reading.topic
            told.group = reading.group
            told.ending = self._delivered_json(reading, record, handed, who, now_ms)
            all_told.append(told)
        for i in range(count):
            self._note(reading, big64(records[i] + QUEUE_OFFSET_AT), <Handed>all_handed[i])
        give(reading.of_deliveries, all_told)
        return True

    cdef bytes _delivered_json(self, _Reading reading, Bytes record, Handed handed, bytes who,
                               int64_t now_ms):
        cdef uint8_t room[NUMBERS_ROOM]
        cdef uint8_t* to = put_times(room, now_ms, handed.at_s)
        cdef Py_ssize_t begin
        cdef int64_t latency_us, waited_ms, reconsumed = <int32_t>big32(record + RECONSUMED_AT)
        cdef double stored_s = handed._stored_s
        cdef uint8_t* end
        to = put_word(to, b'delivered",', 11)
        begin = to - room
        to = put_decimal(put_word(to, b',"storeSize":', 13), <int32_t>big32(record))
        if stored_s >= 0:
            latency_us = micros(handed.at_s - stored_s)
            to = put_decimal(put_word(to, b',"totalUs":', 11), latency_us)
        else:
            waited_ms = now_ms - stored_of(record)
            latency_us = max(0, waited_ms) * 1000
        to = put_decimal(put_word(to, b',"latencyUs":', 13), latency_us)
        if reconsumed:
            to = put_decimal(put_word(to, b',"reconsumeTimes":', 18), reconsumed)
        end = put_word(to, b',"source":"memory"}', 19)
        return joined(room, begin, end - room, reading.where, handed._what, who)

    cdef bint acknowledged(self, _Reading reading, connection, int64_t first, int64_t end,
                           double at_s) except -1:
        """Tell of an offset that moved from `first` to `end`; tells whether all could be told."""
        cdef dict waiting = <dict>self._queues.get(reading.queue)
        cdef int64_t now_ms
        cdef Handed handed
        cdef Told told
        cdef bytes who
        cdef list offsets = [], all_told = []
        if waiting is None:
            return True
        for number, noted in waiting.items():
            if first <= <int64_t>number < end:
                if type(noted) is not Handed:
                    return False
                offsets.append(number)
        if not offsets:
            return True
        if len(offsets) > 1:
            offsets.sort()
        now_ms = self._now(at_s)
        who = self._who(reading, connection)
        for number in offsets:
            handed = <Handed>waiting.pop(number)
            told = Told.__new__(Told)
            told.stage = ACKNOWLEDGED
            told.topic = reading.topic
            told.group = reading.group
            told.ending = self._acknowledged_json(reading, handed, who, now_ms, at_s)
            all_told.append(told)
        if not waiting:
            del self._queues[reading.queue]
        give(reading.of_acknowledgements, all_told)
        return True

    cdef bytes _acknowledged_json(self, _Reading reading, Handed handed, bytes who, int64_t now_ms,
                                  double at_s):
        cdef uint8_t room[NUMBERS_ROOM]
        cdef uint8_t* to = put_times(room, now_ms, at_s)
        cdef Py_ssize_t begin
        cdef double stored_s = handed._stored_s
        to = put_word(to, b'acknowledged",', 14)
        begin = to - room
        to = put_decimal(put_word(to, b',"latencyUs":', 13), micros(at_s - handed.at_s))
        if stored_s >= 0:
            to = put_decimal(put_word(to, b',"totalUs":', 11), micros(at_s - stored_s))
        to = put_word(to, b"}", 1)
        return joined(room, begin, to - room, reading.where, handed._what, who)

    cdef int _note(self, _Reading reading, int64_t queue_offset, Handed handed) except -1:
        """Remember a delivery, as `Deliveries.note` does."""
        cdef dict others
        if len(self._order) >= DELIVERIES_MAX:
            before, number = self._popleft()
            others = <dict>self._queues.get(before)
            if others is not None:
                others.pop(number, None)
                if not others:
                    del self._queues[before]
        number = queue_offset
        waiting = self._queues.get(reading.queue)
        if waiting is None:
            waiting = self._queues[reading.queue] = {}
        (<dict>waiting)[number] = handed
        self._append((reading.queue, number))
        return 0

    cdef bytes _who(self, _Reading reading, connection):
        """Return the JSON of who reads."""
        cdef str client = connection.remote_address
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
        return reading.who


cdef bytes where_of(topic, int32_t queue_id):
    """Return the JSON that a message's queue offset follows."""
    where = {"topic": topic, "queueId": queue_id, "queueOffset": ""}
    return encode_json(where)[1:-2]


cdef bytes joined(uint8_t* room, Py_ssize_t begin, Py_ssize_t end, bytes where, bytes what,
                  bytes who):
    """Return an event: what stands in `room` up to `begin`, the message, who, and the rest."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(where) + PyBytes_GET_SIZE(what) + PyBytes_GET_SIZE(who)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size + end)
    cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(made)
    memcpy(to, room, begin)
    to = put_part(put_part(put_part(to + begin, where), what), who)
    memcpy(to, room + begin, end - begin)
    return made


cdef int give(tuple watches, list told) except -1:
    """Hand events to watches, which number them later."""
    cdef list fresh
    for watch in watches:
        fresh = <list>slot(exactly(WatchType, watch), WATCH_FRESH)
        if slot(watch, WATCH_IS_TOLD) is True:
            watch.wake()
        if len(told) == 1:
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
        cdef int64_t counts[NAMES_MAX]
        cdef Py_ssize_t i
        for event in self.events:
            stage = (<Told>event).stage if type(event) is Told else event.stage
            for i in range(len(names)):
                if names[i] is stage:
                    counts[i] += 1
                    break
            else:
                if len(names) < NAMES_MAX:
                    counts[len(names)] = 1
                    names.append(stage)
                else:
                    found[stage] = found.get(stage, 0) + 1
        for i in range(len(names)):
            stage = names[i]
            found[stage] = found.get(stage, 0) + counts[i]
        return found

    def body(self):
        """Return their JSON, with commas between them."""
        cdef uint8_t digits[DECIMAL_MAX]
        cdef Py_ssize_t number_size, size = 0
        cdef int64_t number = self.first
        cdef list endings = []
        cdef bytes ending, made
        cdef uint8_t* to
        for event in self.events:
            ending = (<Told>event).ending if type(event) is Told else event.ending
            endings.append(ending)
            size += put_decimal(digits, number) - digits + PyBytes_GET_SIZE(ending)
            number += 1
        if number == self.first:
            return b""
        # Around each its beginning and its head, and a comma behind all but the last.
        size += (number - self.first) * (9 + PyBytes_GET_SIZE(self.head)) - 1
        made = PyBytes_FromStringAndSize(NULL, size)
        to = <uint8_t*>PyBytes_AS_STRING(made)
        number = self.first
        for ending in endings:
            if number > self.first:
                to = put_word(to, b",", 1)
            to = put_decimal(put_word(to, b'{"seq":"', 8), number)
            to = put_part(put_part(to, self.head), ending)
            number += 1
        return made


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Put:
    """See `Stored` of broker_core/trace/followed.py, whose twin this is."""

    cdef readonly int64_t commit_log_offset, end
    cdef readonly double at_s
    cdef readonly str topic
    cdef Told told
    # As in its events: from where it is up to its producer, and its properties.
    cdef bytes _what, _properties
    cdef int64_t _now_ms

    @property
    def event(self):
        """What was told of it, for who holds it against filters."""
        return decode_event(b"{" + self.told.ending)

    @property
    def properties(self):
        return decode_properties(self._properties.decode("utf-8", "replace"))

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
        if PyBytes_GET_SIZE(name) > DECIMAL_MAX:
            raise ValueError(f"{stage} is longer than stages are")
        while taken < count:
            message = messages[0]
            if type(message) is not Put:
                break
            put = <Put>message
            if put.topic is not topic:
                takers = takers_of_puts[put.topic]
                if takers is None:
                    break
                if told:
                    give(watches, told)
                    told = []
                topic = put.topic
                # Its fields are named as the stages are.
                watches = <tuple>getattr(takers, stage)
            messages.popleft()
            taken += 1
            if watches:
                told.append(put.covered_told(stage, name, who, at_s, together))
        if told:
            give(watches, told)
        return taken

    cdef Told covered_told(self, str stage, bytes name, bytes who, double at_s,
                           int64_t together):
        """Return what is told when the disk or a slave has it."""
        cdef uint8_t room[NUMBERS_ROOM]
        cdef uint8_t* to
        cdef Py_ssize_t begin
        cdef int64_t latency_us = micros(at_s - self.at_s)
        cdef Told told = Told.__new__(Told)
        to = put_times(room, self._now_ms + latency_us // 1000, at_s)
        to = put_word(put_part(to, name), b'",', 2)
        begin = to - room
        to = put_decimal(put_word(to, b',"latencyUs":', 13), latency_us)
        to = put_decimal(put_word(to, b',"totalUs":', 11), latency_us)
        if together:
            to = put_decimal(put_word(to, b',"together":', 12), together)
        to = put_word(to, b"}", 1)
        told.stage = stage
        told.topic = self.topic
        told.group = None
        told.ending = joined(room, begin, to - room, b"", self._what, who)
        return told


cdef Put put_of(Send* send, _Place place, Known* known, int64_t queue_offset, int64_t offset,
                int64_t size, bytes store_host, bytes client, int64_t now_ms, double received_s,
                double validated_s, double appended_s, double dispatched_s):
    """Return a message that was put, with what is told of that."""
    cdef uint8_t room[NUMBERS_ROOM]
    cdef uint8_t* to = room
    cdef bytes what = what_of(known, queue_offset, offset, store_host)
    cdef Py_ssize_t begin
    cdef Put put = Put.__new__(Put)
    cdef Told told = Told.__new__(Told)
    to = put_decimal(put_word(to, b',"storeSize":', 13), size)
    if send.producer_group.size:
        to = put_text(put_word(to, b',"producerGroup":"', 18), send.producer_group)
        to = put_word(to, b'"', 1)
    if send.reconsume_times:
        to = put_decimal(put_word(to, b',"reconsumeTimes":', 18), send.reconsume_times)
    what = place.picks.where + what + PyBytes_FromStringAndSize(<char*>room, to - room)
    to = put_word(put_times(room, now_ms, dispatched_s), b'stored",', 8)
    begin = to - room
    to = put_decimal(put_word(to, b',"latencyUs":', 13), max(0, now_ms - send.born_timestamp) * 1000)
    to = put_word(to, b',"steps":{"received":0,"validated":', 35)
    to = put_decimal(to, micros(validated_s - received_s))
    to = put_decimal(put_word(to, b',"appended":', 12), micros(appended_s - received_s))
    to = put_decimal(put_word(to, b',"dispatched":', 14), micros(dispatched_s - received_s))
    to = put_word(to, b"}}", 2)
    told.stage = STORED
    told.topic = place.topic
    told.group = None
    told.ending = joined(room, begin, to - room, b"", what, client)
    put.told = told
    put.commit_log_offset = offset
    put.end = offset + size
    put.at_s = dispatched_s
    put.topic = place.topic
    put._what = what
    put._properties = PyBytes_FromStringAndSize(<char*>known.properties.at, known.properties.size)
    put._now_ms = now_ms
    return put
