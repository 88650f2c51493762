# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
# cython: embedsignature=False
"""The most expensive parts of a gRPC call, compiled: HPACK, the message codec and the frame loop.

The twins are `http2/hpack.py` with `http2/huffman.py` and `http2/header_fields.py`,
`grpc_messages/codec.py` with `grpc_messages/wire_format.py`, and `http2/frame_loop.py`. Both give
the same results for the same bytes, errors included. Rare cases go to the twin: error messages and
fields that make a request malformed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Contains, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeLatin1, PyUnicode_DecodeUTF8
from libc.math cimport signbit
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from broker_core.native.constants cimport (
    HTTP2_DATA,
    HTTP2_END_HEADERS,
    HTTP2_END_STREAM,
    HTTP2_HEADERS,
    HTTP2_HEAD_BYTES,
    KIND_BOOL,
    KIND_BYTES,
    KIND_FLOAT,
    KIND_INT32,
    KIND_MAP,
    KIND_MESSAGE,
    KIND_PACKED,
    KIND_STRING,
    WIRE_END_GROUP,
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_LENGTH,
    WIRE_START_GROUP,
    WIRE_VARINT,
)

ctypedef const uint8_t* Octets

include "header_blocks.pxi"
include "proto_messages.pxi"
include "frame_loop.pxi"
