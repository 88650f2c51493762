/* A hash of the bytes of a span, for tables that others fill: the seed is secret.

   Sixteen bytes a step, each two words multiplied to 128 bits and folded, as wyhash does. */
#ifndef TREBUCHET_SPANS_H
#define TREBUCHET_SPANS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t span_fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t span_word(const unsigned char *data, size_t size)
{
    uint64_t word = 0;
    memcpy(&word, data, size);
    return word;
}

static inline uint64_t span_hash(const unsigned char *data, size_t size, uint64_t seed)
{
    const uint64_t first = 0xA0761D6478BD642FULL, second = 0xE7037ED1A0B428DBULL;
    uint64_t value = seed ^ span_fold(seed ^ first, size ^ second);
    while (size >= 16) {
        value = span_fold(span_word(data, 8) ^ seed ^ first, span_word(data + 8, 8) ^ value);
        data += 16;
        size -= 16;
    }
    if (size >= 8)
        return span_fold(span_word(data, 8) ^ seed ^ second,
                         span_word(data + 8, size - 8) ^ value ^ first);
    return span_fold(span_word(data, size) ^ seed ^ second, value ^ first);
}

#endif
