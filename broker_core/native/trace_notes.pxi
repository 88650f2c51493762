"""Notes: events of a turn, kept without objects until watchers receive them."""

cdef struct Note:
    # Something that happened to a sampled message or to a group's offset.
    Kind kind
    # Owned references: Picks for a put, else a _Reading; the client as JSON; and the watches to
    # notify.
    PyObject* of
    PyObject* who
    PyObject* watches
    # The texts are in the notes' text buffer.
    MessageFields known
    Text producer_group
    # For an offset change: the old and the new offset.
    int64_t queue_offset, offset
    int64_t size, now_ms, latency, reconsumed
    double at_s
    int64_t steps[3]


@cython.final
cdef class Notes:
    """The twin of `Notes` in broker_core/trace/tracer.py.

    A turn only writes notes, a hundred or so adjacent bytes each; many notes are turned into events
    in one go. For 1 message in 100 neither the code for this nor the memory it touches would be
    cached, and each event would take three times as long.
    """

    cdef object _tracer, _deliveries, _order, _append, _popleft
    cdef object _followed, _unflushed, _append_unflushed
    cdef dict _stored_at, _slaves
    # In the form used in message IDs.
    cdef bytes _store_host
    cdef Note* _notes
    cdef uint8_t* _texts
    cdef Py_ssize_t _texts_size
    cdef int _count
    cdef bint _is_emitting

    def __cinit__(self):
        self._notes = <Note*>PyMem_Malloc(NOTES_MAX * sizeof(Note))
        self._texts = <uint8_t*>PyMem_Malloc(NOTED_BYTES)
        if self._notes == NULL or self._texts == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._notes != NULL:
            self._forget()
        PyMem_Free(self._notes)
        PyMem_Free(self._texts)

    def __init__(self, tracer, bytes store_host not None):
        followed = tracer.watched_messages
        self._tracer = tracer
        self._deliveries = exactly(DeliveriesType, tracer.deliveries)
        self._order = tracer.deliveries.order
        self._append = self._order.append
        self._popleft = self._order.popleft
        self._followed = followed
        self._stored_at = followed.stored_at
        self._slaves = followed.slaves
        self._unflushed = followed.unflushed
        self._append_unflushed = self._unflushed.append
        self._store_host = store_host.hex().upper().encode()

    cdef Note* begin(self, Kind kind, of, bytes who, tuple watches,
                     Py_ssize_t text_size) except NULL:
        """Return a new note with room for its texts, and wake the watches it is for."""
        cdef Note* note
        if self._count == NOTES_MAX or self._texts_size + text_size > NOTED_BYTES:
            self.emit()
        if text_size > NOTED_BYTES:
            raise ValueError("texts are longer than there is room for")
        for watch in watches:
            if slot(exactly(WatchType, watch), WATCH_IS_UP_TO_DATE) is True:
                self._wake(watch)
        note = &self._notes[self._count]
        Py_INCREF(of)
        Py_INCREF(who)
        Py_INCREF(watches)
        note.kind = kind
        note.of = <PyObject*>of
        note.who = <PyObject*>who
        note.watches = <PyObject*>watches
        self._count += 1
        return note

    cdef int _wake(self, watch) except -1:
        try:
            watch.wake()
        except Exception as error:
            # The noted action is done and its answer is built.
            self._tracer.notes_failed(1, error)
        return 0

    cdef void know(self, Note* note, MessageFields* known) noexcept:
        """Keep a message's fields; there is room for its properties."""
        cdef Bytes before = known.properties.at
        cdef Py_ssize_t shift
        note.known = known[0]
        note.known.properties.at = self._keep(known.properties)
        shift = note.known.properties.at - before
        note.known.uniq_key.at += shift
        note.known.tags.at += shift
        note.known.keys.at += shift
        note.known.traceparent.at += shift

    cdef Bytes _keep(self, Text text) noexcept:
        cdef Bytes kept = self._texts + self._texts_size
        memcpy(self._texts + self._texts_size, text.at, text.size)
        self._texts_size += text.size
        return kept

    cpdef emit(self):
        """See `Notes.emit`; failures are logged."""
        cdef int i, lost = 0
        cdef tuple watches = None
        cdef list events = []
        cdef object failure = None
        if self._is_emitting or not self._count:
            return
        self._is_emitting = True
        try:
            for i in range(self._count):
                if <PyObject*>watches != self._notes[i].watches:
                    if events:
                        give(watches, events)
                        events = []
                    watches = <tuple>self._notes[i].watches
                try:
                    self._emit(&self._notes[i], events)
                except Exception as error:
                    failure = error
                    lost += 1
            if events:
                give(watches, events)
        finally:
            self._forget()
            self._is_emitting = False
        if failure is not None:
            self._tracer.notes_failed(lost, failure)

    cdef int _emit(self, Note* note, list events) except -1:
        if note.kind == OF_PUT:
            return self._emit_put(note, events)
        if note.kind == OF_DELIVERY:
            return self._emit_delivery(note, events)
        return self._emit_acknowledgement(note, events)

    cdef void _forget(self) noexcept:
        cdef int i
        for i in range(self._count):
            if self._notes[i].kind != OF_PUT:
                clear_notes(<_Reading>self._notes[i].of)
            Py_CLEAR(self._notes[i].of)
            Py_CLEAR(self._notes[i].who)
            Py_CLEAR(self._notes[i].watches)
        self._count = 0
        self._texts_size = 0

    cdef int _emit_put(self, Note* note, list events) except -1:
        cdef Put put = put_of(note, self._store_host)
        if <tuple>note.watches:
            events.append(put)
        if (
            self._slaves
            or len(self._stored_at) >= STORED_MAX
            or len(self._unflushed) >= FOLLOWED_MAX
        ):
            self._followed.stored(put)
            return 0
        self._stored_at[put.commit_log_offset] = put.at_s
        self._append_unflushed(put)
        return 0

    cdef int _emit_delivery(self, Note* note, list events) except -1:
        cdef uint8_t room[WHAT_MAX]
        cdef _Reading reading = <_Reading>note.of
        cdef EncodedDelivery handed = EncodedDelivery.__new__(EncodedDelivery)
        cdef uint8_t* to = put_what(
            room, &note.known, note.queue_offset, note.offset, self._store_host
        )
        stored = self._stored_at.get(note.offset)
        handed.commit_log_offset = note.offset
        handed.body_size = note.known.body_size
        handed._stored_s = -1.0 if stored is None else <double>stored
        handed._store_host = self._store_host
        handed._what_size = to - room
        handed._what = message_json(room, to, note.known.properties)
        handed._kind = OF_DELIVERY
        handed.stage = DELIVERED
        handed.topic = reading.topic
        handed.group = reading.group
        handed._where = reading.where
        handed._who = <bytes>note.who
        handed.at_s = note.at_s
        handed._now_ms = note.now_ms
        if stored is not None:
            handed._latency = handed._total = micros(note.at_s - handed._stored_s)
        else:
            handed._latency = note.latency
            handed._total = -1
        handed._numbers[0] = note.size
        handed._numbers[1] = note.reconsumed
        self._remember(reading, note.queue_offset, handed)
        if <tuple>note.watches:
            events.append(handed)
        return 0

    cdef int _emit_acknowledgement(self, Note* note, list events) except -1:
        cdef _Reading reading = <_Reading>note.of
        cdef dict waiting = self.waiting(reading)
        cdef list offsets = []
        cdef EncodedDelivery handed
        cdef EncodedEvent event
        for number, noted in waiting.items():
            if note.queue_offset <= <int64_t>number < note.offset:
                offsets.append(number)
        if len(offsets) > 1:
            offsets.sort()
        for number in offsets:
            handed = waiting.pop(number)
            if not <tuple>note.watches:
                continue
            event = later_event(
                handed, OF_ACKNOWLEDGEMENT, ACKNOWLEDGED, note.now_ms, note.at_s
            )
            event.group = reading.group
            event._who = <bytes>note.who
            if handed._stored_s >= 0:
                event._total = micros(note.at_s - handed._stored_s)
            events.append(event)
        self._forget_acknowledged()
        return 0

    cdef dict waiting(self, _Reading reading):
        """Return a reader's unacknowledged deliveries, without those still in notes."""
        queues = slot(self._deliveries, DELIVERIES_QUEUES)
        if reading.waiting_in is not queues:
            reading.waiting = self._deliveries.waiting(reading.queue)
            # It is replaced if queues without deliveries were removed.
            reading.waiting_in = slot(self._deliveries, DELIVERIES_QUEUES)
        return reading.waiting

    cdef int _remember(self, _Reading reading, int64_t queue_offset,
                       EncodedDelivery handed) except -1:
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

    cdef int _forget_acknowledged(self) except -1:
        """Drop deliveries acknowledged before the oldest pending one, as `Deliveries.take` does."""
        while self._order:
            before, number = <tuple>self._order[0]
            if number in <dict>before:
                break
            self._popleft()
        return 0


cdef inline void clear_notes(_Reading reading) noexcept:
    reading.noted_first = 0
    reading.noted_last = -1


cdef Notes notes_of(tracer, bytes store_host):
    """Return the Notes shared by a broker's turns."""
    if type(tracer.notes) is not Notes:
        tracer.notes = Notes(tracer, store_host)
    return <Notes>tracer.notes
