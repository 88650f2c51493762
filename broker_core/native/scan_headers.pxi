"""Read whole JSON and binary headers."""

cdef inline bint read_first_code(Bytes at, Bytes end, int* code) noexcept nogil:
    """Read the code of a JSON header that begins with it; return whether it does."""
    cdef int64_t number = 0
    cdef Text key
    at = past_brace(past_blanks(at, end), end)
    if at == NULL:
        return False
    at = read_text(at, end, &key)
    if at == NULL or key.is_escaped or not is_word(key.at, key.size, HEADER_CODE):
        return False
    at = past_colon(at, end)
    if at == NULL or read_int(at, end, INT32_LEAST, INT32_MAX, &number) == NULL:
        return False
    code[0] = <int>number
    return True


cdef inline bint read_header(Bytes at, Bytes end, Head* head, Send* send,
                             Pull* pull, End* ending) noexcept nogil:
    """Read a whole JSON request header with the fields of one kind of request."""
    cdef uint32_t seen = 0, bit
    cdef int64_t number = 0
    cdef Text key, text
    cdef bint is_long = False
    head.code = head.opaque = head.flag = 0
    head.opaque_at = NULL
    at = past_brace(past_blanks(at, end), end)
    if at == NULL:
        return False
    while True:
        at = read_text(at, end, &key)
        if at == NULL or key.is_escaped:
            return False
        at = past_colon(at, end)
        if at == NULL:
            return False
        if is_word(key.at, key.size, HEADER_CODE):
            bit = 1
            at = read_int(at, end, INT32_LEAST, INT32_MAX, &number)
            head.code = <int32_t>number
        elif is_word(key.at, key.size, HEADER_FLAG):
            bit = 2
            at = read_int(at, end, 0, ONEWAY_FLAG, &number)
            head.flag = <int32_t>number
        elif is_word(key.at, key.size, HEADER_OPAQUE):
            bit = 4
            head.opaque_at = at
            at = read_int(at, end, INT32_LEAST, INT32_MAX, &number)
            head.opaque = <int32_t>number
        elif is_word(key.at, key.size, HEADER_VERSION):
            bit = 8
            at = read_int(at, end, INT32_LEAST, INT32_MAX, &number)
        elif is_word(key.at, key.size, HEADER_LANGUAGE):
            bit = 16
            at = read_text(at, end, &text)
        elif is_text(key, b"serializeTypeCurrentRPC", 23):
            bit = 32
            at = read_text(at, end, &text)
        elif is_word(key.at, key.size, HEADER_REMARK):
            bit = 64
            at = read_text(at, end, &text)
        elif is_word(key.at, key.size, HEADER_EXT_FIELDS):
            bit = 128
            if send != NULL:
                # The code must come before the ext fields, or the header isn't plain.
                is_long = seen & 1 and head.code == SEND_MESSAGE
                at = read_ext_fields(at, end, send, is_long)
            elif pull != NULL:
                at = read_pull_fields(at, end, pull)
            else:
                at = read_end_fields(at, end, ending)
        else:
            return False
        if at == NULL or at >= end or seen & bit:
            return False
        seen |= bit
        at = past_comma(at, end)
        if at == NULL:
            return False
        if at[0] == 125:
            break
    # A missing flag or opaque is 0.
    return past_blanks(at + 1, end) == end and seen & 129 == 129 and is_long == (
        send != NULL and head.code == SEND_MESSAGE
    )


cdef inline Bytes read_binary_head(Bytes at, Bytes end, Head* head) noexcept nogil:
    """Read a binary header up to its entries; return them, NULL if they don't end at `end`."""
    cdef Py_ssize_t size
    if end - at < BINARY_MIN:
        return NULL
    head.code = <int16_t>(at[0] << 8 | at[1])
    head.opaque = <int32_t>big32(at + HEADER_OPAQUE_POSITION)
    head.opaque_at = NULL
    head.flag = <int32_t>big32(at + HEADER_FLAG_POSITION)
    # Negative sizes appear too large here.
    size = big32(at + HEADER_REMARK_POSITION)
    at += HEADER_REMARK_POSITION + SIZE_OF_SIZE
    if size > end - at - SIZE_OF_SIZE or not is_sound(at, size):
        return NULL
    at += size
    if <Py_ssize_t>big32(at) != end - at - SIZE_OF_SIZE:
        return NULL
    return at + SIZE_OF_SIZE


cdef inline Bytes read_entry(Bytes at, Bytes end, Text* name, Text* value) noexcept nogil:
    """Read an entry of a binary header; return the position after it, NULL if it isn't accepted."""
    cdef Py_ssize_t size
    if end - at < ENTRY_MIN:
        return NULL
    size = at[0] << 8 | at[1]
    if size == 0 or size > HEADER_KEY_BYTES_MAX or size > end - at - ENTRY_MIN:
        return NULL
    name.at = at + 2
    name.size = size
    at = name.at + size
    size = big32(at)
    at += SIZE_OF_SIZE
    if size > end - at:
        return NULL
    value.at = at
    value.size = size
    name.is_escaped = value.is_escaped = False
    if not is_sound(name.at, name.size) or not is_sound(at, size):
        return NULL
    return at + size


cdef inline bint whole_int(Text text, int64_t least, int64_t most, int64_t* value) noexcept nogil:
    """Read a text that is a single number; return whether it is."""
    cdef Bytes end = text.at + text.size
    return read_int(text.at, end, least, most, value) == end


