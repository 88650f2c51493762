/* Hash the bytes of a span with a secret seed, for tables with untrusted keys.

   Each step multiplies two words of eight bytes to 128 bits and folds them, as wyhash does. */
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

static inline uint64_t span_eight(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

static inline uint64_t span_four(const unsigned char *data)
{
    uint32_t word;
    memcpy(&word, data, 4);
    return word;
}

/* Load up to sixteen bytes as two words, which overlap for shorter input. */
static inline void span_words(const unsigned char *data, size_t size, uint64_t words[2])
{
    if (size >= 8) {
        words[0] = span_eight(data);
        words[1] = span_eight(data + size - 8);
    } else if (size >= 4) {
        words[0] = span_four(data);
        words[1] = span_four(data + size - 4);
    } else {
        words[0] = size ? data[0] : 0;
        words[1] = size ? (uint64_t)data[size / 2] << 8 | data[size - 1] : 0;
    }
}

static inline uint64_t span_hash(const unsigned char *data, size_t size, uint64_t seed)
{
    const uint64_t first = 0xA0761D6478BD642FULL, second = 0xE7037ED1A0B428DBULL;
    uint64_t value = seed ^ span_fold(seed ^ first, size ^ second);
    uint64_t words[2];
    while (size > 16) {
        value = span_fold(span_eight(data) ^ seed ^ first, span_eight(data + 8) ^ value);
        data += 16;
        size -= 16;
    }
    span_words(data, size, words);
    return span_fold(words[0] ^ seed ^ second, words[1] ^ value ^ first);
}

static inline int spans_equal(const unsigned char *one, const unsigned char *other, size_t size)
{
    uint64_t words[2], others[2];
    if (size > 16)
        return memcmp(one, other, size) == 0;
    span_words(one, size, words);
    span_words(other, size, others);
    return words[0] == others[0] && words[1] == others[1];
}

#endif
