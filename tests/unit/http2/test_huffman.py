from __future__ import annotations

import contextlib

import hpack.huffman
import pytest
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given, strategies as st

from broker_core.errors import Http2ConnectionError
from broker_core.http2 import huffman

ENCODER = hpack.huffman.HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.text(st.characters(max_codepoint=255)))
def test_a_text_is_encoded_like_by_another_library_and_decoded(text: str) -> None:
    data = huffman.encode(text)

    assert data == ENCODER.encode(text.encode("latin-1"))
    assert huffman.decode(data) == text


@given(st.binary(max_size=64))
def test_any_bytes_decode_to_a_text_with_that_code_or_an_error(data: bytes) -> None:
    with contextlib.suppress(Http2ConnectionError):
        assert huffman.encode(huffman.decode(data)) == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        # RFC 7541, 5.2: padding of more than 7 bits, padding that isn't the beginning of EOS, EOS.
        (huffman.encode("a") + b"\xff", "ends within a code"),
        (b"\x18", "ends within a code"),
        (b"\xff\xff\xff\xff", "contains EOS"),
    ],
)
def test_wrong_padding_and_eos_are_errors(data: bytes, says: str) -> None:
    with pytest.raises(Http2ConnectionError, match=says):
        huffman.decode(data)
