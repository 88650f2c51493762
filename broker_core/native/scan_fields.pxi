"""Read the fields of sends, pulls and ends of transactions from a JSON header."""

cdef enum:
    INT32_LEAST = -INT32_MAX - 1


cdef inline uint8_t letter_of(Text name) noexcept nogil:
    """Return the short letter for a send field's long name, 0 for other names."""
    if is_word(name.at, name.size, FIELD_PRODUCER_GROUP):
        return PRODUCER_GROUP_LETTER
    if is_word(name.at, name.size, FIELD_TOPIC):
        return TOPIC_LETTER
    if is_word(name.at, name.size, FIELD_DEFAULT_TOPIC):
        return DEFAULT_TOPIC_LETTER
    if is_word(name.at, name.size, FIELD_DEFAULT_TOPIC_QUEUE_NUMS):
        return DEFAULT_TOPIC_QUEUE_NUMS_LETTER
    if is_word(name.at, name.size, FIELD_QUEUE_ID):
        return QUEUE_ID_LETTER
    if is_word(name.at, name.size, FIELD_SYS_FLAG):
        return SYS_FLAG_LETTER
    if is_word(name.at, name.size, FIELD_BORN_TIMESTAMP):
        return BORN_TIMESTAMP_LETTER
    if is_word(name.at, name.size, FIELD_FLAG):
        return FLAG_LETTER
    if is_word(name.at, name.size, FIELD_PROPERTIES):
        return PROPERTIES_LETTER
    if is_word(name.at, name.size, FIELD_RECONSUME_TIMES):
        return RECONSUME_TIMES_LETTER
    if is_word(name.at, name.size, FIELD_UNIT_MODE):
        return UNIT_MODE_LETTER
    if is_word(name.at, name.size, FIELD_MAX_RECONSUME_TIMES):
        return MAX_RECONSUME_TIMES_LETTER
    if is_word(name.at, name.size, FIELD_BATCH):
        return BATCH_LETTER
    if is_word(name.at, name.size, FIELD_BROKER_NAME):
        return BROKER_NAME_LETTER
    return 0


cdef inline void begin_send(Send* send, Bytes at) noexcept nogil:
    """Set the defaults of a send's fields."""
    # Empty but not NULL: a copy needs a valid address.
    send.properties.at = at
    send.properties.size = 0
    send.properties.is_escaped = False
    send.producer_group = send.properties
    send.properties_differ = False
    send.reconsume_times = 0
    send.is_batch = False


cdef inline bint is_int32(uint8_t letter) noexcept nogil:
    """Tell whether a send field is a 32-bit number."""
    return (
        letter == DEFAULT_TOPIC_QUEUE_NUMS_LETTER or letter == QUEUE_ID_LETTER
        or letter == SYS_FLAG_LETTER or letter == FLAG_LETTER
        or letter == RECONSUME_TIMES_LETTER or letter == MAX_RECONSUME_TIMES_LETTER
    )


cdef inline void set_int32(Send* send, uint8_t letter, int32_t number) noexcept nogil:
    if letter == QUEUE_ID_LETTER:
        send.queue_id = number
    elif letter == SYS_FLAG_LETTER:
        send.sys_flag = number
    elif letter == FLAG_LETTER:
        send.flag = number
    elif letter == RECONSUME_TIMES_LETTER:
        send.reconsume_times = number


