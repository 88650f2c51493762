"""Choose the messages of a 1-in-N sample."""

cdef bint is_in_sample(Bytes begin, Bytes end, int64_t sample) noexcept:
    """Tell whether a record's key puts it in the sample, or no key is found quickly."""
    cdef Bytes key = uniq_key_before(begin, end)
    cdef Bytes stop
    if key == NULL:
        return True
    stop = <Bytes>memchr(key, PROPERTY_SEPARATOR, end - key)
    if stop == NULL:
        stop = end
    return crc32_of(key, stop - key) % sample == 0


cdef Bytes uniq_key_before(Bytes begin, Bytes end) noexcept:
    """Return the address of a record's last unique key, NULL when it isn't found quickly."""
    cdef Bytes at = end - BEGIN_UNIQ_KEY_SIZE + 1
    while at > begin + 3:
        at = <Bytes>memrchr(begin + 3, BEGIN_UNIQ_KEY[0], at - begin - 3)
        if at == NULL:
            return NULL
        if memcmp(at, BEGIN_UNIQ_KEY, BEGIN_UNIQ_KEY_SIZE) == 0:
            # A separator or the properties' length must precede it, or it is part of another value.
            if at[-1] != PROPERTY_SEPARATOR and ((at[-2] << 8) | at[-1]) != end - at:
                return NULL
            return at + BEGIN_UNIQ_KEY_SIZE
    return NULL


@cython.final
cdef class Picks:
    """The messages put by the turn to a queue that a sample may include.

    Valid for queue offsets from `begin` to `end`. The oldest picks are dropped. Messages that
    Python put in between count as possibly included.
    """

    cdef int64_t sample, begin, end
    # Queue offsets doubled, plus 1 if the message's key has to be checked.
    cdef int64_t places[PICKS_MAX]
    cdef int count
    # Index of the first place at or behind the latest offset searched for.
    cdef int last
    # The watches notified here about stored messages, None where Python does it; the queue's JSON;
    # the topic.
    cdef tuple stored
    cdef bytes where
    cdef str topic

    cdef inline void note(self, int64_t queue_offset, bint is_picked, bint is_sure) noexcept:
        """Note the message after the last one; the oldest picks are dropped."""
        if queue_offset != self.end:
            self._pass_over(queue_offset)
        self.end = queue_offset + 1
        if is_picked:
            self._add(queue_offset, is_sure)

    cdef void _pass_over(self, int64_t queue_offset) noexcept:
        """Pick all messages that Python put before an offset, or start over if there are too many.
        """
        if not self.end <= queue_offset <= self.end + PICKS_GAP_MAX:
            self.begin = self.end = queue_offset
            self.count = 0
        while self.end < queue_offset:
            self._add(self.end, False)
            self.end += 1

    cdef void _add(self, int64_t queue_offset, bint is_sure) noexcept:
        if self.count == PICKS_MAX:
            self.begin = self.places[PICKS_HALF - 1] // 2 + 1
            self.count = PICKS_MAX - PICKS_HALF
            memcpy(self.places, &self.places[PICKS_HALF], self.count * sizeof(int64_t))
        self.places[self.count] = 2 * queue_offset + (not is_sure)
        self.count += 1

    cdef int at_or_behind(self, int64_t queue_offset) noexcept:
        """Return the index of the first place at or behind a queue offset."""
        cdef int low = self.last, high = self.count, middle
        cdef int64_t sought = 2 * queue_offset
        if low > high or (low and self.places[low - 1] >= sought):
            low = 0
        elif low == high or self.places[low] >= sought:
            # The usual case: the reader continues where it was, with nothing in between.
            return low
        while low < high:
            middle = (low + high) // 2
            if self.places[middle] < sought:
                low = middle + 1
            else:
                high = middle
        self.last = low
        return low
