"""The message codec: the twin of `grpc_messages/codec.py`. It follows the same plans, compiled into
arrays, and reads and writes a message's fields through the slots of its class.

Messages are written backwards from their end, so that each length is known before it is written.
"""

from broker_core.errors import ProtobufError
from broker_core.grpc_messages import codec as codec_of_python
from broker_core.grpc_messages.codec import encode as encode_of_python
from broker_core.grpc_messages.wire_format import CUT_SHORT
from broker_core.grpc_messages.wire_format import GROUPS_MAX as GROUPS_MAX_OF_PYTHON

cdef enum:
    TAGS_MAX = 256
    ENTRY_KEY = 0x0A
    ENTRY_VALUE = 0x12

cdef int GROUPS_MAX = GROUPS_MAX_OF_PYTHON

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t offset_of_field(PyObject *descriptor) {
        PyMemberDef *member;
        if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return 0;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : 0;
    }
    static inline PyObject **field_at(PyObject *message, Py_ssize_t offset) {
        return (PyObject **)((char *)message + offset);
    }
    static inline PyObject *utf_8(PyObject *text, const char **at, Py_ssize_t *size) {
        *at = PyUnicode_AsUTF8AndSize(text, size);
        return *at == NULL ? NULL : text;
    }
    """
    Py_ssize_t offset_of_field(object descriptor)
    PyObject** field_at(PyObject* message, Py_ssize_t offset)
    PyObject* utf_8(object text, const char** at, Py_ssize_t* size) except NULL


cdef class Layout


cdef class Reading:
    """How to read a field with a given tag."""

    cdef int kind
    cdef bint is_repeated
    cdef Py_ssize_t offset
    cdef object message
    # The layout of the nested message, set on first use.
    cdef Layout layout
    # Offsets of the fields that this field excludes.
    cdef list excludes


cdef class Writing:
    """How to write a field."""

    cdef int kind
    cdef uint32_t tag
    cdef bint is_repeated, is_optional
    cdef Py_ssize_t offset


cdef class Layout:
    """The compiled plan of a message type."""

    cdef object kind
    cdef list readings
    cdef int16_t[TAGS_MAX] at
    # Last field first.
    cdef list writings


cdef dict LAYOUTS = {}


cdef Py_ssize_t field_offset(kind, str name) except -1:
    cdef Py_ssize_t offset = offset_of_field(getattr(kind, name))
    if offset <= 0:
        raise ImportError(f"{name} of {kind.__name__} is no slot")
    return offset


cdef Layout layout_of(kind):
    known = LAYOUTS.get(kind)
    if known is not None:
        return <Layout>known
    plan = codec_of_python.plan_of(kind)
    cdef Layout made = Layout()
    cdef Reading reading
    cdef Writing writing
    cdef int tag
    made.kind = kind
    made.readings = []
    made.writings = []
    for tag in range(TAGS_MAX):
        made.at[tag] = -1
    for number, read in plan.reads.items():
        if number >= TAGS_MAX:
            raise ImportError(f"{read.name} of {kind.__name__} has too high a number")
        reading = Reading()
        reading.kind = read.kind
        reading.is_repeated = read.is_repeated
        reading.offset = field_offset(kind, read.name)
        reading.message = read.message
        reading.excludes = [field_offset(kind, each) for each in read.excludes]
        made.at[number] = len(made.readings)
        made.readings.append(reading)
    for write in reversed(plan.writes):
        writing = Writing()
        writing.kind = write.kind
        writing.tag = tag_number(write.tag)
        writing.is_repeated = write.is_repeated
        writing.is_optional = write.is_optional
        writing.offset = field_offset(kind, write.name)
        made.writings.append(writing)
    LAYOUTS[kind] = made
    return made


cdef uint32_t tag_number(bytes tag) except 0:
    number = 0
    for byte in reversed(tag):
        number = number << 7 | byte & 0x7F
    return number


cdef object refused(str reason):
    return ProtobufError(reason)


cdef object cut_short():
    return refused(CUT_SHORT)


# Reading.


cdef struct Source:
    Octets data
    Py_ssize_t at


def decode_message(kind, bytes data not None):
    """See codec.decode."""
    cdef Source source
    source.data = <Octets>PyBytes_AS_STRING(data)
    source.at = 0
    return read_message(layout_of(kind), &source, PyBytes_GET_SIZE(data))


cdef object read_message(Layout layout, Source* source, Py_ssize_t end):
    cdef object message = layout.kind()
    cdef Reading reading
    cdef Py_ssize_t stop
    cdef uint64_t tag
    cdef int place
    cdef object value
    while source.at < end:
        tag = source.data[source.at]
        if tag < 0x80:
            source.at += 1
        else:
            tag = read_tag(source, end)
        place = layout.at[tag] if tag < TAGS_MAX else -1
        if place < 0:
            skip_field(source, end, tag, 0)
            continue
        reading = <Reading>layout.readings[place]
        if reading.kind <= KIND_MAP:
            stop = read_stop(source, end)
            if reading.kind == KIND_STRING:
                value = read_text(source, stop)
            elif reading.kind == KIND_BYTES:
                value = PyBytes_FromStringAndSize(
                    <const char*>source.data + source.at, stop - source.at
                )
                source.at = stop
            elif reading.kind == KIND_MESSAGE:
                if reading.layout is None:
                    reading.layout = layout_of(reading.message)
                value = read_message(reading.layout, source, stop)
                if not reading.is_repeated:
                    value = merged(reading.message, kept_at(message, reading.offset), value)
            else:
                read_entry(source, stop, <dict>kept_at(message, reading.offset))
                continue
        elif reading.kind == KIND_PACKED:
            stop = read_stop(source, end)
            while source.at < stop:
                (<list>kept_at(message, reading.offset)).append(
                    <int32_t><uint32_t>read_varint(source, stop)
                )
            continue
        elif reading.kind == KIND_FLOAT:
            value = read_float(source, end)
        elif reading.kind == KIND_BOOL:
            value = read_varint(source, end) != 0
        elif reading.kind == KIND_INT32:
            value = <int32_t><uint32_t>read_varint(source, end)
        else:
            value = <int64_t>read_varint(source, end)
        if reading.is_repeated:
            (<list>kept_at(message, reading.offset)).append(value)
            continue
        for other in reading.excludes:
            keep_at(message, <Py_ssize_t>other, None)
        keep_at(message, reading.offset, value)
    return message


cdef inline object kept_at(message, Py_ssize_t offset):
    return <object>field_at(<PyObject*>message, offset)[0]


cdef inline int keep_at(message, Py_ssize_t offset, value) except -1:
    cdef PyObject** place = field_at(<PyObject*>message, offset)
    cdef PyObject* before = place[0]
    Py_INCREF(value)
    place[0] = <PyObject*>value
    Py_XDECREF(before)
    return 0


cdef object merged(kind, first, second):
    if first is None:
        return second
    return codec_of_python.decode(kind, encode_of_python(first) + encode_of_python(second))


cdef uint64_t read_varint(Source* source, Py_ssize_t end) except? 0xBAD:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if source.at >= end:
            raise cut_short()
        byte = source.data[source.at]
        source.at += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 63:
            raise refused("a varint has more than ten bytes")


cdef uint64_t read_tag(Source* source, Py_ssize_t end) except? 0xBAD:
    cdef Py_ssize_t start = source.at
    cdef uint64_t tag = read_varint(source, end)
    if tag > 0xFFFFFFFFU or source.at - start > 5:
        raise refused("a tag has more than 32 bits")
    return tag


cdef Py_ssize_t read_stop(Source* source, Py_ssize_t end) except -1:
    """Return where a length-delimited value ends."""
    cdef uint64_t length = read_varint(source, end)
    if length > <uint64_t>(end - source.at):
        raise cut_short()
    return source.at + <Py_ssize_t>length


cdef str read_text(Source* source, Py_ssize_t stop):
    cdef Py_ssize_t start = source.at
    source.at = stop
    try:
        return PyUnicode_DecodeUTF8(<const char*>source.data + start, stop - start, NULL)
    except UnicodeDecodeError:
        raise refused("a text is not UTF-8") from None


cdef object read_float(Source* source, Py_ssize_t end):
    cdef float value
    if source.at + 4 > end:
        raise cut_short()
    memcpy(&value, source.data + source.at, 4)
    source.at += 4
    return value


cdef int read_entry(Source* source, Py_ssize_t end, dict entries) except -1:
    """Read an entry of a string map."""
    cdef str key = "", value = ""
    cdef uint64_t tag
    cdef Py_ssize_t stop
    while source.at < end:
        tag = read_tag(source, end)
        if tag == ENTRY_KEY or tag == ENTRY_VALUE:
            stop = read_stop(source, end)
            if tag == ENTRY_KEY:
                key = read_text(source, stop)
            else:
                value = read_text(source, stop)
        else:
            skip_field(source, end, tag, 0)
    entries[key] = value
    return 0


cdef int skip_field(Source* source, Py_ssize_t end, uint64_t tag, int depth) except -1:
    cdef int wire_type = tag & 7
    cdef uint64_t inner
    if tag < 8 and not depth:
        raise refused("a field has number 0")
    if wire_type == WIRE_VARINT:
        read_varint(source, end)
    elif wire_type == WIRE_LENGTH:
        source.at = read_stop(source, end)
    elif wire_type == WIRE_FIXED64 or wire_type == WIRE_FIXED32:
        source.at += 8 if wire_type == WIRE_FIXED64 else 4
        if source.at > end:
            raise cut_short()
    elif wire_type != WIRE_START_GROUP or depth == GROUPS_MAX:
        raise refused(f"a field has wire type {wire_type}")
    else:
        while True:
            inner = read_tag(source, end)
            if inner & 7 == WIRE_END_GROUP:
                if inner >> 3 != tag >> 3:
                    raise refused("a group ends another")
                break
            skip_field(source, end, inner, depth + 1)
    return 0


# Writing.


cdef class Target:
    """A buffer that is filled from its end."""

    cdef uint8_t* data
    cdef Py_ssize_t size, at

    def __cinit__(self):
        self.size = 512
        self.data = <uint8_t*>malloc(self.size)
        if self.data == NULL:
            raise MemoryError
        self.at = self.size

    def __dealloc__(self):
        free(self.data)

    cdef int room(self, Py_ssize_t more) except -1:
        """Make room for more bytes in front of those already written."""
        cdef Py_ssize_t written = self.size - self.at, size = self.size
        cdef uint8_t* data
        if more <= self.at:
            return 0
        while size - written < more:
            size *= 2
        data = <uint8_t*>malloc(size)
        if data == NULL:
            raise MemoryError
        memcpy(data + size - written, self.data + self.at, written)
        free(self.data)
        self.data, self.at, self.size = data, size - written, size
        return 0

    cdef int put(self, const void* data, Py_ssize_t size) except -1:
        self.room(size)
        self.at -= size
        memcpy(self.data + self.at, data, size)
        return 0

    cdef int varint(self, uint64_t value) except -1:
        cdef uint8_t[10] out
        cdef int size = 0
        while value > 0x7F:
            out[size] = value & 0x7F | 0x80
            value >>= 7
            size += 1
        out[size] = value
        return self.put(out, size + 1)

    cdef int text(self, value) except -1:
        cdef const char* at = NULL
        cdef Py_ssize_t size = 0
        utf_8(value, &at, &size)
        self.put(at, size)
        return self.varint(size)


def encode_message(message):
    """See codec.encode."""
    cdef Target target = Target()
    write_message(message, target)
    return PyBytes_FromStringAndSize(
        <const char*>target.data + target.at, target.size - target.at
    )


cdef int write_message(message, Target target) except -1:
    cdef Writing writing
    cdef object value
    for writing in layout_of(type(message)).writings:
        value = kept_at(message, writing.offset)
        if value is None:
            continue
        if writing.is_repeated:
            if writing.kind == KIND_PACKED:
                write_packed(<list?>value, writing.tag, target)
            elif writing.kind == KIND_MAP:
                for entry in reversed(list((<dict?>value).items())):
                    write_entry(<tuple>entry, writing.tag, target)
            else:
                for each in reversed(<list?>value):
                    write_value(writing.kind, writing.tag, each, target)
        elif writing.is_optional or not is_default(writing.kind, value):
            write_value(writing.kind, writing.tag, value, target)
    return 0


cdef int is_default(int kind, value) except -1:
    cdef double number
    if kind == KIND_FLOAT:
        number = value
        return number == 0 and not signbit(number)
    return not value


cdef int write_value(int kind, uint32_t tag, value, Target target) except -1:
    cdef Py_ssize_t before
    cdef float number
    if kind == KIND_STRING:
        target.text(value)
    elif kind == KIND_BYTES:
        target.put(PyBytes_AS_STRING(<bytes?>value), PyBytes_GET_SIZE(value))
        target.varint(PyBytes_GET_SIZE(value))
    elif kind == KIND_MESSAGE:
        before = target.size - target.at
        write_message(value, target)
        target.varint(target.size - target.at - before)
    elif kind == KIND_FLOAT:
        number = value
        target.put(&number, 4)
    else:
        target.varint(<uint64_t><int64_t>value)
    return target.varint(tag)


cdef int write_packed(list values, uint32_t tag, Target target) except -1:
    cdef Py_ssize_t before = target.size - target.at
    if not values:
        return 0
    for value in reversed(values):
        target.varint(<uint64_t><int64_t>value)
    target.varint(target.size - target.at - before)
    return target.varint(tag)


cdef int write_entry(tuple entry, uint32_t tag, Target target) except -1:
    cdef Py_ssize_t before = target.size - target.at
    target.text(entry[1])
    target.varint(ENTRY_VALUE)
    target.text(entry[0])
    target.varint(ENTRY_KEY)
    target.varint(target.size - target.at - before)
    return target.varint(tag)
