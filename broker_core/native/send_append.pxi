"""Append messages and batches: record, unit, index entry and answer."""

cdef class SendAppends(SendRecords):
    """Puts the messages of sends."""

    @cython.final
    cdef bint _put(self, Send* send, Properties* properties, Bytes body,
                   int64_t body_size) except -1:
        """Put a message and write its answer if that is plain; return whether it is."""
        cdef Place* place = self._place_of(send)
        cdef int64_t properties_size, size, offset, code, keys_size
        cdef uint8_t* to
        cdef bint is_picked
        cdef double validated_s = 0, appended_s = 0
        if place == NULL:
            self._why = QUEUE
            return False
        if self._is_guarded and self._names_guard(self._scratch, properties.size):
            self._why = PROPERTY
            return False
        properties_size = properties.size + PyBytes_GET_SIZE(self._cluster)
        properties_size += PyBytes_GET_SIZE(self._ending)
        size = self._overhead(place) + body_size + properties_size
        if (
            self._position < 0
            or place.position >= place.limit
            or place.position + UNIT_SIZE > place.units.len
            or properties_size > PROPERTIES_BYTES_MAX
            or body_size > self._body_max
        ):
            return False
        keys_size = characters(properties.keys) if properties.keys.size else 0
        is_indexed = self._index is not None and (properties.uniq_key.size or keys_size)
        if self._waits and self._from + self._position + size >= self._wait_limit:
            self._why = ACKNOWLEDGEMENT
            return False
        if self._position + size > self._limit and (
            self._requests or not self._make_room(place, size)
        ):
            return False
        # Last, when nothing else can leave the send to Python.
        if is_indexed and self._room <= keys_size and not self._make_index_room(
            place, keys_size + (1 if properties.uniq_key.size else 0)
        ):
            return False
        if self._now < 0:
            self._begin_time()
        offset = self._from + self._position
        entry = self._entry(place, properties, offset) if is_indexed else None
        is_picked = place.sample != 0 and is_wanted(properties, place.sample)
        if place.picks != NULL:
            (<Picks>place.picks).note(place.next_offset, is_picked, properties.uniq_key.size > 0)
        if is_picked:
            validated_s = seconds_of(self._monotonic)

        to = self._begin_record(place, body, body_size, properties_size)
        memcpy(to, self._scratch, properties.size)
        put_part(put_part(to + properties.size, self._cluster), self._ending)
        self._end_record(send, send.flag, place, size, offset, body, body_size)
        if is_picked:
            appended_s = seconds_of(self._monotonic)

        code = java_hash(properties.tags) if properties.tags.size else 0
        put_unit(<uint8_t*>place.units.buf + place.position, offset, <int32_t>size, code)
        if entry is not None:
            (<list>self._waiting).append(entry)
            self._room -= 1 + keys_size
        self._answer(send, place, offset)
        place.position += UNIT_SIZE
        place.next_offset += 1
        self._note_put(place, 1, size)
        if is_picked:
            self._pick(
                send, place, offset, size, body_size, properties.size, validated_s, appended_s
            )
        return True

    @cython.final
    cdef int _pick(self, Send* send, Place* place, int64_t offset, int64_t size, int64_t body_size,
                   Py_ssize_t properties_size, double validated_s, double appended_s) except -1:
        """Note a message that watchers may want; `SendTrace.trace_plain_sends` reads the tuple."""
        cdef Py_ssize_t group_size
        cdef MessageFields known
        cdef Note* note
        cdef Text group = send.producer_group
        cdef double dispatched_s = seconds_of(self._monotonic)
        if (
            place.picks != NULL
            and (<Picks>place.picks).stored is not None
            and not group.is_escaped
            and group.size <= GROUP_LENGTH_MAX
            and is_bare(group)
            and read_known_fields(self._scratch, properties_size, &known)
            and not known.is_replayed
            and crc32_of(known.uniq_key.at, known.uniq_key.size) % place.sample == 0
        ):
            known.body_size = body_size
            note = self._notes.begin(
                OF_PUT,
                <Picks>place.picks,
                self._client,
                (<Picks>place.picks).stored,
                properties_size + group.size,
            )
            self._notes.know(note, &known)
            note.producer_group = group
            note.producer_group.at = self._notes._keep(group)
            note.queue_offset = place.next_offset - 1
            note.offset = offset
            note.size = size
            note.now_ms = self._now
            note.latency = max(0, self._now - send.born_timestamp) * 1000
            note.reconsumed = send.reconsume_times
            note.at_s = dispatched_s
            note.steps[0] = micros(validated_s - self._received_s)
            note.steps[1] = micros(appended_s - self._received_s)
            note.steps[2] = micros(dispatched_s - self._received_s)
            return 0
        properties = PyUnicode_DecodeUTF8(<const char*>self._scratch, properties_size, "replace")
        # The properties are stored, so the scratch buffer is free.
        group_size = max(0, unescape(send.producer_group, self._scratch))
        self._sampled_sends.append((
            <object>place.topic.text,
            place.queue_id,
            place.next_offset - 1,
            offset,
            size,
            body_size,
            properties,
            PyUnicode_DecodeUTF8(<const char*>self._scratch, group_size, NULL),
            send.born_timestamp,
            send.reconsume_times,
            validated_s,
            appended_s,
            dispatched_s,
        ))
        return 0

    @cython.final
    cdef bint _put_batch(self, Send* send, Properties* common, Bytes body, Bytes end) except -1:
        """Put a batch and write its answer if it is plain; return whether it is.

        The whole batch is checked before anything is written.
        """
        cdef Place* place = self._place_of(send)
        cdef int64_t size = 0, entries = 0, count = 0
        cdef Py_ssize_t text_size, answer_size
        cdef Bytes at = body
        cdef Item item
        if place == NULL:
            self._why = QUEUE
            return False
        self._why = BATCH
        if end - body > self._body_max or send.sys_flag & self._refused_flags:
            return False
        if place.sample:
            # A watcher may want it.
            return False
        if self._is_guarded and self._names_guard(self._scratch, common.size):
            return False
        while at < end:
            at = read_item(at, end, &item)
            if at == NULL or not read_item_properties(&item):
                return False
            if self._is_guarded and self._names_guard(item.properties.at, item.properties.size):
                return False
            text_size = self._batch_text_size(&item, common)
            if text_size > PROPERTIES_BYTES_MAX:
                return False
            size += self._overhead(place) + item.body.size + text_size
            entries += entries_of(
                common.keys if common.keys.size else item.keys,
                common.uniq_key.size or item.uniq_key.size,
            )
            count += 1
        if count > MESSAGES_MAX or (
            entries > KEYS_MAX and self._keys_of(common, body, end) > KEYS_MAX
        ):
            # Python reports this.
            return False
        self._why = ROOM
        answer_size = self._parts_size + NUMBERS_MAX
        answer_size += count * (1 + PyBytes_GET_SIZE(self._store_host_hex) + HEX_SIZE)
        if (
            not count
            or self._position < 0
            or place.position + (count - 1) * UNIT_SIZE >= place.limit
            or place.position + count * UNIT_SIZE > place.units.len
            or (self._waits and self._from + self._position + size >= self._wait_limit)
            or self._answered + answer_size > ANSWERS_MAX
        ):
            return False
        if self._position + size > self._limit and (
            self._requests or not self._make_room(place, size)
        ):
            return False
        if self._index is not None and self._room < entries and not self._make_index_room(
            place, entries
        ):
            return False
        if self._now < 0:
            self._begin_time()
        self._write_batch(send, common, place, body, end)
        if self._index is not None:
            self._room -= entries
        self._note_put(place, count, size)
        return True

    @cython.final
    cdef int64_t _keys_of(self, Properties* common, Bytes at, Bytes end) noexcept:
        """Return the number of keys in a batch, counted as in `read_batch`."""
        cdef int64_t keys = 0
        cdef Item item
        while at < end:
            at = read_item(at, end, &item)
            if at == NULL or not read_item_properties(&item):
                return keys
            keys += words_of(common.keys if common.keys.size else item.keys)
        return keys

    @cython.final
    cdef Py_ssize_t _batch_text_size(self, Item* item, Properties* common) noexcept:
        """Return the size of a message's properties: its own, the common ones and the broker's."""
        cdef Py_ssize_t size = item.properties.size
        if size and item.properties.at[size - 1] != PROPERTY_SEPARATOR:
            size += 1
        if common.size:
            size += common.size + 1
        return size + PyBytes_GET_SIZE(self._cluster) + PyBytes_GET_SIZE(self._ending)

    @cython.final
    cdef int _write_batch(self, Send* send, Properties* common, Place* place, Bytes at,
                          Bytes end) except -1:
        """Write the records, their units and the answer; there is room for all."""
        cdef Item item
        cdef int64_t size, text_size, offset, code, first = place.next_offset
        cdef uint8_t* to
        cdef uint8_t* answer = self._begin_answer(send)
        common_keys = text_of(common.keys) if common.keys.size else None
        common_uniq_key = text_of(common.uniq_key) if common.uniq_key.size else None
        while at < end:
            at = read_item(at, end, &item)
            read_item_properties(&item)
            offset = self._from + self._position
            entry = None
            if self._index is not None:
                keys = text_of(item.keys) if item.keys.size else None
                uniq_key = text_of(item.uniq_key) if item.uniq_key.size else None
                keys, uniq_key = common_keys or keys, common_uniq_key or uniq_key
                if keys is not None or uniq_key is not None:
                    entry = (<object>place.topic.seed, uniq_key, keys, offset, self._timestamp)

            text_size = self._batch_text_size(&item, common)
            size = self._overhead(place) + item.body.size + text_size
            to = self._begin_record(place, item.body.at, item.body.size, text_size)
            self._batch_text(to, &item, common)
            self._end_record(
                send, item.flag, place, size, offset, item.body.at, item.body.size
            )

            if common.tags.size:
                code = java_hash(common.tags)
            else:
                code = java_hash(item.tags) if item.tags.size else 0
            put_unit(<uint8_t*>place.units.buf + place.position, offset, <int32_t>size, code)
            if entry is not None:
                (<list>self._waiting).append(entry)
            if place.next_offset != first:
                answer[0] = 44
                answer = put_part(answer + 1, self._store_host_hex)
            answer = put_hex(answer, offset)
            place.position += UNIT_SIZE
            place.next_offset += 1
        self._end_answer(send, answer, first)
        return 0

    @cython.final
    cdef void _batch_text(self, uint8_t* to, Item* item, Properties* common) noexcept:
        """Write the properties of a message."""
        memcpy(to, item.properties.at, item.properties.size)
        to += item.properties.size
        if item.properties.size and to[-1] != PROPERTY_SEPARATOR:
            to[0] = PROPERTY_SEPARATOR
            to += 1
        if common.size:
            memcpy(to, self._scratch, common.size)
            to += common.size
            to[0] = PROPERTY_SEPARATOR
            to += 1
        put_part(put_part(to, self._cluster), self._ending)


cdef int64_t words_of(Text text) noexcept:
    """Return the number of blank-separated keys, including empty ones."""
    cdef int64_t words = 1
    cdef Bytes at = text.at
    cdef Bytes end = text.at + text.size
    if not text.size:
        return 0
    while True:
        at = <Bytes>memchr(at, 32, end - at)
        if at == NULL:
            return words
        words += 1
        at += 1


cdef inline int64_t entries_of(Text keys, bint has_uniq_key) noexcept:
    """Return the maximum number of index entries for a message."""
    if keys.size:
        return 1 + characters(keys)
    return 1 if has_uniq_key else 0


cdef inline bint is_wanted(Properties* properties, int64_t sample) noexcept:
    """Tell whether a message may be in a 1-in-`sample` sample; without a key its ID decides later.
    """
    if sample == 1 or properties.uniq_key.size == 0:
        return True
    return crc32_of(properties.uniq_key.at, properties.uniq_key.size) % sample == 0
