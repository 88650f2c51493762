"""Read the properties of messages, and the messages of a batch."""

cdef inline Py_ssize_t unescape(Text text, uint8_t* out) noexcept nogil:
    """Write the decoded UTF-8 of a string, which is never longer; return -1 if it holds a zero
    byte.
    """
    cdef Bytes at = text.at
    cdef Bytes end = text.at + text.size
    cdef uint8_t* to = out
    cdef uint8_t c
    cdef int code
    cdef Py_ssize_t plain
    if not text.is_escaped:
        memcpy(out, at, text.size)
        return text.size
    while True:
        plain = copy_to_slash(to, at, end)
        to += plain
        at += plain
        if at == end:
            return to - out
        c = at[0]
        if c != 92:
            to[0] = c
            to += 1
            at += 1
            continue
        c = at[1]
        if c == 117:
            code = hex_code(at + 2)
            at += 6
            if code == 0:
                return -1
            if code < 0x80:
                to[0] = <uint8_t>code
                to += 1
            elif code < 0x800:
                to[0] = <uint8_t>(0xC0 | code >> 6)
                to[1] = <uint8_t>(0x80 | code & 0x3F)
                to += 2
            elif 0xD800 <= code <= 0xDFFF:
                # `read_text` has verified that it is half of a pair.
                code = paired_code(at, end, code)
                at += 6
                to[0] = <uint8_t>(0xF0 | code >> 18)
                to[1] = <uint8_t>(0x80 | code >> 12 & 0x3F)
                to[2] = <uint8_t>(0x80 | code >> 6 & 0x3F)
                to[3] = <uint8_t>(0x80 | code & 0x3F)
                to += 4
            else:
                to[0] = <uint8_t>(0xE0 | code >> 12)
                to[1] = <uint8_t>(0x80 | code >> 6 & 0x3F)
                to[2] = <uint8_t>(0x80 | code & 0x3F)
                to += 3
            continue
        at += 2
        if c == 98:
            c = 8
        elif c == 102:
            c = 12
        elif c == 110:
            c = 10
        elif c == 114:
            c = 13
        elif c == 116:
            c = 9
        to[0] = c
        to += 1


cdef inline bint read_properties(Text text, uint8_t* out, Special* special,
                                 Properties* found) noexcept nogil:
    """Write the properties as stored, without the cluster pair; return whether they are plain.

    Matches `decode_client_properties`, `without` and the send processor: the WAIT pair is removed
    and a separator ends the rest. Pairs without exactly one separator are left to them, as they
    reject them.
    """
    cdef Py_ssize_t size = unescape(text, out)
    cdef Bytes at = out
    cdef Bytes end, to, middle
    cdef Bytes wait_at = NULL
    cdef Bytes wait_end = NULL
    cdef Py_ssize_t name_size, value_size
    cdef int i
    found.tags.size = found.keys.size = found.uniq_key.size = 0
    found.has_wait = found.is_unawaited = False
    if size < 0:
        return False
    if size and out[size - 1] != PROPERTY_SEPARATOR:
        out[size] = PROPERTY_SEPARATOR
        size += 1
    end = out + size
    while at < end:
        # Always found: the last byte is a separator.
        middle = next_separator(out, at, end)
        if middle == at and at[0] == PROPERTY_SEPARATOR:
            # An empty pair.
            at += 1
            continue
        if middle == at or middle[0] != NAME_VALUE_SEPARATOR:
            return False
        to = next_separator(out, middle + 1, end)
        if to[0] != PROPERTY_SEPARATOR:
            return False
        name_size = middle - at
        value_size = to - middle - 1
        for i in range(special.count):
            if name_size == special.size[i] and memcmp(at, special.at[i], name_size) == 0:
                return False
        if is_word(at, name_size, PROPERTY_TAGS):
            if value_size:
                found.tags.at = middle + 1
                found.tags.size = value_size
        elif is_word(at, name_size, PROPERTY_KEYS):
            if value_size:
                found.keys.at = middle + 1
                found.keys.size = value_size
        elif is_word(at, name_size, PROPERTY_WAIT_STORE_MSG_OK):
            if value_size == 0 or found.has_wait:
                return False
            found.has_wait = True
            found.is_unawaited = value_size == 5 and memcmp(middle + 1, b"false", 5) == 0
            wait_at = at
            wait_end = to + 1
        elif is_word(at, name_size, PROPERTY_UNIQ_KEY) and value_size:
            found.uniq_key.at = middle + 1
            found.uniq_key.size = value_size
        at = to + 1
    if found.has_wait:
        cut(out, wait_at, wait_end, end, found)
        size -= wait_end - wait_at
    found.size = size
    return True


