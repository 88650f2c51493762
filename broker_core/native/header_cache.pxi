"""Compare headers with the previous one, which usually differs only in a few fields.

A client's sends differ in opaque, queue, birth time and properties, its pulls in opaque, queue and
offsets. The rest of a header is compared instead of parsed: parsing takes a quarter of a send's
instructions. The fields that differ are read by the functions that parse whole headers, between the
same ends, so they would accept every header accepted here, with the same fields. JSON only.
`scan.pxd` parses any other header, which then becomes the one to compare with.
"""

cdef enum:
    ALIKE_MAX = 1024
    DIFFERENCES = 5
    # The fields that may differ.
    OPAQUE_DIFFERS = 0
    QUEUE_ID_DIFFERS = 1
    BORN_DIFFERS = 2
    PROPERTIES_DIFFER = 3
    QUEUE_OFFSET_DIFFERS = 2
    COMMIT_OFFSET_DIFFERS = 4

cdef int64_t LONG_MOST = 999999999999999999


cdef struct Shape:
    # 0 while no header is cached.
    Py_ssize_t size
    uint8_t header[ALIKE_MAX]
    # Where the header was parsed; texts may point into it.
    Bytes read_at
    int count
    int kind[DIFFERENCES]
    Py_ssize_t begin[DIFFERENCES]
    Py_ssize_t end[DIFFERENCES]


cdef inline void begin_shape(Shape* shape, Bytes at, Py_ssize_t size) noexcept:
    """Cache a header."""
    shape.size = size
    shape.read_at = at
    shape.count = 0
    memcpy(shape.header, at, size)


cdef void differ(Shape* shape, int kind, Bytes at, Py_ssize_t size) noexcept:
    """Record where a field may differ, unless it is missing; call in header order."""
    cdef int i = shape.count
    if at == NULL:
        return
    while i and shape.begin[i - 1] > at - shape.read_at:
        shape.kind[i] = shape.kind[i - 1]
        shape.begin[i] = shape.begin[i - 1]
        shape.end[i] = shape.end[i - 1]
        i -= 1
    shape.kind[i] = kind
    shape.begin[i] = at - shape.read_at
    shape.end[i] = shape.begin[i] + size
    shape.count += 1


cdef inline Py_ssize_t number_size(Bytes at) noexcept:
    """Return the length of the number parsed at a position; a non-digit follows it."""
    cdef Py_ssize_t size = 1
    if at == NULL:
        return 0
    while 48 <= at[size] <= 57:
        size += 1
    return size


cdef bint matches_shape(Shape* shape, Bytes at, Py_ssize_t size, int64_t* numbers,
                   Text* properties) noexcept:
    """Tell whether a header matches the cached one, and read the fields that differ."""
    cdef Py_ssize_t done = 0
    cdef Bytes begin
    cdef Bytes end
    cdef int i, kind
    if size != shape.size:
        return False
    for i in range(shape.count):
        if memcmp(at + done, shape.header + done, shape.begin[i] - done) != 0:
            return False
        begin = at + shape.begin[i]
        end = at + shape.end[i]
        kind = shape.kind[i]
        if kind == PROPERTIES_DIFFER:
            # The quotation marks belong to the compared part.
            if read_text(begin - 1, at + size, properties) != end + 1:
                return False
        elif kind <= QUEUE_ID_DIFFERS:
            if read_int(begin, end, INT32_LEAST, INT32_MAX, &numbers[kind]) != end:
                return False
        elif read_int(begin, end, -LONG_MOST, LONG_MOST, &numbers[kind]) != end:
            return False
        done = shape.end[i]
    return memcmp(at + done, shape.header + done, size - done) == 0


cdef inline void move(Text* text, Shape* shape, Bytes at) noexcept:
    """Point a text at the same position of another header."""
    text.at = at + (text.at - shape.read_at)


cdef struct LikeSend:
    Shape shape
    Send send


cdef struct LikePull:
    Shape shape
    Pull pull


cdef bint read_like_send(LikeSend* last, Bytes at, Bytes end, bint is_binary,
                         Send* send) noexcept:
    """Do what `read_send` does, faster when the header matches the cached one."""
    cdef int64_t numbers[DIFFERENCES]
    cdef Text properties
    cdef Shape* shape = &last.shape
    if is_binary:
        return read_send(at, end, is_binary, send)
    if matches_shape(shape, at, end - at, numbers, &properties):
        send[0] = last.send
        move(&send.topic, shape, at)
        move(&send.producer_group, shape, at)
        if send.properties_differ:
            send.properties = properties
        else:
            move(&send.properties, shape, at)
        if send.opaque_at != NULL:
            send.opaque = <int32_t>numbers[OPAQUE_DIFFERS]
        send.queue_id = <int32_t>numbers[QUEUE_ID_DIFFERS]
        send.born_timestamp = numbers[BORN_DIFFERS]
        return True
    if not read_send(at, end, is_binary, send):
        return False
    if end - at > ALIKE_MAX:
        return True
    begin_shape(shape, at, end - at)
    differ(shape, OPAQUE_DIFFERS, send.opaque_at, number_size(send.opaque_at))
    differ(shape, QUEUE_ID_DIFFERS, send.queue_id_at, number_size(send.queue_id_at))
    differ(shape, BORN_DIFFERS, send.born_at, number_size(send.born_at))
    if send.properties_differ:
        differ(shape, PROPERTIES_DIFFER, send.properties.at, send.properties.size)
    last.send = send[0]
    return True


cdef bint read_like_pull(LikePull* last, Bytes at, Bytes end, bint is_binary,
                         Pull* pull) noexcept:
    """Do what `read_pull` does, faster when the header matches the cached one."""
    cdef int64_t numbers[DIFFERENCES]
    cdef Shape* shape = &last.shape
    if is_binary:
        return read_pull(at, end, is_binary, pull)
    if matches_shape(shape, at, end - at, numbers, NULL):
        pull[0] = last.pull
        move(&pull.group, shape, at)
        move(&pull.topic, shape, at)
        move(&pull.subscription, shape, at)
        move(&pull.expression_type, shape, at)
        if pull.opaque_at != NULL:
            pull.opaque = <int32_t>numbers[OPAQUE_DIFFERS]
        pull.queue_id = <int32_t>numbers[QUEUE_ID_DIFFERS]
        pull.queue_offset = numbers[QUEUE_OFFSET_DIFFERS]
        if pull.commit_offset_at != NULL:
            pull.commit_offset = numbers[COMMIT_OFFSET_DIFFERS]
        return True
    if not read_pull(at, end, is_binary, pull):
        return False
    if end - at > ALIKE_MAX:
        return True
    begin_shape(shape, at, end - at)
    differ(shape, OPAQUE_DIFFERS, pull.opaque_at, number_size(pull.opaque_at))
    differ(shape, QUEUE_ID_DIFFERS, pull.queue_id_at, number_size(pull.queue_id_at))
    differ(shape, QUEUE_OFFSET_DIFFERS, pull.queue_offset_at, number_size(pull.queue_offset_at))
    differ(shape, COMMIT_OFFSET_DIFFERS, pull.commit_offset_at, number_size(pull.commit_offset_at))
    last.pull = pull[0]
    return True
