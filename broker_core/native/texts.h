/* Fast paths for JSON strings: plain characters and \u escapes. */
#ifndef TREBUCHET_TEXTS_H
#define TREBUCHET_TEXTS_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Skip unescaped ASCII, sixteen bytes per step; stop at another byte or near the end. */
static inline const unsigned char *past_plain(const unsigned char *at, const unsigned char *end)
{
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    const __m128i space = _mm_set1_epi8(' ');
    while (end - at >= 16) {
        __m128i data = _mm_loadu_si128((const __m128i *)at);
        /* As signed numbers, bytes from 128 on are also below a space. */
        __m128i other = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(data, quote), _mm_cmpeq_epi8(data, slash)),
            _mm_cmplt_epi8(data, space));
        unsigned int found = (unsigned int)_mm_movemask_epi8(other);
        if (found)
            return at + __builtin_ctz(found);
        at += 16;
    }
#endif
    return at;
}

/* Copy up to the next backslash or near the end; return the number of bytes. May overwrite the
   bytes after them in `to`, within the length of the text. */
static inline size_t copy_to_slash(
    unsigned char *to, const unsigned char *at, const unsigned char *end)
{
    size_t size = 0;
#if defined(__SSE2__)
    const __m128i slash = _mm_set1_epi8('\\');
    while (end - at >= 16) {
        __m128i data = _mm_loadu_si128((const __m128i *)at);
        unsigned int found = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(data, slash));
        _mm_storeu_si128((__m128i *)(to + size), data);
        if (found)
            return size + (size_t)__builtin_ctz(found);
        at += 16;
        size += 16;
    }
#endif
    return size;
}

/* Return the next byte below 3 (a property separator or zero), or `end`. Reads nothing outside
   `begin` to `end`. */
static inline const unsigned char *next_separator(
    const unsigned char *begin, const unsigned char *at, const unsigned char *end)
{
#if defined(__SSE2__)
    const __m128i last = _mm_set1_epi8(2);
    unsigned int found;
    __m128i data;
    while (end - at >= 16) {
        data = _mm_loadu_si128((const __m128i *)at);
        found = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(data, last), data));
        if (found)
            return at + __builtin_ctz(found);
        at += 16;
    }
    if (end - begin >= 16 && at < end) {
        /* The last sixteen bytes, without those already checked. */
        data = _mm_loadu_si128((const __m128i *)(end - 16));
        found = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(data, last), data));
        found >>= 16 - (end - at);
        return found ? at + __builtin_ctz(found) : end;
    }
#endif
    while (at < end && *at > 2)
        at++;
    return at;
}

/* Return the value of a hexadecimal digit, -1 for other characters. */
static inline int hex_digit(unsigned char c)
{
    int digit = c - '0';
    if (digit >= 0 && digit <= 9)
        return digit;
    digit = (c | 0x20) - 'a';
    return digit >= 0 && digit <= 5 ? digit + 10 : -1;
}

/* Return the value of four hexadecimal digits, -1 for other characters. */
static inline int hex_code(const unsigned char *at)
{
    int first, second, third, fourth;
    /* Fast path for property separators. */
    if (at[0] == '0' && at[1] == '0' && at[2] == '0' && (unsigned int)(at[3] - '0') <= 9)
        return at[3] - '0';
    first = hex_digit(at[0]);
    second = hex_digit(at[1]);
    third = hex_digit(at[2]);
    fourth = hex_digit(at[3]);
    if ((first | second | third | fourth) < 0)
        return -1;
    return first << 12 | second << 8 | third << 4 | fourth;
}

#endif
