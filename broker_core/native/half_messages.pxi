"""Half messages: sends held back until their transaction is decided.

The twin is `processors/send.py` with `sending/detours.py` and `transaction/half.py`.
"""

cdef enum:
    # The name size that marks the half-message topic, as no send names it.
    NAMELESS = -1


cdef Place* half_place(SendTurn turn, Send* send) except? NULL:
    """Return the queue of half messages, NULL when the send's queue isn't plain."""
    cdef Place* place
    cdef Topic* topic
    cdef int i
    name = turn._names.of(send.topic)
    if not 0 <= send.queue_id < <int64_t>turn._plain_queues[name]:
        return NULL
    if turn._unwritten and name in turn._unwritten:
        return NULL
    for i in range(turn._open):
        place = &turn._places[i]
        if place.topic.name_size == NAMELESS:
            return place
    cdef dict queues = turn._queues_of.get(turn._half_topic)
    if queues is None or turn._open == PLACES_MAX or turn._topic_count == PLACES_MAX:
        return NULL
    topic = turn._begin_topic(turn._half_topic, queues)
    topic.name_size = NAMELESS
    place = &turn._places[turn._open]
    if not load_place(place, queues.get(0), topic):
        return NULL
    place.queue_id = 0
    turn._open += 1
    return place


cdef inline uint8_t* put_real_place(uint8_t* to, Text topic, const uint8_t* queue_id,
                                    Py_ssize_t queue_id_size) noexcept:
    """Write the properties that name a half message's topic and queue."""
    memcpy(to, PAIR_REAL_TOPIC, PAIR_REAL_TOPIC_SIZE)
    to += PAIR_REAL_TOPIC_SIZE
    memcpy(to, topic.at, topic.size)
    to += topic.size
    memcpy(to, PAIR_REAL_QUEUE_ID, PAIR_REAL_QUEUE_ID_SIZE)
    to += PAIR_REAL_QUEUE_ID_SIZE
    memcpy(to, queue_id, queue_id_size)
    return to + queue_id_size


cdef bint put_half(SendTurn turn, Send* send, Prepared* found, Bytes body,
                   int64_t body_size) except -1:
    """Put a half message and write its answer if that is plain; return whether it is."""
    cdef Place* place
    cdef Properties* properties = &found.properties
    cdef uint8_t digits[DECIMAL_MAX]
    cdef Py_ssize_t digits_size = put_decimal(digits, send.queue_id) - digits
    cdef int64_t properties_size, size, offset, code, keys_size
    cdef uint8_t* to
    cdef bint is_indexed
    if turn._trace.tracer.watching:
        turn._why = WATCHED
        return False
    place = half_place(turn, send)
    if place == NULL:
        turn._why = QUEUE
        return False
    properties_size = properties.size + PyBytes_GET_SIZE(turn._cluster) + PAIR_REAL_TOPIC_SIZE
    properties_size += send.topic.size + PAIR_REAL_QUEUE_ID_SIZE + digits_size
    if properties.has_wait:
        properties_size += PAIR_WAIT_STORE_MSG_OK_SIZE + found.wait_size
    size = turn._overhead(place) + body_size + properties_size
    if (
        turn._position < 0
        or place.position >= place.limit
        or place.position + UNIT_SIZE > place.units.len
        or properties_size > PROPERTIES_BYTES_MAX
        or body_size > turn._body_max
    ):
        return False
    keys_size = characters(properties.keys) if properties.keys.size else 0
    is_indexed = turn._index is not None and (properties.uniq_key.size or keys_size)
    if turn._waits and turn._from + turn._position + size >= turn._wait_limit:
        turn._why = ACKNOWLEDGEMENT
        return False
    if turn._position + size > turn._limit and (
        turn._requests or not turn._make_room(place, size)
    ):
        return False
    if is_indexed and turn._room <= keys_size and not turn._make_index_room(
        place, keys_size + (1 if properties.uniq_key.size else 0)
    ):
        return False
    if turn._now < 0:
        turn._begin_time()
    offset = turn._from + turn._position
    entry = turn._entry(place, properties, offset) if is_indexed else None
    half = (
        place.next_offset,
        offset,
        text_of(found.group) if found.group.size else "",
        text_of(properties.uniq_key) if properties.uniq_key.size else "",
        text_of(send.topic),
        send.queue_id,
        send.born_timestamp,
        crc32_of(body, body_size) if body_size else 0,
        body_size,
        text_of(found.immunity) if found.immunity.size else None,
    )

    to = turn._begin_record(place, body, body_size, properties_size)
    memcpy(to, turn._scratch, properties.size)
    to = put_part(to + properties.size, turn._cluster)
    to = put_real_place(to, send.topic, digits, digits_size)
    if properties.has_wait:
        memcpy(to, PAIR_WAIT_STORE_MSG_OK, PAIR_WAIT_STORE_MSG_OK_SIZE)
        memcpy(to + PAIR_WAIT_STORE_MSG_OK_SIZE, found.wait, found.wait_size)
    turn._end_record(send, send.flag, place, size, offset, body, body_size)

    code = java_hash(properties.tags) if properties.tags.size else 0
    put_unit(<uint8_t*>place.units.buf + place.position, offset, <int32_t>size, code)
    if entry is not None:
        (<list>turn._waiting).append(entry)
        turn._room -= 1 + keys_size
    turn._halves.append(half)
    turn._answer(send, place, offset)
    place.position += UNIT_SIZE
    place.next_offset += 1
    turn._note_put(place, 1, size)
    return True
