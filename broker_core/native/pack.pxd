"""Packing: a record's head, a ConsumeQueue unit and the numbers of an answer. Big endian.

The caller must check that there is room.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static const char PAIRS[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    """
    const char* PAIRS

cdef extern from "crc32.h" nogil:
    void crc32_begin()
    uint32_t crc32_of(const uint8_t* data, size_t size)
    void store_barrier()

cdef enum:
    HEX_SIZE = 16
    DECIMAL_MAX = 20


cdef inline uint8_t* put32(uint8_t* to, uint32_t value) noexcept nogil:
    to[0] = <uint8_t>(value >> 24)
    to[1] = <uint8_t>(value >> 16)
    to[2] = <uint8_t>(value >> 8)
    to[3] = <uint8_t>value
    return to + 4


cdef inline uint8_t* put64(uint8_t* to, uint64_t value) noexcept nogil:
    return put32(put32(to, <uint32_t>(value >> 32)), <uint32_t>value)


cdef inline void put_unit(uint8_t* to, int64_t offset, int32_t size, int64_t code) noexcept nogil:
    put64(put32(put64(to, <uint64_t>offset), <uint32_t>size), <uint64_t>code)


cdef inline uint8_t* put_hex(uint8_t* to, uint64_t value) noexcept nogil:
    """Write sixteen upper-case hexadecimal digits."""
    cdef int i, digit
    for i in range(HEX_SIZE):
        digit = <int>(value >> (60 - 4 * i)) & 15
        to[i] = <uint8_t>(48 + digit if digit < 10 else 55 + digit)
    return to + HEX_SIZE


cdef inline uint8_t* put_decimal(uint8_t* to, int64_t value) noexcept nogil:
    """Write a decimal number, two digits per step."""
    cdef uint8_t digits[DECIMAL_MAX]
    cdef int at = DECIMAL_MAX
    cdef uint64_t left, rest
    if value < 0:
        to[0] = 45
        to += 1
        left = <uint64_t>0 - <uint64_t>value
    else:
        left = <uint64_t>value
    while left >= 100:
        rest = left // 100
        at -= 2
        memcpy(&digits[at], &PAIRS[2 * (left - 100 * rest)], 2)
        left = rest
    if left >= 10:
        at -= 2
        memcpy(&digits[at], &PAIRS[2 * left], 2)
    else:
        at -= 1
        digits[at] = <uint8_t>(48 + left)
    memcpy(to, &digits[at], DECIMAL_MAX - at)
    return to + (DECIMAL_MAX - at)


cdef inline uint8_t* put_sized_decimal(uint8_t* to, int64_t value) noexcept nogil:
    """Write a number as in a binary header: the size of its text, then the text."""
    cdef uint8_t* end = put_decimal(to + 4, value)
    put32(to, <uint32_t>(end - to - 4))
    return end
