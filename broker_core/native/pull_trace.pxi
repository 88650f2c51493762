"""PullTrace: note deliveries and acknowledgements of sampled messages."""

cdef class PullTrace:
    """Notes deliveries and acknowledgements of pulls. Event loop only."""

    cdef Notes notes
    cdef object _now_ms, _consumers
    # Wall time minus monotonic time in milliseconds, and the monotonic time at which it was
    # measured.
    cdef double _wall_ms, _wall_at_s

    def __init__(self, Notes notes not None, consumers, clock):
        self.notes = notes
        self._consumers = exactly(ConsumersType, consumers)
        self._now_ms = clock.now_ms
        self._wall_ms = self._wall_at_s = -1.0

    cdef int64_t _now(self, double at_s) except -1:
        """Return the wall time of a recent moment; the clock is read only now and then."""
        if not self._wall_at_s <= at_s < self._wall_at_s + WALL_SECONDS:
            self._wall_ms = <double>self._now_ms() - at_s * 1000
            self._wall_at_s = at_s
        # Floating point can fall just short of a whole millisecond.
        return <int64_t>(self._wall_ms + at_s * 1000 + 0.001)

    cdef bint waits(self, _Reading reading) except -1:
        """Tell whether a reader has unacknowledged deliveries."""
        return (
            reading.noted_first <= reading.noted_last
            or len(self.notes.waiting(reading)) > 0
        )

    cdef bint delivered(self, _Reading reading, connection, Bytes* records, int count,
                        int64_t sample, double at_s) except -1:
        """Note delivered records; return False if Python must report them."""
        cdef int i
        cdef MessageFields known
        cdef Note* note
        cdef Bytes record
        cdef int64_t now_ms = self._now(at_s)
        if not self._find_consumer(reading, connection):
            return False
        # Usually there is only one: the last record is still parsed.
        for i in range(count - 1, -1, -1):
            if not self._is_known(records[i], sample, &known):
                return False
        for i in range(count):
            record = records[i]
            if i:
                self._is_known(record, sample, &known)
            note = self.notes.begin(
                OF_DELIVERY, reading, reading.who, reading.of_deliveries, known.properties.size
            )
            self.notes.know(note, &known)
            note.queue_offset = big64(record + QUEUE_OFFSET_POSITION)
            note.offset = big64(record + COMMIT_LOG_OFFSET_POSITION)
            note.size = <int32_t>big32(record)
            note.reconsumed = <int32_t>big32(record + RECONSUME_TIMES_POSITION)
            note.latency = max(0, now_ms - stored_of(record)) * 1000
            note.now_ms = now_ms
            note.at_s = at_s
            if reading.noted_first > reading.noted_last:
                reading.noted_first = reading.noted_last = note.queue_offset
            reading.noted_first = min(reading.noted_first, note.queue_offset)
            reading.noted_last = max(reading.noted_last, note.queue_offset)
        return True

    cdef inline bint _is_known(self, Bytes record, int64_t sample, MessageFields* known) noexcept:
        return (
            read_known(record, <int32_t>big32(record), known)
            and crc32_of(known.uniq_key.at, known.uniq_key.size) % sample == 0
        )

    cdef bint acknowledged(self, _Reading reading, connection, int64_t first, int64_t end,
                           double at_s) except -1:
        """Note an offset change from `first` to `end`; return False if Python must report it."""
        cdef Note* note
        cdef int64_t now_ms
        cdef bint is_any = max(first, reading.noted_first) <= min(end - 1, reading.noted_last)
        for number, noted in self.notes.waiting(reading).items():
            if first <= <int64_t>number < end:
                if type(noted) is not EncodedDelivery:
                    return False
                is_any = True
        if not is_any:
            return True
        if not self._find_consumer(reading, connection):
            return False
        now_ms = self._now(at_s)
        note = self.notes.begin(
            OF_ACKNOWLEDGEMENT, reading, reading.who, reading.of_acknowledgements, 0
        )
        note.queue_offset = first
        note.offset = end
        note.now_ms = now_ms
        note.at_s = at_s
        if first <= reading.noted_first and reading.noted_last < end:
            clear_notes(reading)
        return True

    cdef bint _find_consumer(self, _Reading reading, connection) except -1:
        """Build the JSON of the reader and its client; return whether it fits in an event."""
        cdef str client = remote_address_of(connection)
        cdef object heartbeats = slot(self._consumers, CONSUMERS_HEARTBEATS)
        if reading.client is client and reading.heartbeats is heartbeats:
            return reading.has_room
        client_id = None
        group = (<dict>slot(self._consumers, CONSUMERS_GROUPS)).get(reading.group)
        if group is not None:
            member = (<dict>slot(exactly(GroupType, group), GROUP_MEMBERS)).get(connection)
            if member is not None:
                client_id = slot(exactly(MemberType, member), MEMBER_CLIENT_ID)
        if (
            reading.who is None
            or reading.client is not client
            or reading.client_id is not client_id
        ):
            who = {"group": reading.group, "client": client}
            if client_id is not None:
                who["client_id"] = client_id
            reading.client = client
            reading.client_id = client_id
            reading.who = b"," + encode_members(**who)
        if reading.where is None:
            reading.where = location_json(reading.topic, reading.queue_id)
        reading.heartbeats = heartbeats
        reading.has_room = (
            PyBytes_GET_SIZE(reading.where) + PyBytes_GET_SIZE(reading.who) <= AROUND_MAX
        )
        return reading.has_room
