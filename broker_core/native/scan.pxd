"""Read the JSON or binary header and the properties of a send or pull without Python objects.

Only input written the way the Java, Go and Trebuchet clients write it is accepted; the caller
leaves the rest to the Python twin. So everything here is stricter than the twin's decoders and
agrees with them on accepted input. Lengths come from the wire: every function is given the end and
reads no byte past it.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

ctypedef const uint8_t* Bytes

cdef extern from "texts.h" nogil:
    Bytes past_plain(Bytes at, Bytes end)
    size_t copy_to_slash(uint8_t* to, Bytes at, Bytes end)
    Bytes next_separator(Bytes begin, Bytes at, Bytes end)
    int hex_code(Bytes at)

cdef enum:
    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    END_TRANSACTION = 37
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    LITE_PULL_MESSAGE = 361
    ONEWAY = 2
    NAME_VALUE = 1
    BETWEEN = 2
    PROPERTIES_MAX = 32767
    SPECIAL_MAX = 16
    COMMON_MAX = 32
    WAIT_MAX = 8
    FIELDS_MAX = 100
    ITEM_HEAD = 20
    ITEM_MIN = 22
    # Offsets in a binary header, and the minimum sizes of a header and an entry.
    OPAQUE_AT = 5
    FLAG_AT = 9
    REMARK_AT = 13
    BINARY_MIN = 21
    ENTRY_MIN = 6
    NAME_MAX = 32767
    SIZE_OF_SIZE = 4

# Fields of a pull, one bit each.
cdef enum:
    GROUP_FIELD = 1
    TOPIC_FIELD = 2
    QUEUE_ID_FIELD = 4
    QUEUE_OFFSET_FIELD = 8
    MAX_MSG_NUMS_FIELD = 16
    SYS_FLAG_FIELD = 32
    COMMIT_OFFSET_FIELD = 64
    SUSPEND_FIELD = 128
    SUBSCRIPTION_FIELD = 256
    SUB_VERSION_FIELD = 512
    EXPRESSION_TYPE_FIELD = 1024
    # The required fields, the 32-bit fields and all numeric fields.
    NEEDED_FIELDS = 63
    SHORT_FIELDS = 52
    NUMBER_FIELDS = 764


cdef struct Text:
    Bytes at
    Py_ssize_t size
    # Contains backslash escapes; surrogates only in pairs.
    bint is_escaped


cdef struct Head:
    int32_t code
    int32_t opaque
    int32_t flag
    # Where it is in a JSON header, NULL if absent; the same for those below.
    Bytes opaque_at


cdef struct Pull:
    int32_t code
    int32_t opaque
    bint is_binary
    Text group
    Text topic
    Text subscription
    Text expression_type
    int32_t queue_id
    int32_t max_msg_nums
    int32_t sys_flag
    int64_t queue_offset
    int64_t commit_offset
    int64_t suspend_timeout_ms
    int64_t sub_version
    Bytes opaque_at
    Bytes queue_id_at
    Bytes queue_offset_at
    Bytes commit_offset_at


cdef struct Send:
    int32_t opaque
    Text topic
    Text producer_group
    Text properties
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp
    int32_t code
    bint is_batch
    bint is_oneway
    bint is_binary
    Bytes opaque_at
    Bytes queue_id_at
    Bytes born_at
    # Whether the properties field is present, even if empty.
    bint properties_differ


cdef struct End:
    # Ends a transaction.
    Text group
    int64_t queue_offset
    int64_t commit_log_offset
    int32_t outcome


# Fields of an end, one bit each.
cdef enum:
    END_GROUP_FIELD = 1
    END_QUEUE_OFFSET_FIELD = 2
    END_OFFSET_FIELD = 4
    END_OUTCOME_FIELD = 8
    END_FIELDS = 15


cdef struct Half:
    # From a half message's properties, which are all complete and have no duplicates.
    Text tags
    Text keys
    Text uniq_key
    Text group
    Text real_topic
    Text real_queue_id


cdef struct Special:
    Bytes at[SPECIAL_MAX]
    Py_ssize_t size[SPECIAL_MAX]
    int count


cdef struct Properties:
    # In the scratch buffer: the stored properties without the cluster pair.
    Py_ssize_t size
    Text tags
    Text keys
    Text uniq_key
    # Whether WAIT is present, and whether its value is "false".
    bint has_wait
    bint is_unawaited


cdef struct Prepared:
    # The stored properties of an incoming half message, without its real topic and queue.
    Properties properties
    Text group
    Text immunity
    Bytes wait_at
    Bytes wait_end
    bint is_prepared
    uint8_t wait[WAIT_MAX]
    Py_ssize_t wait_size


cdef struct Item:
    # A message of a batch.
    int32_t flag
    Text body
    Text properties
    Text tags
    Text keys
    Text uniq_key


cdef inline uint32_t big32(Bytes at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t big64(Bytes at) noexcept nogil:
    return <int64_t>((<uint64_t>big32(at) << 32) | big32(at + 4))


cdef inline bint is_text(Text text, const char* word, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, word, size) == 0


cdef inline int paired_code(Bytes at, Bytes end, int high) noexcept nogil:
    """Return the character of a surrogate and the escape after it, -1 if they aren't a pair."""
    cdef int low
    if not 0xD800 <= high <= 0xDBFF or end - at < 6 or at[0] != 92 or at[1] != 117:
        return -1
    low = hex_code(at + 2)
    if not 0xDC00 <= low <= 0xDFFF:
        return -1
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)