cdef inline Bytes read_ext_fields(Bytes at, Bytes end, Send* send, bint is_long) noexcept nogil:
    """Read the ext fields of a send, each at most once; skip other names."""
    cdef uint32_t seen = 0, bit
    cdef uint8_t letter
    cdef int64_t number = 0
    cdef int64_t most64 = 999999999999999999
    cdef Text name, text
    cdef int count = 0
    begin_send(send, at)
    at = past_brace(at, end)
    if at == NULL:
        return NULL
    while True:
        # "x":
        if (
            not is_long and end - at >= 5 and at[0] == 34
            and SEND_LETTER_MIN <= at[1] <= SEND_LETTER_MAX and at[2] == 34 and at[3] == 58
        ):
            letter = at[1]
            at += 4
            if at < end and at[0] <= 32:
                at = past_blanks(at, end)
        else:
            at = read_text(at, end, &name)
            if at == NULL or name.is_escaped or count == FIELDS_MAX:
                return NULL
            at = past_colon(at, end)
            if at == NULL:
                return NULL
            count += 1
            if is_long:
                letter = letter_of(name)
            else:
                # Already read above unless followed by white space.
                letter = name.at[0] if name.size == 1 else 0
                if not SEND_LETTER_MIN <= letter <= SEND_LETTER_MAX:
                    letter = 0
        bit = <uint32_t>1 << (letter - SEND_LETTER_MIN) if letter else 0
        if seen & bit:
            return NULL
        seen |= bit
        if letter == TOPIC_LETTER:
            at = read_text(at, end, &send.topic)
            if at == NULL or send.topic.is_escaped:
                return NULL
        elif letter == PROPERTIES_LETTER:
            at = read_text(at, end, &send.properties)
            send.properties_differ = True
        elif letter == BORN_TIMESTAMP_LETTER:
            send.born_at = at + 1
            at = read_int_text(at, end, -most64, most64, &send.born_timestamp)
        elif is_int32(letter):
            if letter == QUEUE_ID_LETTER:
                send.queue_id_at = at + 1
            at = read_int_text(at, end, INT32_LEAST, INT32_MAX, &number)
            set_int32(send, letter, <int32_t>number)
        else:
            at = read_text(at, end, &text)
            if letter == PRODUCER_GROUP_LETTER:
                send.producer_group = text
            if at != NULL and letter == BATCH_LETTER:
                if text.is_escaped:
                    return NULL
                send.is_batch = is_text(text, b"true", 4)
        if at == NULL or at >= end:
            return NULL
        at = past_comma(at, end)
        if at == NULL:
            return NULL
        if at[0] == 125:
            break
    # b, e, f, g and h are required.
    if seen & 0xF2 != 0xF2:
        return NULL
    return at + 1


cdef inline uint32_t pull_field(Text name) noexcept nogil:
    """Return the bit of a pull field by name, 0 for other names."""
    if name.size == 5:
        return TOPIC_FIELD if is_word(name.at, name.size, FIELD_TOPIC) else 0
    if name.size == 7:
        if is_word(name.at, name.size, FIELD_QUEUE_ID):
            return QUEUE_ID_FIELD
        return SYS_FLAG_FIELD if is_word(name.at, name.size, FIELD_SYS_FLAG) else 0
    if name.size == 10:
        if is_text(name, b"maxMsgNums", 10):
            return MAX_MSG_NUMS_FIELD
        return SUB_VERSION_FIELD if is_text(name, b"subVersion", 10) else 0
    if name.size == 11:
        return QUEUE_OFFSET_FIELD if is_text(name, b"queueOffset", 11) else 0
    if name.size == 12:
        if is_text(name, b"commitOffset", 12):
            return COMMIT_OFFSET_FIELD
        return SUBSCRIPTION_FIELD if is_text(name, b"subscription", 12) else 0
    if name.size == 13:
        return GROUP_FIELD if is_text(name, b"consumerGroup", 13) else 0
    if name.size == 14:
        return EXPRESSION_TYPE_FIELD if is_text(name, b"expressionType", 14) else 0
    if name.size == 20:
        return SUSPEND_FIELD if is_text(name, b"suspendTimeoutMillis", 20) else 0
    return 0


cdef inline int64_t least_of(uint32_t field) noexcept nogil:
    if field & SHORT_FIELDS:
        return INT32_LEAST
    return 0 if field == SUSPEND_FIELD else -999999999999999999


cdef inline int64_t most_of(uint32_t field) noexcept nogil:
    return INT32_MAX if field & SHORT_FIELDS else 999999999999999999


cdef inline void set_pull_field(Pull* pull, uint32_t field, Text text,
                                int64_t number) noexcept nogil:
    if field == GROUP_FIELD:
        pull.group = text
    elif field == TOPIC_FIELD:
        pull.topic = text
    elif field == QUEUE_ID_FIELD:
        pull.queue_id = <int32_t>number
        pull.queue_id_at = text.at
    elif field == QUEUE_OFFSET_FIELD:
        pull.queue_offset = number
        pull.queue_offset_at = text.at
    elif field == MAX_MSG_NUMS_FIELD:
        pull.max_msg_nums = <int32_t>number
    elif field == SYS_FLAG_FIELD:
        pull.sys_flag = <int32_t>number
    elif field == COMMIT_OFFSET_FIELD:
        pull.commit_offset = number
        pull.commit_offset_at = text.at
    elif field == SUSPEND_FIELD:
        pull.suspend_timeout_ms = number
    elif field == SUBSCRIPTION_FIELD:
        pull.subscription = text
    elif field == SUB_VERSION_FIELD:
        pull.sub_version = number
    elif field == EXPRESSION_TYPE_FIELD:
        pull.expression_type = text


