"""Reading a send's frame: its header's JSON and its properties, without a Python object.

What is not written as Java, Go and our client write it is not understood: the caller leaves it to
the Python twin. So everything here is stricter than the twin's decoders, and agrees with them on
what it takes. Lengths come from the wire: a function is given the end, and reads no byte behind it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

ctypedef const uint8_t* Bytes

cdef enum:
    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    LITE_PULL_MESSAGE = 361
    NAME_VALUE = 1
    BETWEEN = 2
    PROPERTIES_MAX = 32767
    SPECIAL_MAX = 16
    COMMON_MAX = 32
    FIELDS_MAX = 100
    ITEM_HEAD = 20
    ITEM_MIN = 22


cdef struct Text:
    Bytes at
    Py_ssize_t size
    # It holds \-escapes; surrogates only as pairs.
    bint is_escaped


cdef struct Head:
    int32_t code
    int32_t opaque


cdef struct Pull:
    int32_t code
    int32_t opaque
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


cdef struct Special:
    Bytes at[SPECIAL_MAX]
    Py_ssize_t size[SPECIAL_MAX]
    int count


cdef struct Properties:
    # In the scratch buffer: what is stored, but for the pair of the cluster.
    Py_ssize_t size
    Text tags
    Text keys
    Text uniq_key
    # Only whether it is there, and whether it says "false".
    bint has_wait
    bint is_unawaited


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


cdef inline int hex_digit(uint8_t c) noexcept nogil:
    if 48 <= c <= 57:
        return c - 48
    if 97 <= c <= 102:
        return c - 87
    if 65 <= c <= 70:
        return c - 55
    return -1


cdef inline int hex_code(Bytes at) noexcept nogil:
    """Return the number that four hexadecimal digits make, -1 for other characters."""
    cdef int i, digit, code = 0
    for i in range(4):
        digit = hex_digit(at[i])
        if digit < 0:
            return -1
        code = code << 4 | digit
    return code


cdef inline int paired_code(Bytes at, Bytes end, int high) noexcept nogil:
    """Return the character of a surrogate and the escape that follows it, -1 if that is no pair."""
    cdef int low
    if not 0xD800 <= high <= 0xDBFF or end - at < 6 or at[0] != 92 or at[1] != 117:
        return -1
    low = hex_code(at + 2)
    if not 0xDC00 <= low <= 0xDFFF:
        return -1
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)


cdef inline int utf8_size(Bytes at, Bytes end) noexcept nogil:
    """Return how long the character at a byte >= 0x80 is, 0 when it is no UTF-8."""
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


cdef inline Bytes read_text(Bytes at, Bytes end, Text* text) noexcept nogil:
    """Read a JSON string; return what follows it, NULL when it is not understood."""
    cdef uint8_t c
    cdef int code
    if at >= end or at[0] != 34:
        return NULL
    at += 1
    text.at = at
    text.is_escaped = False
    while at < end:
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
    return NULL


cdef inline Bytes read_int(Bytes at, Bytes end, int64_t least, int64_t most,
                           int64_t* value) noexcept nogil:
    """Read a number as JSON writes it; return what follows it, NULL when it is none."""
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
            # 18 digits stay below 2^63: no time and no 32-bit number needs more.
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
    """Read a number between quotation marks."""
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
    """Return the letter that stands for a long name of a send's field, 0 for other names."""
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


cdef inline Bytes read_ext_fields(Bytes at, Bytes end, Send* send, bint is_long) noexcept nogil:
    """Read the ext fields of a send, each at most once; among long names others are passed over."""
    cdef uint32_t seen = 0, bit
    cdef uint8_t letter
    cdef int64_t number = 0
    cdef int64_t most64 = 999999999999999999
    cdef Text name, text
    cdef int count = 0
    # Of nothing, but not nowhere: what is copied must have a place.
    send.properties.at = at
    send.properties.size = 0
    send.properties.is_escaped = False
    send.reconsume_times = 0
    send.producer_group = send.properties
    if at >= end or at[0] != 123:
        return NULL
    at += 1
    while True:
        if is_long:
            at = read_text(at, end, &name)
            if at == NULL or name.is_escaped or at >= end or at[0] != 58 or count == FIELDS_MAX:
                return NULL
            at += 1
            count += 1
            letter = letter_of(name)
        else:
            # "x":
            if end - at < 5 or at[0] != 34 or at[2] != 34 or at[3] != 58:
                return NULL
            letter = at[1]
            if not 97 <= letter <= 110:
                return NULL
            at += 4
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
        elif letter == 103:  # g: bornTimestamp
            at = read_int_text(at, end, -most64, most64, &send.born_timestamp)
        elif letter == 100 or letter == 101 or letter == 102 or letter == 104 or letter == 106 \
                or letter == 108:
            at = read_int_text(at, end, INT32_LEAST, INT32_MOST, &number)
            if letter == 101:
                send.queue_id = <int32_t>number
            elif letter == 102:
                send.sys_flag = <int32_t>number
            elif letter == 104:
                send.flag = <int32_t>number
            elif letter == 106:
                send.reconsume_times = <int32_t>number
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
        if at[0] == 44:
            at += 1
        elif at[0] == 125:
            break
        else:
            return NULL
    # b, e, f, g, h must be there.
    if seen & 0xF2 != 0xF2:
        return NULL
    return at + 1