cdef inline int utf8_size(Bytes at, Bytes end) noexcept nogil:
    """Return the length of the character starting at a byte >= 0x80, 0 if it isn't valid UTF-8."""
    cdef uint8_t first = at[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef int size, i
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        size = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return 0
    if end - at < size or not low <= at[1] <= high:
        return 0
    for i in range(2, size):
        if not 0x80 <= at[i] <= 0xBF:
            return 0
    return size


cdef inline bint is_sound(Bytes at, Py_ssize_t size) noexcept nogil:
    """Tell whether bytes are UTF-8 without zero bytes."""
    cdef Bytes end = at + size
    cdef uint64_t word
    while end - at >= 8:
        memcpy(&word, at, 8)
        # A zero or a byte >= 0x80: continue byte by byte.
        if ((word - 0x0101010101010101ULL) | word) & 0x8080808080808080ULL:
            break
        at += 8
    while at < end:
        if at[0] == 0:
            return False
        if at[0] < 0x80:
            at += 1
        else:
            size = utf8_size(at, end)
            if size == 0:
                return False
            at += size
    return True


cdef inline Bytes past_blanks(Bytes at, Bytes end) noexcept nogil:
    """Skip the white space that JSON allows between tokens."""
    while at < end and (at[0] == 32 or at[0] == 10 or at[0] == 13 or at[0] == 9):
        at += 1
    return at


cdef inline Bytes past_colon(Bytes at, Bytes end) noexcept nogil:
    """Skip the colon after a name, with white space; return where the value begins, or NULL."""
    if at < end and at[0] != 58:
        at = past_blanks(at, end)
    if at >= end or at[0] != 58:
        return NULL
    at += 1
    if at < end and at[0] <= 32:
        at = past_blanks(at, end)
    return at


cdef inline Bytes past_comma(Bytes at, Bytes end) noexcept nogil:
    """Skip a comma, with white space; return where the next name begins.

    Returns the closing brace at the end of the object, or NULL if there is neither.
    """
    if at < end and at[0] <= 32:
        at = past_blanks(at, end)
    if at >= end:
        return NULL
    if at[0] == 125:
        return at
    if at[0] != 44:
        return NULL
    at += 1
    if at < end and at[0] <= 32:
        at = past_blanks(at, end)
    # A name must follow a comma.
    return at if at < end and at[0] == 34 else NULL


cdef inline Bytes past_brace(Bytes at, Bytes end) noexcept nogil:
    """Skip the opening brace of an object, with white space; return the next position, or NULL."""
    if at >= end or at[0] != 123:
        return NULL
    at += 1
    if at < end and at[0] <= 32:
        at = past_blanks(at, end)
    return at


cdef inline Bytes read_text(Bytes at, Bytes end, Text* text) noexcept nogil:
    """Read a JSON string; return the position after it, NULL if it isn't accepted."""
    cdef uint8_t c
    cdef int code
    if at >= end or at[0] != 34:
        return NULL
    at += 1
    text.at = at
    text.is_escaped = False
    while True:
        at = past_plain(at, end)
        if at == end:
            return NULL
        c = at[0]
        if c == 34:
            text.size = at - text.at
            return at + 1
        if c == 92:
            text.is_escaped = True
            if end - at < 2:
                return NULL
            c = at[1]
            if c == 117:  # u
                if end - at < 6:
                    return NULL
                code = hex_code(at + 2)
                if code < 0:
                    return NULL
                at += 6
                if 0xD800 <= code <= 0xDFFF:
                    if paired_code(at, end, code) < 0:
                        return NULL
                    at += 6
            elif c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 \
                    or c == 116:
                at += 2
            else:
                return NULL
        elif c < 32:
            return NULL
        elif c < 128:
            at += 1
        else:
            code = utf8_size(at, end)
            if code == 0:
                return NULL
            at += code


cdef inline Bytes read_int(Bytes at, Bytes end, int64_t least, int64_t most,
                           int64_t* value) noexcept nogil:
    """Read a JSON number; return the position after it, NULL if there isn't one."""
    cdef bint is_negative = False
    cdef int64_t found = 0
    cdef int digits = 0
    if at < end and at[0] == 45:
        is_negative = True
        at += 1
    if at >= end or not 48 <= at[0] <= 57:
        return NULL
    if at[0] == 48:
        at += 1
        if is_negative or (at < end and 48 <= at[0] <= 57):
            return NULL
    else:
        while at < end and 48 <= at[0] <= 57:
            # 18 digits stay below 2^63; times and 32-bit numbers never need more.
            digits += 1
            if digits > 18:
                return NULL
            found = found * 10 + (at[0] - 48)
            at += 1
    if is_negative:
        found = -found
    if not least <= found <= most:
        return NULL
    value[0] = found
    return at


cdef inline Bytes read_int_text(Bytes at, Bytes end, int64_t least, int64_t most,
                                int64_t* value) noexcept nogil:
    """Read a number in quotation marks."""
    if at >= end or at[0] != 34:
        return NULL
    at = read_int(at + 1, end, least, most, value)
    if at == NULL or at >= end or at[0] != 34:
        return NULL
    return at + 1


cdef enum:
    INT32_LEAST = -2147483648
    INT32_MOST = 2147483647


cdef inline uint8_t letter_of(Text name) noexcept nogil:
    """Return the short letter for a send field's long name, 0 for other names."""
    if is_text(name, b"producerGroup", 13):
        return 97
    if is_text(name, b"topic", 5):
        return 98
    if is_text(name, b"defaultTopic", 12):
        return 99
    if is_text(name, b"defaultTopicQueueNums", 21):
        return 100
    if is_text(name, b"queueId", 7):
        return 101
    if is_text(name, b"sysFlag", 7):
        return 102
    if is_text(name, b"bornTimestamp", 13):
        return 103
    if is_text(name, b"flag", 4):
        return 104
    if is_text(name, b"properties", 10):
        return 105
    if is_text(name, b"reconsumeTimes", 14):
        return 106
    if is_text(name, b"unitMode", 8):
        return 107
    if is_text(name, b"maxReconsumeTimes", 17):
        return 108
    if is_text(name, b"batch", 5):
        return 109
    if is_text(name, b"brokerName", 10):
        return 110
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
        letter == 100 or letter == 101 or letter == 102 or letter == 104 or letter == 106
        or letter == 108
    )


