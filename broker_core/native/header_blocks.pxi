"""Header compression: the twin of `http2/hpack.py`. Strings of a field are created once and kept in
the table, as in Python; work per byte happens in C.
"""

from broker_core.errors import Http2ConnectionError
from broker_core.http2 import huffman
from broker_core.http2.codes import ErrorCode
from broker_core.http2.header_fields import OVERHEAD as OVERHEAD_OF_PYTHON
from broker_core.http2.header_fields import PSEUDO as PSEUDO_OF_PYTHON
from broker_core.http2.header_fields import STATIC as STATIC_OF_PYTHON
from broker_core.http2.header_fields import field as field_of_python
from broker_core.http2.hpack import INTEGER_MAX as INTEGER_MAX_OF_PYTHON
from broker_core.http2.hpack import TABLE_BYTES as TABLE_BYTES_OF_PYTHON

cdef str PSEUDO = PSEUDO_OF_PYTHON
cdef tuple STATIC = STATIC_OF_PYTHON
cdef object TABLE_BYTES_WORDS = TABLE_BYTES_OF_PYTHON
cdef Py_ssize_t TABLE_BYTES = TABLE_BYTES_OF_PYTHON
cdef Py_ssize_t OVERHEAD = OVERHEAD_OF_PYTHON
cdef uint64_t INTEGER_MAX = INTEGER_MAX_OF_PYTHON

cdef enum:
    STATIC_LENGTH = 62
    HUFFMAN_NODES = 256
    # Flags of a Huffman decoder step.
    EMITS = 1
    FAILS = 2
    NAME_OF_TE = 0x7465

if len(STATIC) != STATIC_LENGTH or len(huffman.NODES) != HUFFMAN_NODES:
    raise ImportError("the tables have other sizes")


cdef struct Step:
    # The transition for four more bits: the next node, the flags and the completed symbol.
    uint8_t node
    uint8_t what
    uint8_t symbol


cdef Step[HUFFMAN_NODES * 16] STEPS
cdef bint[HUFFMAN_NODES] IS_FINAL


cdef int fill_steps() except -1:
    cdef int start, nibble, bit, node
    for start in range(HUFFMAN_NODES):
        IS_FINAL[start] = start in huffman.FINAL_NODES
        for nibble in range(16):
            node = start
            step = &STEPS[start * 16 + nibble]
            step.what = step.symbol = 0
            for bit in range(3, -1, -1):
                node = huffman.NODES[node][nibble >> bit & 1]
                if node < 0:
                    if -1 - node == huffman.EOS:
                        step.what |= FAILS
                    else:
                        step.what |= EMITS
                        step.symbol = -1 - node
                    node = 0
            step.node = node
    return 0


fill_steps()


cdef object wrong(str reason):
    return Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, reason)


cdef object ends_early():
    return wrong("a field block ends early or names a field that no table has")


cdef str huffman_decoded(Octets data, Py_ssize_t size):
    """Return the text of a Huffman-coded string."""
    # The shortest code has five bits.
    cdef Py_ssize_t room = size * 8 // 5 + 1
    cdef char[512] small
    cdef char* out = small
    cdef Py_ssize_t at, length = 0
    cdef uint8_t node = 0
    cdef Step step
    if room > 512:
        out = <char*>malloc(room)
        if out == NULL:
            raise MemoryError
    try:
        for at in range(size):
            step = STEPS[node * 16 + (data[at] >> 4)]
            if step.what & EMITS:
                out[length] = step.symbol
                length += 1
            if step.what & FAILS:
                raise wrong("a Huffman string contains EOS")
            step = STEPS[step.node * 16 + (data[at] & 15)]
            if step.what & EMITS:
                out[length] = step.symbol
                length += 1
            if step.what & FAILS:
                raise wrong("a Huffman string contains EOS")
            node = step.node
        if not IS_FINAL[node]:
            raise wrong("a Huffman string ends within a code")
        return PyUnicode_DecodeLatin1(out, length, NULL)
    finally:
        if out != small:
            free(out)


cdef extern from *:
    """
    static inline const unsigned char *latin_1_of(PyObject *text) {
        return PyUnicode_KIND(text) == PyUnicode_1BYTE_KIND ? PyUnicode_1BYTE_DATA(text) : NULL;
    }
    """
    Octets latin_1_of(str text)
    Py_ssize_t PyUnicode_GET_LENGTH(str text)


cdef tuple made_field(str name, str value):
    """Return a field with its verdict; the twin decides about unusual fields."""
    cdef Octets text = latin_1_of(value)
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(value), length = PyUnicode_GET_LENGTH(name), at
    cdef bint is_plain = text != NULL
    if is_plain and size:
        is_plain = not (is_blank(text[0]) or is_blank(text[size - 1]))
        for at in range(size):
            if text[at] == 0 or text[at] == c"\r" or text[at] == c"\n":
                is_plain = False
    text = latin_1_of(name)
    if text == NULL or not length or text[0] == c":":
        is_plain = False
    elif is_plain:
        for at in range(length):
            # Same rule as header_fields: printable ASCII without upper-case letters and colons.
            if text[at] < c"!" or text[at] > c"~" or text[at] == c":" or is_upper(text[at]):
                is_plain = False
        is_plain = is_plain and not is_special(text, length)
    if not is_plain:
        return field_of_python(name, value)
    return (name, value, length + size + OVERHEAD, "")


cdef inline bint is_blank(uint8_t byte) noexcept:
    return byte == c" " or byte == c"\t"


cdef inline bint is_upper(uint8_t byte) noexcept:
    return c"A" <= byte <= c"Z"


