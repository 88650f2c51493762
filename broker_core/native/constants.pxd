"""The constants of both twins, generated from the Python modules: see `constants.py`."""

from libc.stdint cimport uint8_t

cdef extern from "words.h" nogil:
    bint is_word "IS_WORD"(const uint8_t* at, Py_ssize_t size, const char* word)
    uint8_t* put_known "PUT_KNOWN"(uint8_t* to, const char* word)

include "generated.pxi"