cdef inline Bytes read_pull_fields(Bytes at, Bytes end, Pull* pull) noexcept nogil:
    """Read the ext fields of a pull, each at most once; others are passed over."""
    cdef uint32_t seen = 0, bit
    cdef int64_t number = 0
    cdef int64_t most64 = 999999999999999999
    cdef Text key, text
    cdef int count = 0
    # Of nothing, but not nowhere.
    text.at = at
    text.size = 0
    text.is_escaped = False
    pull.subscription = pull.expression_type = text
    pull.commit_offset = pull.suspend_timeout_ms = pull.sub_version = 0
    if at >= end or at[0] != 123:
        return NULL
    at += 1
    while True:
        at = read_text(at, end, &key)
        if at == NULL or key.is_escaped or at >= end or at[0] != 58 or count == FIELDS_MAX:
            return NULL
        at += 1
        count += 1
        if is_text(key, b"consumerGroup", 13):
            bit = 1
            at = read_text(at, end, &pull.group)
        elif is_text(key, b"topic", 5):
            bit = 2
            at = read_text(at, end, &pull.topic)
        elif is_text(key, b"queueId", 7):
            bit = 4
            at = read_int_text(at, end, INT32_LEAST, INT32_MOST, &number)
            pull.queue_id = <int32_t>number
        elif is_text(key, b"queueOffset", 11):
            bit = 8
            at = read_int_text(at, end, -most64, most64, &pull.queue_offset)
        elif is_text(key, b"maxMsgNums", 10):
            bit = 16
            at = read_int_text(at, end, INT32_LEAST, INT32_MOST, &number)
            pull.max_msg_nums = <int32_t>number
        elif is_text(key, b"sysFlag", 7):
            bit = 32
            at = read_int_text(at, end, INT32_LEAST, INT32_MOST, &number)
            pull.sys_flag = <int32_t>number
        elif is_text(key, b"commitOffset", 12):
            bit = 64
            at = read_int_text(at, end, -most64, most64, &pull.commit_offset)
        elif is_text(key, b"suspendTimeoutMillis", 20):
            bit = 128
            at = read_int_text(at, end, 0, most64, &pull.suspend_timeout_ms)
        elif is_text(key, b"subscription", 12):
            bit = 256
            at = read_text(at, end, &pull.subscription)
        elif is_text(key, b"subVersion", 10):
            bit = 512
            at = read_int_text(at, end, -most64, most64, &pull.sub_version)
        elif is_text(key, b"expressionType", 14):
            bit = 1024
            at = read_text(at, end, &pull.expression_type)
        else:
            bit = 0
            at = read_text(at, end, &text)
        if at == NULL or at >= end or seen & bit:
            return NULL
        seen |= bit
        if at[0] == 44:
            at += 1
        elif at[0] == 125:
            break
        else:
            return NULL
    # What has no default must be there.
    return NULL if seen & 63 != 63 else at + 1


cdef inline bint read_header(Bytes at, Bytes end, Head* head, Send* send,
                             Pull* pull) noexcept nogil:
    """Read a whole JSON header of a request that is answered, with the fields of one kind."""
    cdef uint32_t seen = 0, bit
    cdef int64_t number = 0
    cdef Text key, text
    cdef bint is_long = False
    head.code = head.opaque = 0
    if at >= end or at[0] != 123:
        return False
    at += 1
    while True:
        at = read_text(at, end, &key)
        if at == NULL or key.is_escaped or at >= end or at[0] != 58:
            return False
        at += 1
        if is_text(key, b"code", 4):
            bit = 1
            at = read_int(at, end, INT32_LEAST, INT32_MOST, &number)
            head.code = <int32_t>number
        elif is_text(key, b"flag", 4):
            bit = 2
            at = read_int(at, end, 0, 0, &number)
        elif is_text(key, b"opaque", 6):
            bit = 4
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
                # Its code stands before it, or it is not plain.
                is_long = seen & 1 and head.code == SEND_MESSAGE
                at = read_ext_fields(at, end, send, is_long)
            else:
                at = read_pull_fields(at, end, pull)
        else:
            return False
        if at == NULL or at >= end or seen & bit:
            return False
        seen |= bit
        if at[0] == 44:
            at += 1
        elif at[0] == 125:
            break
        else:
            return False
    # Without a flag it is 0, without an opaque as well.
    return at + 1 == end and seen & 129 == 129 and is_long == (
        send != NULL and head.code == SEND_MESSAGE
    )