cdef inline void set_int32(Send* send, uint8_t letter, int32_t number) noexcept nogil:
    if letter == 101:
        send.queue_id = number
    elif letter == 102:
        send.sys_flag = number
    elif letter == 104:
        send.flag = number
    elif letter == 106:
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
            not is_long and end - at >= 5 and at[0] == 34 and 97 <= at[1] <= 110 and at[2] == 34
            and at[3] == 58
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
                letter = name.at[0] if name.size == 1 and 97 <= name.at[0] <= 110 else 0
        bit = <uint32_t>1 << (letter - 97) if letter else 0
        if seen & bit:
            return NULL
        seen |= bit
        if letter == 98:  # b: topic
            at = read_text(at, end, &send.topic)
            if at == NULL or send.topic.is_escaped:
                return NULL
        elif letter == 105:  # i: properties
            at = read_text(at, end, &send.properties)
            send.properties_differ = True
        elif letter == 103:  # g: bornTimestamp
            send.born_at = at + 1
            at = read_int_text(at, end, -most64, most64, &send.born_timestamp)
        elif is_int32(letter):
            if letter == 101:
                send.queue_id_at = at + 1
            at = read_int_text(at, end, INT32_LEAST, INT32_MOST, &number)
            set_int32(send, letter, <int32_t>number)
        else:
            at = read_text(at, end, &text)
            if letter == 97:  # a: producerGroup
                send.producer_group = text
            if at != NULL and letter == 109:
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
        return TOPIC_FIELD if is_text(name, b"topic", 5) else 0
    if name.size == 7:
        if is_text(name, b"queueId", 7):
            return QUEUE_ID_FIELD
        return SYS_FLAG_FIELD if is_text(name, b"sysFlag", 7) else 0
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
    return INT32_MOST if field & SHORT_FIELDS else 999999999999999999


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
    if is_text(name, b"producerGroup", 13):
        return END_GROUP_FIELD
    if is_text(name, b"tranStateTableOffset", 20):
        return END_QUEUE_OFFSET_FIELD
    if is_text(name, b"commitLogOffset", 15):
        return END_OFFSET_FIELD
    return END_OUTCOME_FIELD if is_text(name, b"commitOrRollback", 16) else 0