cdef inline bint read_binary_pull(Bytes at, Bytes end, Head* head, Pull* pull) noexcept nogil:
    """Read a whole binary header with the fields of a pull; return whether it is one.

    An empty value counts as absent. If a name repeats, as in signed requests, the last value wins.
    """
    cdef uint32_t seen = 0, field
    cdef int64_t number = 0
    cdef Text name, value
    cdef int count = 0
    at = read_binary_head(at, end, head)
    if at == NULL:
        return False
    begin_pull(pull, at)
    while at < end:
        at = read_entry(at, end, &name, &value)
        if at == NULL or count == FIELDS_MAX:
            return False
        count += 1
        field = pull_field(name) if value.size else 0
        if field & NUMBER_FIELDS:
            if not whole_int(value, least_of(field), most_of(field), &number):
                return False
        set_pull_field(pull, field, value, number)
        seen |= field
    return seen & NEEDED_FIELDS == NEEDED_FIELDS


cdef inline bint read_binary_send(Bytes at, Bytes end, Head* head, Send* send) noexcept nogil:
    """Read a whole binary header with the fields of a send; return whether it is one.

    An empty value counts as absent. If a name repeats, as in signed requests, the last value wins.
    """
    cdef uint32_t seen = 0
    cdef uint8_t letter
    cdef int64_t number = 0
    cdef int64_t most64 = 999999999999999999
    cdef Text name, value
    cdef int count = 0
    at = read_binary_head(at, end, head)
    if at == NULL:
        return False
    begin_send(send, at)
    while at < end:
        at = read_entry(at, end, &name, &value)
        if at == NULL or count == FIELDS_MAX:
            return False
        count += 1
        letter = 0
        if value.size:
            if head.code == SEND_MESSAGE:
                letter = letter_of(name)
            elif name.size == 1 and SEND_LETTER_MIN <= name.at[0] <= SEND_LETTER_MAX:
                letter = name.at[0]
        if letter == 0:
            continue
        seen |= <uint32_t>1 << (letter - SEND_LETTER_MIN)
        if letter == TOPIC_LETTER:
            send.topic = value
        elif letter == PROPERTIES_LETTER:
            send.properties = value
        elif letter == PRODUCER_GROUP_LETTER:
            send.producer_group = value
        elif letter == BATCH_LETTER:
            send.is_batch = is_text(value, b"true", 4)
        elif letter == BORN_TIMESTAMP_LETTER:
            if not whole_int(value, -most64, most64, &send.born_timestamp):
                return False
        elif is_int32(letter):
            if not whole_int(value, INT32_LEAST, INT32_MAX, &number):
                return False
            set_int32(send, letter, <int32_t>number)
    # b, e, f, g and h are required.
    return seen & 0xF2 == 0xF2


cdef inline bint read_binary_end(Bytes at, Bytes end, Head* head, End* ending) noexcept nogil:
    """Read a whole binary header with the fields of an end; return whether it is one.

    An empty value counts as absent. If a name repeats, as in signed requests, the last value wins.
    """
    cdef uint32_t seen = 0, field
    cdef int64_t number = 0
    cdef Text name, value
    cdef int count = 0
    at = read_binary_head(at, end, head)
    if at == NULL:
        return False
    while at < end:
        at = read_entry(at, end, &name, &value)
        if at == NULL or count == FIELDS_MAX:
            return False
        count += 1
        field = end_field(name) if value.size else 0
        if field > END_GROUP_FIELD:
            if not whole_int(value, 0, most_of_end(field), &number):
                return False
        set_end_field(ending, field, value, number)
        seen |= field
    return seen == END_FIELDS


cdef inline bint read_end(Bytes at, Bytes end, bint is_binary, End* ending) noexcept nogil:
    """Read the whole header of a one-way end, as clients send it; return whether it is one."""
    cdef Head head
    if is_binary:
        if not read_binary_end(at, end, &head, ending):
            return False
    elif not read_header(at, end, &head, NULL, NULL, ending):
        return False
    return head.flag == ONEWAY_FLAG and head.code == END_TRANSACTION


cdef inline bint read_pull(Bytes at, Bytes end, bint is_binary, Pull* pull) noexcept nogil:
    """Read the whole header of a two-way pull; return whether it is one."""
    cdef Head head
    if is_binary:
        if not read_binary_pull(at, end, &head, pull):
            return False
    elif not read_header(at, end, &head, NULL, pull, NULL):
        return False
    pull.code = head.code
    pull.opaque = head.opaque
    pull.opaque_at = head.opaque_at
    pull.is_binary = is_binary
    return head.flag == 0 and (head.code == PULL_MESSAGE or head.code == LITE_PULL_MESSAGE)


cdef inline bint read_send(Bytes at, Bytes end, bint is_binary, Send* send) noexcept nogil:
    """Read the whole header of a send; return whether it is one."""
    cdef Head head
    if is_binary:
        if not read_binary_send(at, end, &head, send):
            return False
    elif not read_header(at, end, &head, send, NULL, NULL):
        return False
    send.code = head.code
    send.opaque = head.opaque
    send.opaque_at = head.opaque_at
    send.is_binary = is_binary
    send.is_oneway = head.flag == ONEWAY_FLAG
    if head.flag != 0 and not send.is_oneway:
        return False
    if send.code == SEND_BATCH_MESSAGE:
        send.is_batch = True
        return True
    return send.code == SEND_MESSAGE_V2 or send.code == SEND_MESSAGE
