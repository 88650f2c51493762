/* Compare and copy the texts of `constants.py`, which are string literals here: their lengths are
   known to the compiler. Anything but a literal is a compile error. */
#ifndef TREBUCHET_WORDS_H
#define TREBUCHET_WORDS_H

#include <stdint.h>
#include <string.h>

static inline uint8_t *put_bytes(uint8_t *to, const char *word, size_t size)
{
    memcpy(to, word, size);
    return to + size;
}

/* Whether `size` bytes are a text. */
#define IS_WORD(at, size, word) \
    ((size) == (Py_ssize_t)sizeof("" word) - 1 && memcmp((at), word, sizeof("" word) - 1) == 0)
/* Write a text; returns the end. */
#define PUT_KNOWN(to, word) put_bytes((to), word, sizeof("" word) - 1)

#endif