cdef inline int64_t most_of_end(uint32_t field) noexcept nogil:
    return INT32_MOST if field == END_OUTCOME_FIELD else 999999999999999999


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


cdef inline bint read_first_code(Bytes at, Bytes end, int* code) noexcept nogil:
    """Read the code of a JSON header that begins with it; return whether it does."""
    cdef int64_t number = 0
    cdef Text key
    at = past_brace(past_blanks(at, end), end)
    if at == NULL:
        return False
    at = read_text(at, end, &key)
    if at == NULL or key.is_escaped or not is_text(key, b"code", 4):
        return False
    at = past_colon(at, end)
    if at == NULL or read_int(at, end, INT32_LEAST, INT32_MOST, &number) == NULL:
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
        if is_text(key, b"code", 4):
            bit = 1
            at = read_int(at, end, INT32_LEAST, INT32_MOST, &number)
            head.code = <int32_t>number
        elif is_text(key, b"flag", 4):
            bit = 2
            at = read_int(at, end, 0, ONEWAY, &number)
            head.flag = <int32_t>number
        elif is_text(key, b"opaque", 6):
            bit = 4
            head.opaque_at = at
            at = read_int(at, end, INT32_LEAST, INT32_MOST, &number)
            head.opaque = <int32_t>number
        elif is_text(key, b"version", 7):
            bit = 8
            at = read_int(at, end, INT32_LEAST, INT32_MOST, &number)
        elif is_text(key, b"language", 8):
            bit = 16
            at = read_text(at, end, &text)
        elif is_text(key, b"serializeTypeCurrentRPC", 23):
            bit = 32
            at = read_text(at, end, &text)
        elif is_text(key, b"remark", 6):
            bit = 64
            at = read_text(at, end, &text)
        elif is_text(key, b"extFields", 9):
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
    head.opaque = <int32_t>big32(at + OPAQUE_AT)
    head.opaque_at = NULL
    head.flag = <int32_t>big32(at + FLAG_AT)
    # Negative sizes appear too large here.
    size = big32(at + REMARK_AT)
    at += REMARK_AT + SIZE_OF_SIZE
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
    if size == 0 or size > NAME_MAX or size > end - at - ENTRY_MIN:
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
            elif name.size == 1 and 97 <= name.at[0] <= 110:
                letter = name.at[0]
        if letter == 0:
            continue
        seen |= <uint32_t>1 << (letter - 97)
        if letter == 98:
            send.topic = value
        elif letter == 105:
            send.properties = value
        elif letter == 97:
            send.producer_group = value
        elif letter == 109:
            send.is_batch = is_text(value, b"true", 4)
        elif letter == 103:
            if not whole_int(value, -most64, most64, &send.born_timestamp):
                return False
        elif is_int32(letter):
            if not whole_int(value, INT32_LEAST, INT32_MOST, &number):
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
    return head.flag == ONEWAY and head.code == END_TRANSACTION


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
    send.is_oneway = head.flag == ONEWAY
    if head.flag != 0 and not send.is_oneway:
        return False
    if send.code == SEND_BATCH_MESSAGE:
        send.is_batch = True
        return True
    return send.code == SEND_MESSAGE_V2 or send.code == SEND_MESSAGE


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

    Matches `decode_client_properties`, `without` and the send processor: the WAIT pair is removed and a
    separator ends the rest. Pairs without exactly one separator are left to them, as they reject
    them.
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
    if size and out[size - 1] != BETWEEN:
        out[size] = BETWEEN
        size += 1
    end = out + size
    while at < end:
        # Always found: the last byte is a separator.
        middle = next_separator(out, at, end)
        if middle == at and at[0] == BETWEEN:
            # An empty pair.
            at += 1
            continue
        if middle == at or middle[0] != NAME_VALUE:
            return False
        to = next_separator(out, middle + 1, end)
        if to[0] != BETWEEN:
            return False
        name_size = middle - at
        value_size = to - middle - 1
        for i in range(special.count):
            if name_size == special.size[i] and memcmp(at, special.at[i], name_size) == 0:
                return False
        if name_size == 4:
            if memcmp(at, b"TAGS", 4) == 0:
                if value_size:
                    found.tags.at = middle + 1
                    found.tags.size = value_size
            elif memcmp(at, b"KEYS", 4) == 0:
                if value_size:
                    found.keys.at = middle + 1
                    found.keys.size = value_size
            elif memcmp(at, b"WAIT", 4) == 0:
                if value_size == 0 or found.has_wait:
                    return False
                found.has_wait = True
                found.is_unawaited = value_size == 5 and memcmp(middle + 1, b"false", 5) == 0
                wait_at = at
                wait_end = to + 1
        elif name_size == 8 and memcmp(at, b"UNIQ_KEY", 8) == 0 and value_size:
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
    if size and out[size - 1] == BETWEEN:
        size -= 1
    end = out + size
    while at < end:
        middle = next_separator(out, at, end)
        if middle == at or middle == end or middle[0] != NAME_VALUE or count == COMMON_MAX:
            return False
        to = next_separator(out, middle + 1, end)
        if to == middle + 1 or (to != end and to[0] != BETWEEN):
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
        if name_size == 4 and memcmp(at, b"WAIT", 4) == 0:
            found.is_unawaited = is_text(value, b"false", 5)
        else:
            note_pair(at, name_size, value, &found.tags, &found.keys, &found.uniq_key)
        if to + 1 == end:
            # An empty pair.
            return False
        at = to + 1
    found.size = size
    return True