cdef inline bint read_common(Text text, uint8_t* out, Special* special,
                             Properties* found) noexcept nogil:
    """Write the properties shared by all messages of a batch; return whether they are plain.

    They are stored as the twin's `decode` and `encode` produce them, so only properties that these
    leave unchanged are plain: every pair complete, no duplicate names.
    """
    cdef Py_ssize_t size = unescape(text, out)
    cdef Bytes names[COMMON_MAX]
    cdef Py_ssize_t sizes[COMMON_MAX]
    cdef Bytes at = out
    cdef Bytes end, to, middle
    cdef Py_ssize_t name_size
    cdef Text value
    cdef int i, count = 0
    found.tags.size = found.keys.size = found.uniq_key.size = found.size = 0
    found.has_wait = found.is_unawaited = False
    if size < 0:
        return False
    if size and out[size - 1] == PROPERTY_SEPARATOR:
        size -= 1
    end = out + size
    while at < end:
        middle = next_separator(out, at, end)
        if middle == at or middle == end or middle[0] != NAME_VALUE_SEPARATOR:
            return False
        if count == COMMON_MAX:
            return False
        to = next_separator(out, middle + 1, end)
        if to == middle + 1 or (to != end and to[0] != PROPERTY_SEPARATOR):
            return False
        name_size = middle - at
        for i in range(special.count):
            if name_size == special.size[i] and memcmp(at, special.at[i], name_size) == 0:
                return False
        for i in range(count):
            if name_size == sizes[i] and memcmp(at, names[i], name_size) == 0:
                return False
        names[count] = at
        sizes[count] = name_size
        count += 1
        value.at = middle + 1
        value.size = to - value.at
        if is_word(at, name_size, PROPERTY_WAIT_STORE_MSG_OK):
            found.is_unawaited = is_text(value, b"false", 5)
        else:
            note_pair(at, name_size, value, &found.tags, &found.keys, &found.uniq_key)
        if to + 1 == end:
            # An empty pair.
            return False
        at = to + 1
    found.size = size
    return True


cdef inline bint note_prepared(Bytes at, Py_ssize_t name_size, Text value,
                               Special* special, Prepared* found) noexcept nogil:
    """Keep the needed values of a half message's pair; return whether the pair is plain."""
    cdef int i
    if is_word(at, name_size, PROPERTY_TRANSACTION_PREPARED):
        found.is_prepared = is_text(value, b"true", 4)
        return found.is_prepared
    for i in range(special.count):
        if name_size == special.size[i] and memcmp(at, special.at[i], name_size) == 0:
            return False
    if is_word(at, name_size, PROPERTY_REAL_TOPIC):
        return False
    if is_word(at, name_size, PROPERTY_REAL_QUEUE_ID):
        return False
    if is_word(at, name_size, PROPERTY_WAIT_STORE_MSG_OK):
        found.properties.has_wait = True
        found.properties.is_unawaited = is_text(value, b"false", 5)
        if value.size > WAIT_MAX:
            return False
        memcpy(found.wait, value.at, value.size)
        found.wait_size = value.size
        found.wait_at = at
        found.wait_end = value.at + value.size + 1
    elif is_word(at, name_size, PROPERTY_PRODUCER_GROUP):
        found.group = value
    elif is_word(at, name_size, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS):
        found.immunity = value
    else:
        note_pair(
            at, name_size, value, &found.properties.tags, &found.properties.keys,
            &found.properties.uniq_key
        )
    return True


