/* CRC-32 as zlib computes it, with carry-less multiplication if the CPU supports it.

   Folding and constants are from Gopal et al., "Fast CRC Computation for Generic Polynomials
   Using PCLMULQDQ" (Intel, 2009). Input below 16 bytes, and the tail, use tables. */
#ifndef TREBUCHET_CRC32_H
#define TREBUCHET_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc_tables[8][256];
static int crc_folds;

static void crc32_begin(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
        crc_tables[0][byte] = value;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t value = crc_tables[table - 1][byte];
            crc_tables[table][byte] = value >> 8 ^ crc_tables[0][value & 0xFF];
        }
#if defined(__x86_64__)
    crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* value: the CRC register, which the algorithm inverts at the start and the end. */
static uint32_t crc32_by_tables(uint32_t value, const unsigned char *data, size_t size)
{
    while (size >= 8) {
        uint32_t low = value ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8
                                | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        value = crc_tables[7][low & 0xFF] ^ crc_tables[6][low >> 8 & 0xFF]
              ^ crc_tables[5][low >> 16 & 0xFF] ^ crc_tables[4][low >> 24]
              ^ crc_tables[3][data[4]] ^ crc_tables[2][data[5]]
              ^ crc_tables[1][data[6]] ^ crc_tables[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        value = value >> 8 ^ crc_tables[0][(value ^ *data++) & 0xFF];
    return value;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define FOLD_TARGET __attribute__((target("pclmul,sse4.1")))

FOLD_TARGET static inline __m128i crc_fold(__m128i value, __m128i factors, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(value, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(value, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Reduce 16 bytes to 96 bits, then to 64, then by Barrett reduction. */
FOLD_TARGET static inline uint32_t crc_left(__m128i value, __m128i by_one)
{
    const __m128i by_half = _mm_cvtsi64_si128(0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_32 = _mm_set_epi32(0, ~0, 0, ~0);
    __m128i quotient;
    value = _mm_xor_si128(_mm_clmulepi64_si128(value, by_one, 0x10), _mm_srli_si128(value, 8));
    value = _mm_xor_si128(
        _mm_clmulepi64_si128(_mm_and_si128(value, low_32), by_half, 0x00),
        _mm_srli_si128(value, 4));
    quotient = _mm_clmulepi64_si128(_mm_and_si128(value, low_32), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(value, quotient), 1);
}

/* size must be at least 16. */
FOLD_TARGET static uint32_t crc32_by_folding(
    uint32_t value, const unsigned char *data, size_t size)
{
    const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i a = _mm_xor_si128(
        _mm_loadu_si128((const __m128i *)data), _mm_cvtsi32_si128((int)value));
    if (size >= 64) {
        __m128i b = _mm_loadu_si128((const __m128i *)(data + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(data + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(data + 48));
        data += 64;
        size -= 64;
        while (size >= 64) {
            a = crc_fold(a, by_four, _mm_loadu_si128((const __m128i *)data));
            b = crc_fold(b, by_four, _mm_loadu_si128((const __m128i *)(data + 16)));
            c = crc_fold(c, by_four, _mm_loadu_si128((const __m128i *)(data + 32)));
            d = crc_fold(d, by_four, _mm_loadu_si128((const __m128i *)(data + 48)));
            data += 64;
            size -= 64;
        }
        a = crc_fold(a, by_one, b);
        a = crc_fold(a, by_one, c);
        a = crc_fold(a, by_one, d);
    } else {
        data += 16;
        size -= 16;
    }
    while (size >= 16) {
        a = crc_fold(a, by_one, _mm_loadu_si128((const __m128i *)data));
        data += 16;
        size -= 16;
    }
    value = crc_left(a, by_one);
    return size ? crc32_by_tables(value, data, size) : value;
}
#endif

static inline uint32_t crc32_of(const unsigned char *data, size_t size)
{
#if defined(__x86_64__)
    if (size >= 16 && crc_folds)
        return ~crc32_by_folding(0xFFFFFFFFu, data, size);
#endif
    return ~crc32_by_tables(0xFFFFFFFFu, data, size);
}

/* Stores before the barrier become visible before stores after it. */
static inline void store_barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