cdef inline bint is_name(Bytes at, Py_ssize_t size, const char* name,
                         Py_ssize_t name_size) noexcept nogil:
    return size == name_size and memcmp(at, name, size) == 0


cdef inline bint note_prepared(Bytes at, Py_ssize_t name_size, Text value,
                               Special* special, Prepared* found) noexcept nogil:
    """Keep the needed values of a half message's pair; return whether the pair is plain."""
    cdef int i
    if is_name(at, name_size, b"TRAN_MSG", 8):
        found.is_prepared = is_text(value, b"true", 4)
        return found.is_prepared
    for i in range(special.count):
        if name_size == special.size[i] and memcmp(at, special.at[i], name_size) == 0:
            return False
    if is_name(at, name_size, b"REAL_TOPIC", 10) or is_name(at, name_size, b"REAL_QID", 8):
        return False
    if is_name(at, name_size, b"WAIT", 4):
        found.properties.has_wait = True
        found.properties.is_unawaited = is_text(value, b"false", 5)
        if value.size > WAIT_MAX:
            return False
        memcpy(found.wait, value.at, value.size)
        found.wait_size = value.size
        found.wait_at = at
        found.wait_end = value.at + value.size + 1
    elif is_name(at, name_size, b"PGROUP", 6):
        found.group = value
    elif is_name(at, name_size, b"CHECK_IMMUNITY_TIME_IN_SECONDS", 30):
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
    if out[size - 1] != BETWEEN:
        out[size] = BETWEEN
        size += 1
    end = out + size
    while at < end:
        # Always found: the last byte is a separator.
        middle = next_separator(out, at, end)
        if middle == at or middle[0] != NAME_VALUE or count == COMMON_MAX:
            return False
        to = next_separator(out, middle + 1, end)
        if to == middle + 1 or to[0] != BETWEEN:
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
    if size == 0 or end[-1] == BETWEEN or not is_sound(at, size):
        return False
    while at < end:
        to = <Bytes>memchr(at, BETWEEN, end - at)
        if to == NULL:
            to = end
        middle = <Bytes>memchr(at, NAME_VALUE, to - at)
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
        if name_size == 6 and memcmp(at, b"PGROUP", 6) == 0:
            found.group = value
        elif name_size == 10 and memcmp(at, b"REAL_TOPIC", 10) == 0:
            found.real_topic = value
        elif name_size == 8 and memcmp(at, b"REAL_QID", 8) == 0:
            found.real_queue_id = value
        else:
            note_pair(at, name_size, value, &found.tags, &found.keys, &found.uniq_key)
        at = to + 1
    return True