cdef inline bint read_prepared(Text text, uint8_t* out, Special* special,
                               Prepared* found) noexcept nogil:
    """Write a half message's properties, without real topic and queue; return whether they are
    plain.

    They are stored as the twin's `decode` and `encode` produce them, so only properties that these
    leave unchanged are plain. WAIT moves behind the real topic and queue. A separator ends them.
    """
    cdef Py_ssize_t size = unescape(text, out)
    cdef Bytes names[COMMON_MAX]
    cdef Py_ssize_t sizes[COMMON_MAX]
    cdef Bytes at = out
    cdef Bytes end, to, middle
    cdef Py_ssize_t name_size
    cdef Text value
    cdef int i, count = 0
    found.properties.tags.size = found.properties.keys.size = found.properties.uniq_key.size = 0
    found.properties.has_wait = found.properties.is_unawaited = found.is_prepared = False
    found.group.size = found.immunity.size = found.wait_size = 0
    value.is_escaped = False
    if size <= 0:
        return False
    if out[size - 1] != PROPERTY_SEPARATOR:
        out[size] = PROPERTY_SEPARATOR
        size += 1
    end = out + size
    while at < end:
        # Always found: the last byte is a separator.
        middle = next_separator(out, at, end)
        if middle == at or middle[0] != NAME_VALUE_SEPARATOR or count == COMMON_MAX:
            return False
        to = next_separator(out, middle + 1, end)
        if to == middle + 1 or to[0] != PROPERTY_SEPARATOR:
            return False
        name_size = middle - at
        for i in range(count):
            if name_size == sizes[i] and memcmp(at, names[i], name_size) == 0:
                return False
        names[count] = at
        sizes[count] = name_size
        count += 1
        value.at = middle + 1
        value.size = to - value.at
        if not note_prepared(at, name_size, value, special, found):
            return False
        at = to + 1
    if found.properties.has_wait:
        cut(out, found.wait_at, found.wait_end, end, &found.properties)
        if found.group.size and found.group.at > found.wait_at:
            found.group.at -= found.wait_end - found.wait_at
        if found.immunity.size and found.immunity.at > found.wait_at:
            found.immunity.at -= found.wait_end - found.wait_at
        size -= found.wait_end - found.wait_at
    found.properties.size = size
    return found.is_prepared


cdef inline bint read_half(Bytes at, Py_ssize_t size, Half* found) noexcept nogil:
    """Find the half message's properties that a commit needs; return whether all are plain.

    The committed message stores them as the twin's `decode` and `encode` produce them, so only
    properties that these leave unchanged are plain.
    """
    cdef Bytes names[COMMON_MAX]
    cdef Py_ssize_t sizes[COMMON_MAX]
    cdef Bytes end = at + size
    cdef Bytes to, middle
    cdef Py_ssize_t name_size
    cdef Text value
    cdef int i, count = 0
    found.tags.size = found.keys.size = found.uniq_key.size = 0
    found.group.size = found.real_topic.size = found.real_queue_id.size = 0
    value.is_escaped = False
    if size == 0 or end[-1] == PROPERTY_SEPARATOR or not is_sound(at, size):
        return False
    while at < end:
        to = <Bytes>memchr(at, PROPERTY_SEPARATOR, end - at)
        if to == NULL:
            to = end
        middle = <Bytes>memchr(at, NAME_VALUE_SEPARATOR, to - at)
        if middle == NULL or middle == at or middle + 1 == to or count == COMMON_MAX:
            return False
        name_size = middle - at
        for i in range(count):
            if name_size == sizes[i] and memcmp(at, names[i], name_size) == 0:
                return False
        names[count] = at
        sizes[count] = name_size
        count += 1
        value.at = middle + 1
        value.size = to - value.at
        if is_word(at, name_size, PROPERTY_PRODUCER_GROUP):
            found.group = value
        elif is_word(at, name_size, PROPERTY_REAL_TOPIC):
            found.real_topic = value
        elif is_word(at, name_size, PROPERTY_REAL_QUEUE_ID):
            found.real_queue_id = value
        else:
            note_pair(at, name_size, value, &found.tags, &found.keys, &found.uniq_key)
        at = to + 1
    return True


cdef inline void note_pair(Bytes name, Py_ssize_t size, Text value, Text* tags, Text* keys,
                           Text* uniq_key) noexcept nogil:
    """Keep the value of a pair that the ConsumeQueue or the index needs."""
    if is_word(name, size, PROPERTY_TAGS):
        tags[0] = value
    elif is_word(name, size, PROPERTY_KEYS):
        keys[0] = value
    elif is_word(name, size, PROPERTY_UNIQ_KEY):
        uniq_key[0] = value