cdef inline bint read_pull(Bytes at, Bytes end, Pull* pull) noexcept nogil:
    """Read a whole JSON header of a pull; tell if it is one."""
    cdef Head head
    if not read_header(at, end, &head, NULL, pull):
        return False
    pull.code = head.code
    pull.opaque = head.opaque
    return head.code == PULL_MESSAGE or head.code == LITE_PULL_MESSAGE


cdef inline bint read_send(Bytes at, Bytes end, Send* send) noexcept nogil:
    """Read a whole JSON header of a send; tell if it is one."""
    cdef Head head
    send.is_batch = False
    if not read_header(at, end, &head, send, NULL):
        return False
    send.code = head.code
    send.opaque = head.opaque
    if send.code == SEND_BATCH_MESSAGE:
        send.is_batch = True
        return True
    return send.code == SEND_MESSAGE_V2 or send.code == SEND_MESSAGE


cdef inline Py_ssize_t unescape(Text text, uint8_t* out) noexcept nogil:
    """Write the UTF-8 that a string stands for, which is no longer; -1 when it holds a zero."""
    cdef Bytes at = text.at
    cdef Bytes end = text.at + text.size
    cdef uint8_t* to = out
    cdef uint8_t c
    cdef int code
    if not text.is_escaped:
        memcpy(out, at, text.size)
        return text.size
    while at < end:
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
                # `read_text` has seen that it is half of a pair.
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
    return to - out


cdef inline bint read_properties(Text text, uint8_t* out, Special* special,
                                 Properties* found) noexcept nogil:
    """Write the properties as they are stored, but for the cluster; tell whether they are plain.

    As `decode`, `without` and the send processor do it: the pair WAIT goes, a separator ends what
    is left.
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
        # There is one: the last byte.
        to = <Bytes>memchr(at, BETWEEN, end - at)
        middle = <Bytes>memchr(at, NAME_VALUE, to - at)
        name_size = to - at if middle == NULL else middle - at
        value_size = 0 if middle == NULL else to - middle - 1
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
    """Write the properties that all messages of a batch get; tell whether they are plain.

    They are stored as the twin's `decode` and `encode` leave them, so only what these leave as it
    is counts as plain: each pair whole, no name twice.
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
        to = <Bytes>memchr(at, BETWEEN, end - at)
        if to == NULL:
            to = end
        middle = <Bytes>memchr(at, NAME_VALUE, to - at)
        if middle == NULL or middle == at or middle + 1 == to or count == COMMON_MAX:
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
    """Read a message of a batch; return what follows it, NULL when its sizes do not add up.

    See formats/batch.py.
    """
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
    # A size of 32 KiB and more is a negative number.
    if size > PROPERTIES_MAX or total != ITEM_MIN + item.body.size + size:
        return NULL
    if size > end - item.properties.at:
        return NULL
    return item.properties.at + size


cdef inline bint read_item_properties(Item* item) noexcept nogil:
    """Find what is indexed of a message of a batch; tell whether its properties may be stored."""
    cdef Bytes at = item.properties.at
    cdef Bytes end = at + item.properties.size
    cdef Bytes to, middle
    cdef Text value
    cdef int size
    item.tags.size = item.keys.size = item.uniq_key.size = 0
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
    at = item.properties.at
    while at < end:
        to = <Bytes>memchr(at, BETWEEN, end - at)
        if to == NULL:
            to = end
        middle = <Bytes>memchr(at, NAME_VALUE, to - at)
        if middle != NULL and middle + 1 < to:
            value.at = middle + 1
            value.size = to - value.at
            note_pair(at, middle - at, value, &item.tags, &item.keys, &item.uniq_key)
        at = to + 1
    return True


cdef inline void cut(uint8_t* out, Bytes begin, Bytes to, Bytes end,
                     Properties* found) noexcept nogil:
    """Take a pair out; what was found behind it moves with the rest."""
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
    cdef Bytes at = text.at
    cdef Bytes end = text.at + text.size
    cdef uint32_t value = 0, code
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
    """Return how many characters Python counts in valid UTF-8."""
    cdef Py_ssize_t i, count = 0
    for i in range(text.size):
        if text.at[i] & 0xC0 != 0x80:
            count += 1
    return count
