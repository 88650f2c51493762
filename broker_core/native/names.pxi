"""Names: topics and groups as texts of Python's, kept from one request to the next.

A text that is made anew takes four hundred instructions until a table was asked for it, which
hashes it; requests name the same few all day. Texts do not change, so nothing is ever void.
"""

cdef enum:
    NAMES = 256
    NAME_MAX = 255
    NAME_HASHED = 6

cdef extern from *:
    """
    /* Whether a text has these bytes; one that is not ASCII is not looked at. */
    static inline int is_ascii_text(PyObject *text, const void *at, Py_ssize_t size) {
        const PyASCIIObject *head = (PyASCIIObject *)text;
        return head->state.ascii && head->state.compact && head->length == size
            && memcmp(head + 1, at, size) == 0;
    }
    """
    bint is_ascii_text(str text, const void* at, Py_ssize_t size)


@cython.final
cdef class Names:
    """The names that requests have; one for another of the same place. Event loop only."""

    cdef list _texts

    def __init__(self):
        self._texts = [""] * NAMES

    cdef str of(self, Text name):
        """Return a name as a text."""
        cdef Py_ssize_t i, place = name.size
        for i in range(min(name.size, NAME_HASHED)):
            place = place * 31 + name.at[name.size - 1 - i]
        place &= NAMES - 1
        cdef str text = <str>PyList_GET_ITEM(self._texts, place)
        if is_ascii_text(text, name.at, name.size):
            return text
        text = text_of(name)
        if name.size <= NAME_MAX:
            self._texts[place] = text
        return text