cdef inline void note_pair(Bytes name, Py_ssize_t size, Text value, Text* tags, Text* keys,
                           Text* uniq_key) noexcept nogil:
    """Keep the value of a pair that the ConsumeQueue or the index needs."""
    if size == 4 and memcmp(name, b"TAGS", 4) == 0:
        tags[0] = value
    elif size == 4 and memcmp(name, b"KEYS", 4) == 0:
        keys[0] = value
    elif size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        uniq_key[0] = value


cdef inline Bytes read_item(Bytes at, Bytes end, Item* item) noexcept nogil:
    """Read a message of a batch; return the position after it, NULL if its sizes don't add up."""
    cdef int64_t total, size
    if end - at < ITEM_MIN:
        return NULL
    total = <int32_t>big32(at)
    item.flag = <int32_t>big32(at + 12)
    size = <int32_t>big32(at + 16)
    if size < 0 or size > end - at - ITEM_MIN:
        return NULL
    item.body.at = at + ITEM_HEAD
    item.body.size = size
    at = item.body.at + size
    size = at[0] << 8 | at[1]
    item.properties.at = at + 2
    item.properties.size = size
    # Sizes of 32 KiB and more are negative numbers.
    if size > PROPERTIES_MAX or total != ITEM_MIN + item.body.size + size:
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
        if middle == at and at[0] == BETWEEN:
            # An empty pair.
            at += 1
            continue
        if middle == at or middle == end or middle[0] != NAME_VALUE:
            return False
        to = next_separator(item.properties.at, middle + 1, end)
        if to != end and to[0] != BETWEEN:
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
