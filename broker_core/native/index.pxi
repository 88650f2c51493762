"""Index: write pending entries to an IndexFile. Python twin: `IndexFile.put_all`.

An entry is a handful of numbers at three places of a mapping, one of them far from the others.
Doing this with arrays takes nearly four times the instructions.
"""

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    WAITING_PARTS = 5


cdef struct Entries:
    # The slots, the entries and their capacities.
    uint8_t* slots
    uint8_t* entries
    int64_t slot_num
    int64_t entry_num
    # The number of the next entry, and of the first one written by this call.
    int64_t number
    int64_t first
    int64_t begin_timestamp
    int64_t used_slots


@cython.boundscheck(False)
@cython.wraparound(False)
def write_entries(buffer not None, list waiting not None, int64_t slot_num, int64_t entry_num,
                  int64_t number, int64_t begin_timestamp):
    """Write an entry for each key of the waiting messages, starting at `number`, until the file is
    full.

    Returns how many entries were written, how many slots were empty, and the indexes in `waiting`
    of the first and last message with an entry. Returns None and writes nothing if a key can't be
    encoded as UTF-8.
    """
    cdef Py_buffer view
    cdef Entries to
    cdef Text word
    cdef Py_ssize_t i, first = -1, last = -1
    cdef int64_t before
    cdef tuple message
    cdef uint32_t seed
    for each in waiting:
        message = <tuple?>each
        if len(message) != WAITING_PARTS:
            raise ValueError("what waits for the index has other parts than the turn knows")
        if not (is_known_text(message[1]) and is_known_text(message[2])):
            return None
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        to.slots = <uint8_t*>view.buf + INDEX_HEADER_SIZE
        to.entries = to.slots + slot_num * INDEX_SLOT_SIZE
        if (
            slot_num < 1
            or number < 1
            or INDEX_HEADER_SIZE + slot_num * INDEX_SLOT_SIZE
            + entry_num * INDEX_ENTRY_SIZE > view.len
        ):
            raise ValueError("the index file is shorter than its numbers say")
        to.slot_num = slot_num
        to.entry_num = entry_num
        to.number = to.first = number
        to.begin_timestamp = begin_timestamp
        to.used_slots = 0
        for i in range(len(waiting)):
            message = <tuple>waiting[i]
            seed = <uint32_t>message[0]
            before = to.number
            if message[1] is not None:
                word = known_text_of(message[1])
                if word.size:
                    put_entry(&to, java_hash_from(word, seed), message[3], message[4])
            if message[2] is not None:
                put_keys(&to, known_text_of(message[2]), seed, message[3], message[4])
            if to.number > before:
                last = i
                if first < 0:
                    first = i
    finally:
        PyBuffer_Release(&view)
    return to.number - number, to.used_slots, first, last


cdef bint is_known_text(text):
    cdef Py_ssize_t size
    if text is None:
        return True
    try:
        PyUnicode_AsUTF8AndSize(text, &size)
    except UnicodeEncodeError:
        return False
    return True


cdef Text known_text_of(text) except *:
    """Return a text; it stays valid as long as the object."""
    cdef Text found
    found.at = <Bytes>PyUnicode_AsUTF8AndSize(text, &found.size)
    found.is_escaped = False
    return found


cdef void put_keys(Entries* to, Text keys, uint32_t seed, int64_t offset,
                   int64_t store_timestamp) noexcept:
    """Add an entry for each word of KEYS."""
    cdef Bytes end = keys.at + keys.size
    cdef Bytes stop
    cdef Text word = keys
    while word.at < end:
        stop = <Bytes>memchr(word.at, KEY_SEPARATOR, end - word.at)
        if stop == NULL:
            stop = end
        word.size = stop - word.at
        if word.size:
            put_entry(to, java_hash_from(word, seed), offset, store_timestamp)
        word.at = stop + 1


cdef void put_entry(Entries* to, uint32_t unsigned_hash, int64_t offset,
                    int64_t store_timestamp) noexcept:
    """Add an entry, as `IndexFile.put` does, unless the file is full."""
    cdef uint32_t key_hash = unsigned_hash
    cdef uint8_t* slot_at
    cdef uint8_t* at
    cdef int64_t previous, seconds = 0, slot_number
    if to.number >= to.entry_num:
        return
    # Java's Math.abs returns the smallest int unchanged, still negative; RocketMQ turns that into
    # 0.
    if key_hash >= 0x80000000U:
        key_hash = 0 - key_hash if key_hash > 0x80000000U else 0
    slot_number = key_hash % to.slot_num
    slot_at = to.slots + slot_number * INDEX_SLOT_SIZE
    previous = <int32_t>big32(slot_at)
    if previous >= to.number or (
        previous >= to.first and not is_of_slot(to, previous, slot_number)
    ):
        previous = 0
    if previous <= 0:
        previous = 0
        to.used_slots += 1
    if to.begin_timestamp > 0 and store_timestamp > to.begin_timestamp:
        seconds = min((store_timestamp - to.begin_timestamp) // 1000, INDEX_SECONDS_MAX)
    at = put32(to.entries + to.number * INDEX_ENTRY_SIZE, key_hash)
    at = put32(put64(at, <uint64_t>offset), <uint32_t>seconds)
    put32(at, <uint32_t>previous)
    put32(slot_at, <uint32_t>to.number)
    if to.number <= 1:
        to.begin_timestamp = store_timestamp
    to.number += 1


cdef inline bint is_of_slot(Entries* to, int64_t number, int64_t slot_number) noexcept:
    """Tell whether an entry written by this call belongs to a slot; a stale entry may name it too.
    """
    return big32(to.entries + number * INDEX_ENTRY_SIZE) % to.slot_num == slot_number