cdef inline void begin_pull(Pull* pull, Bytes at) noexcept nogil:
    """Set the defaults of a pull's fields."""
    # Empty but not NULL.
    pull.subscription.at = at
    pull.subscription.size = 0
    pull.subscription.is_escaped = False
    pull.expression_type = pull.subscription
    pull.commit_offset_at = NULL
    pull.commit_offset = pull.suspend_timeout_ms = pull.sub_version = 0


cdef inline Bytes read_pull_fields(Bytes at, Bytes end, Pull* pull) noexcept nogil:
    """Read the ext fields of a pull, each at most once; skip other names."""
    cdef uint32_t seen = 0, field
    cdef int64_t number = 0
    cdef Text key, text
    cdef int count = 0
    begin_pull(pull, at)
    text = pull.subscription
    at = past_brace(at, end)
    if at == NULL:
        return NULL
    while True:
        at = read_text(at, end, &key)
        if at == NULL or key.is_escaped or count == FIELDS_MAX:
            return NULL
        at = past_colon(at, end)
        if at == NULL:
            return NULL
        count += 1
        field = pull_field(key)
        if field & NUMBER_FIELDS:
            text.at = at + 1
            at = read_int_text(at, end, least_of(field), most_of(field), &number)
        else:
            at = read_text(at, end, &text)
        if at == NULL or at >= end or seen & field:
            return NULL
        set_pull_field(pull, field, text, number)
        seen |= field
        at = past_comma(at, end)
        if at == NULL:
            return NULL
        if at[0] == 125:
            break
    return NULL if seen & NEEDED_FIELDS != NEEDED_FIELDS else at + 1


cdef inline uint32_t end_field(Text name) noexcept nogil:
    """Return the bit of an end field by name, 0 for other names."""
    if is_word(name.at, name.size, FIELD_PRODUCER_GROUP):
        return END_GROUP_FIELD
    if is_text(name, b"tranStateTableOffset", 20):
        return END_QUEUE_OFFSET_FIELD
    if is_text(name, b"commitLogOffset", 15):
        return END_OFFSET_FIELD
    return END_OUTCOME_FIELD if is_text(name, b"commitOrRollback", 16) else 0


cdef inline int64_t most_of_end(uint32_t field) noexcept nogil:
    return INT32_MAX if field == END_OUTCOME_FIELD else 999999999999999999


cdef inline void set_end_field(End* ending, uint32_t field, Text text,
                               int64_t number) noexcept nogil:
    if field == END_GROUP_FIELD:
        ending.group = text
    elif field == END_QUEUE_OFFSET_FIELD:
        ending.queue_offset = number
    elif field == END_OFFSET_FIELD:
        ending.commit_log_offset = number
    elif field == END_OUTCOME_FIELD:
        ending.outcome = <int32_t>number


cdef inline Bytes read_end_fields(Bytes at, Bytes end, End* ending) noexcept nogil:
    """Read the ext fields of an end, each at most once; skip other names."""
    cdef uint32_t seen = 0, field
    cdef int64_t number = 0
    cdef Text key, text
    cdef int count = 0
    text.at = at
    text.size = 0
    text.is_escaped = False
    at = past_brace(at, end)
    if at == NULL:
        return NULL
    while True:
        at = read_text(at, end, &key)
        if at == NULL or key.is_escaped or count == FIELDS_MAX:
            return NULL
        at = past_colon(at, end)
        if at == NULL:
            return NULL
        count += 1
        field = end_field(key)
        if field > END_GROUP_FIELD:
            at = read_int_text(at, end, 0, most_of_end(field), &number)
        else:
            at = read_text(at, end, &text)
        if at == NULL or at >= end or seen & field:
            return NULL
        if field == END_GROUP_FIELD and text.is_escaped:
            return NULL
        set_end_field(ending, field, text, number)
        seen |= field
        at = past_comma(at, end)
        if at == NULL:
            return NULL
        if at[0] == 125:
            break
    return NULL if seen != END_FIELDS else at + 1
