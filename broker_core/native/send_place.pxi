"""Find the topic and queue of a send, and load and unload their state."""

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


cdef inline int slot_of(Send* send) noexcept:
    """Return the hash slot of a send's place."""
    cdef int last = send.topic.at[send.topic.size - 1] if send.topic.size > 0 else 0
    return (send.queue_id * 31 + last * 7 + <int>send.topic.size) & (SLOTS - 1)


cdef inline bint is_named(Topic* topic, Text name) noexcept:
    """Tell whether a send names this topic."""
    return topic.name_size == name.size and memcmp(topic.name, name.at, name.size) == 0


cdef class SendPlaces(SendState):
    """Opens the queues that sends of a turn go to."""

    @cython.final
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

    @cython.final
    cdef int _load_log(self) except -1:
        state = self._state
        self._from = number_slot(state, STATE_FROM)
        self._position = number_slot(state, STATE_POSITION)
        self._limit = number_slot(state, STATE_LIMIT)
        PyObject_GetBuffer(slot(state, STATE_BUFFER), &self._log, PyBUF_WRITABLE)
        if self._limit > self._log.len:
            self._limit = self._log.len
        return 0

    @cython.final
    cdef bint _make_room(self, Place* place, int64_t size) except -1:
        """Raise the log's limit in its file before a turn's first put; return whether it fits."""
        if not self._puts.make_plain_room(<object>place.queue, size):
            return False
        PyBuffer_Release(&self._log)
        self._load_log()
        return self._position >= 0 and self._position + size <= self._limit

    @cython.final
    cdef bint _make_index_room(self, Place* place, int64_t entries) except -1:
        """Have pending index entries written; return whether this many more fit now."""
        index = self._index
        index.room = self._room
        is_made = self._puts.make_index_room(<object>place.queue, entries)
        self._room = index.room
        self._waiting = index.waiting
        return is_made

    @cython.final
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

    @cython.final
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

    @cython.final
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

    @cython.final
    cdef Topic* _begin_topic(self, str name, dict queues) noexcept:
        """Add a topic to the turn's topics; the caller ensures room."""
        cdef Topic* topic = &self._topics[self._topic_count]
        begin_topic(topic, name, queues)
        self._topic_count += 1
        return topic

    @cython.final
    cdef void _forget_places(self) noexcept:
        """Release the queues and topics of the turn."""
        cdef int i
        for i in range(self._open):
            Py_CLEAR(self._places[i].queue)
            Py_CLEAR(self._places[i].picks)
        for i in range(self._topic_count):
            forget_topic(&self._topics[i])
        self._open = self._topic_count = 0

    @cython.final
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

    @cython.final
    cdef inline void _note_put(self, Place* place, int64_t messages, int64_t size) noexcept:
        """Note messages just put to a place."""
        cdef Topic* topic = place.topic
        topic.calls += 1
        topic.count += messages
        topic.size += size
        place.is_put = True
        place.end = self._from + self._position