cdef bint is_special(Octets name, Py_ssize_t length) noexcept:
    """Tell whether a name may be "te" or a connection-specific field."""
    if length == 2:
        return name[0] == c"t" and name[1] == c"e"
    if length == 7:
        return name[0] == c"u"
    if length == 10:
        return name[0] == c"c" or name[0] == c"k"
    if length == 16:
        return name[0] == c"p"
    if length == 17:
        return name[0] == c"t"
    return False


cdef class HeaderDecoder:
    """See http2/hpack.py."""

    cdef list _dynamic
    cdef Py_ssize_t _size, _size_max
    # The block being decoded.
    cdef Octets _data
    cdef Py_ssize_t _at, _end
    cdef readonly str malformed
    cdef readonly Py_ssize_t list_bytes, list_bytes_max

    def __init__(self, Py_ssize_t list_bytes_max):
        self.malformed = ""
        self.list_bytes = 0
        self.list_bytes_max = list_bytes_max
        self._dynamic = []
        self._size = 0
        self._size_max = TABLE_BYTES

    @property
    def table(self):
        return [(name, value) for name, value, _, _ in reversed(self._dynamic)]

    @property
    def table_bytes(self):
        return self._size

    def decode(self, bytes block not None):
        return self.decoded(<Octets>PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block))

    cdef dict decoded(self, Octets block, Py_ssize_t size):
        """Return the fields of a block; see `decode`."""
        self._data = block
        self._at = 0
        self._end = size
        cdef dict headers = {}
        cdef str malformed = "", name, value, verdict
        cdef Py_ssize_t list_bytes = 0, pseudo = 0
        cdef uint8_t byte
        cdef uint64_t index
        cdef tuple field
        while self._at < self._end:
            byte = self._data[self._at]
            self._at += 1
            if byte >= 0x80:
                index = self._integer(byte & 0x7F, 0x7F)
                if not index:
                    raise wrong("a field block names index 0")
                field = self._field(index)
            elif byte & 0xE0 == 0x20:
                if list_bytes:
                    raise wrong("a table size update comes after a field")
                self._resize(byte)
                continue
            else:
                field = self._literal(byte)
            list_bytes += <Py_ssize_t>field[2]
            if list_bytes > self.list_bytes_max:
                if not malformed:
                    malformed = f"the header list is larger than {self.list_bytes_max} bytes"
                continue
            name, value, verdict = <str>field[0], <str>field[1], <str>field[3]
            if PyUnicode_GET_LENGTH(verdict):
                if verdict != PSEUDO:
                    malformed = malformed or verdict
                elif pseudo != len(headers):
                    malformed = malformed or f"{name} comes after an ordinary field"
                elif name in headers:
                    malformed = malformed or f"{name} comes twice"
                pseudo += 1
            elif PyDict_Contains(headers, name):
                value = f"{headers[name]},{value}"
            PyDict_SetItem(headers, name, value)
        self.malformed = malformed
        self.list_bytes = list_bytes
        return headers

    cdef uint64_t _integer(self, uint64_t value, uint64_t full) except? 0xBAD:
        """Return an integer whose prefix was read; `full` is the prefix value that signals more
        bytes.
        """
        cdef int shift = 0
        cdef uint8_t byte
        if value != full:
            return value
        while True:
            if self._at >= self._end:
                raise ends_early()
            byte = self._data[self._at]
            self._at += 1
            value += <uint64_t>(byte & 0x7F) << shift
            if value > INTEGER_MAX or shift > 28:
                raise wrong("an integer in a field block is too large")
            if byte < 0x80:
                return value
            shift += 7

    cdef tuple _field(self, uint64_t index):
        """Return a field from the static or the dynamic table."""
        cdef Py_ssize_t count
        if index < STATIC_LENGTH:
            return <tuple>STATIC[index]
        count = len(self._dynamic)
        if index - STATIC_LENGTH >= <uint64_t>count:
            raise ends_early()
        return <tuple>self._dynamic[count - 1 - <Py_ssize_t>(index - STATIC_LENGTH)]

    cdef tuple _literal(self, uint8_t byte):
        cdef bint is_kept = byte & 0x40
        cdef uint8_t mask = 0x3F if is_kept else 0x0F
        cdef uint64_t index = self._integer(byte & mask, mask)
        cdef str name = self._string() if not index else <str>self._field(index)[0]
        cdef str value = self._string()
        cdef tuple field = made_field(name, value)
        if is_kept:
            self._size += <Py_ssize_t>field[2]
            self._dynamic.append(field)
            if self._size > self._size_max:
                self._evict()
        return field

    cdef str _string(self):
        cdef uint8_t first
        cdef uint64_t length
        cdef Octets start
        if self._at >= self._end:
            raise ends_early()
        first = self._data[self._at]
        self._at += 1
        length = self._integer(first & 0x7F, 0x7F)
        if length > <uint64_t>(self._end - self._at):
            raise wrong("a field block ends within a string")
        start = self._data + self._at
        self._at += <Py_ssize_t>length
        if first >= 0x80:
            return huffman_decoded(start, <Py_ssize_t>length)
        return PyUnicode_DecodeLatin1(<const char*>start, <Py_ssize_t>length, NULL)

    cdef int _resize(self, uint8_t byte) except -1:
        cdef uint64_t size = self._integer(byte & 0x1F, 0x1F)
        if size > <uint64_t>TABLE_BYTES:
            raise wrong(f"a table size of {size} is above {TABLE_BYTES_WORDS}")
        self._size_max = <Py_ssize_t>size
        self._evict()
        return 0

    cdef int _evict(self) except -1:
        cdef Py_ssize_t count = 0
        while self._size > self._size_max:
            self._size -= <Py_ssize_t>(<tuple>self._dynamic[count])[2]
            count += 1
        del self._dynamic[:count]
        return 0