cdef inline Bytes read_item(Bytes at, Bytes end, Item* item) noexcept nogil:
    """Read a message of a batch; return the position after it, NULL if its sizes don't add up."""
    cdef int64_t total, size
    if end - at < BATCH_MESSAGE_BYTES_MIN:
        return NULL
    total = <int32_t>big32(at)
    item.flag = <int32_t>big32(at + BATCH_FLAG_POSITION)
    size = <int32_t>big32(at + BATCH_BODY_SIZE_POSITION)
    if size < 0 or size > end - at - BATCH_MESSAGE_BYTES_MIN:
        return NULL
    item.body.at = at + BATCH_HEAD_SIZE
    item.body.size = size
    at = item.body.at + size
    size = at[0] << 8 | at[1]
    item.properties.at = at + 2
    item.properties.size = size
    # Sizes of 32 KiB and more are negative numbers.
    if size > PROPERTIES_BYTES_MAX or total != BATCH_MESSAGE_BYTES_MIN + item.body.size + size:
        return NULL
    if size > end - item.properties.at:
        return NULL
    return item.properties.at + size


cdef inline bint read_item_properties(Item* item) noexcept nogil:
    """Find the indexed values of a message in a batch; return whether its properties can be stored.
    """
    cdef Bytes at = item.properties.at
    cdef Bytes end = at + item.properties.size
    cdef Bytes to, middle
    cdef Text value
    item.tags.size = item.keys.size = item.uniq_key.size = 0
    if not is_sound(at, item.properties.size):
        return False
    while at < end:
        middle = next_separator(item.properties.at, at, end)
        if middle == at and at[0] == PROPERTY_SEPARATOR:
            # An empty pair.
            at += 1
            continue
        if middle == at or middle == end or middle[0] != NAME_VALUE_SEPARATOR:
            return False
        to = next_separator(item.properties.at, middle + 1, end)
        if to != end and to[0] != PROPERTY_SEPARATOR:
            return False
        if middle + 1 < to:
            value.at = middle + 1
            value.size = to - value.at
            note_pair(at, middle - at, value, &item.tags, &item.keys, &item.uniq_key)
        at = to + 1
    return True


cdef inline void cut(uint8_t* out, Bytes begin, Bytes to, Bytes end,
                     Properties* found) noexcept nogil:
    """Remove a pair and shift the values found behind it."""
    cdef Py_ssize_t size = to - begin
    cdef uint8_t* target = out + (begin - out)
    cdef Py_ssize_t i
    for i in range(end - to):
        target[i] = to[i]
    if found.tags.size and found.tags.at > begin:
        found.tags.at -= size
    if found.keys.size and found.keys.at > begin:
        found.keys.at -= size
    if found.uniq_key.size and found.uniq_key.at > begin:
        found.uniq_key.at -= size


cdef inline int32_t java_hash(Text text) noexcept nogil:
    """Return Java's String.hashCode of valid UTF-8."""
    return <int32_t>java_hash_from(text, 0)


cdef inline uint32_t java_hash_from(Text text, uint32_t value) noexcept nogil:
    """Return the hash of a text appended to another whose hash is given."""
    cdef Bytes at = text.at
    cdef Bytes end = text.at + text.size
    cdef uint32_t code
    while end - at >= 4 and (at[0] | at[1] | at[2] | at[3]) < 0x80:
        # Four characters per step shorten the dependency chain.
        value = value * 923521 + (at[0] * 29791 + at[1] * 961 + at[2] * 31 + at[3])
        at += 4
    while at < end:
        if at[0] < 0x80:
            value = value * 31 + at[0]
            at += 1
        elif at[0] < 0xE0:
            value = value * 31 + ((at[0] & 0x1F) << 6 | at[1] & 0x3F)
            at += 2
        elif at[0] < 0xF0:
            value = value * 31 + ((at[0] & 0x0F) << 12 | (at[1] & 0x3F) << 6 | at[2] & 0x3F)
            at += 3
        else:
            code = (<uint32_t>(at[0] & 7) << 18 | (at[1] & 0x3F) << 12 | (at[2] & 0x3F) << 6
                    | at[3] & 0x3F) - 0x10000
            value = value * 31 + (0xD800 | code >> 10)
            value = value * 31 + (0xDC00 | code & 0x3FF)
            at += 4
    return <int32_t>value


cdef inline Py_ssize_t characters(Text text) noexcept nogil:
    """Return the number of Unicode characters in valid UTF-8."""
    cdef Py_ssize_t i, count = 0
    for i in range(text.size):
        if text.at[i] & 0xC0 != 0x80:
            count += 1
    return count
