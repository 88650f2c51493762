"""Read the parts of JSON: blanks, strings and numbers."""

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
