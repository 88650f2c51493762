"""Names: topics and groups as Python strings, cached between requests.

Creating and hashing a new string takes four hundred instructions until a table lookup is done, and
requests keep using the same few names. Strings are immutable, so entries never become invalid.
"""

cdef enum:
    NAMES = 256
    NAME_HASHED = 6

cdef extern from *:
    """
    /* Whether an ASCII string has these bytes; false for other strings. */
    static inline int is_ascii_text(PyObject *text, const void *at, Py_ssize_t size) {
        const PyASCIIObject *head = (PyASCIIObject *)text;
        return head->state.ascii && head->state.compact && head->length == size
            && memcmp(head + 1, at, size) == 0;
    }
    """
    bint is_ascii_text(str text, const void* at, Py_ssize_t size)


@cython.final
cdef class Names:
    """A cache of the names in requests; a new name replaces the one in the same slot. Event loop
    only.
    """

    cdef list _texts

    def __init__(self):
        self._texts = [""] * NAMES

    cdef str of(self, Text name):
        """Return a name as a string."""
        cdef Py_ssize_t i, place = name.size
        for i in range(min(name.size, NAME_HASHED)):
            place = place * 31 + name.at[name.size - 1 - i]
        place &= NAMES - 1
        cdef str text = <str>PyList_GET_ITEM(self._texts, place)
        if is_ascii_text(text, name.at, name.size):
            return text
        text = text_of(name)
        if name.size <= RETRY_TOPIC_LENGTH_MAX:
            self._texts[place] = text
        return text
