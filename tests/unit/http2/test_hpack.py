"""Header compression: the examples of RFC 7541, its sections, and a comparison with hpack."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import hpack as library
import pytest
from hypothesis import given, settings, strategies as st

from broker_core.errors import Http2ConnectionError
from broker_core.http2 import hpack
from broker_core.http2.codes import ErrorCode
from broker_core.http2.hpack import HeaderDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

LIST_BYTES_MAX = 1 << 16

GET = {":method": "GET", ":scheme": "http", ":path": "/", ":authority": "www.example.com"}
INDEX_HTML = {
    ":method": "GET",
    ":scheme": "https",
    ":path": "/index.html",
    ":authority": "www.example.com",
}
NO_CACHE = {"cache-control": "no-cache"}
CUSTOM = {"custom-key": "custom-value"}
AUTHORITY = (":authority", "www.example.com")
FIRST, SECOND = "Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT"
LOCATION = ("location", "https://www.example.com")
COOKIE = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
REDIRECT = {"cache-control": "private", "date": FIRST, "location": LOCATION[1]}
LAST = {
    "cache-control": "private",
    "date": SECOND,
    "location": LOCATION[1],
    "content-encoding": "gzip",
    "set-cookie": COOKIE,
}
TABLES_OF_ANSWERS = [
    (222, [LOCATION, ("date", FIRST), ("cache-control", "private"), (":status", "302")]),
    (222, [(":status", "307"), LOCATION, ("date", FIRST), ("cache-control", "private")]),
    (215, [("set-cookie", COOKIE), ("content-encoding", "gzip"), ("date", SECOND)]),
]
TABLES_OF_REQUESTS = [
    (57, [AUTHORITY]),
    (110, [("cache-control", "no-cache"), AUTHORITY]),
    (164, [("custom-key", "custom-value"), ("cache-control", "no-cache"), AUTHORITY]),
]
REQUESTS = [GET, GET | NO_CACHE, INDEX_HTML | CUSTOM]
ANSWERS = [
    {":status": "302"} | REDIRECT,
    {":status": "307"} | REDIRECT,
    {":status": "200"} | LAST,
]
# Examples of RFC 7541, Appendix C: hex, a dump of each block in turn.
C_3 = [
    "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    "8286 84be 5808 6e6f 2d63 6163 6865",
    "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
]
C_4 = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
]
C_5 = [
    "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a "
    "3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    "4803 3330 37c1 c0bf",
    "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 "
    "677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 "
    "553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
]
C_6 = [
    "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e "
    "919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
    "4883 640e ffc1 c0bf",
    "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 "
    "821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed "
    "4ee5 b106 3d50 07",
]
SIZE_256 = bytes.fromhex("3fe101")


@pytest.mark.parametrize(
    ("blocks", "headers", "tables", "first"),
    [
        pytest.param(C_3, REQUESTS, TABLES_OF_REQUESTS, b"", id="C.3"),
        pytest.param(C_4, REQUESTS, TABLES_OF_REQUESTS, b"", id="C.4"),
        pytest.param(C_5, ANSWERS, TABLES_OF_ANSWERS, SIZE_256, id="C.5"),
        pytest.param(C_6, ANSWERS, TABLES_OF_ANSWERS, SIZE_256, id="C.6"),
    ],
)
def test_the_examples_of_the_rfc(
    blocks: Sequence[str],
    headers: Sequence[dict[str, str]],
    tables: Sequence[tuple[int, list[tuple[str, str]]]],
    first: bytes,
) -> None:
    decoder = HeaderDecoder(LIST_BYTES_MAX)

    for block, expected, (size, table) in zip(blocks, headers, tables, strict=True):
        assert decoder.decode(first + bytes.fromhex(block)) == expected
        assert (decoder.table_bytes, decoder.table) == (size, table)
        first = b""


@pytest.mark.parametrize(
    ("block", "headers", "table"),
    [
        pytest.param(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            {"custom-key": "custom-header"},
            [("custom-key", "custom-header")],
            id="C.2.1",
        ),
        pytest.param(
            "040c 2f73 616d 706c 652f 7061 7468", {":path": "/sample/path"}, [], id="C.2.2"
        ),
        pytest.param(
            "1008 7061 7373 776f 7264 0673 6563 7265 74", {"password": "secret"}, [], id="C.2.3"
        ),
        pytest.param("82", {":method": "GET"}, [], id="C.2.4"),
    ],
)
def test_each_representation_of_a_field_is_decoded(
    block: str, headers: dict[str, str], table: list[tuple[str, str]]
) -> None:
    decoder = HeaderDecoder(LIST_BYTES_MAX)

    assert decoder.decode(bytes.fromhex(block)) == headers
    assert decoder.table == table


@pytest.mark.parametrize(
    ("block", "says"),
    [
        pytest.param(b"\x80", "index 0", id="6.1 index 0"),
        pytest.param(b"\xbe", "no table", id="2.3.3 an index beyond both tables"),
        pytest.param(b"\xff\x80\x01", "no table", id="2.3.3 a long index beyond both tables"),
        pytest.param(b"\x7e\x01a", "no table", id="2.3.3 a name beyond both tables"),
        pytest.param(b"\xff\xff\xff\xff\xff\x0f", "too large", id="5.1 an integer above 2^32"),
        pytest.param(b"\xff\x80\x80\x80\x80\x80\x00", "too large", id="5.1 an endless integer"),
        pytest.param(b"\xff\xff", "ends early", id="5.1 an integer that ends early"),
        pytest.param(b"\x00", "ends early", id="6.2 a literal without a name"),
        pytest.param(b"\x00\x01a", "ends early", id="6.2 a literal without a value"),
        pytest.param(b"\x00\x03ab", "within a string", id="5.2 a string that ends early"),
        pytest.param(b"\x00\x01a\x82\x1f\x00", "within a code", id="5.2 wrong padding"),
        pytest.param(b"\x3f\xe2\x1f", "above 4096", id="6.3 a table larger than allowed"),
        pytest.param(b"\x82\x20", "after a field", id="4.2 a table size after a field"),
    ],
)
def test_undecodable_data_is_a_compression_error(block: bytes, says: str) -> None:
    with pytest.raises(Http2ConnectionError, match=says) as caught:
        HeaderDecoder(LIST_BYTES_MAX).decode(block)

    assert caught.value.code == ErrorCode.COMPRESSION_ERROR


def with_indexing(name: str, value: str) -> bytes:
    return b"\x40" + hpack.literal(name, value)[1:]


def test_4_3_a_smaller_table_forgets_its_oldest_fields() -> None:
    decoder = HeaderDecoder(LIST_BYTES_MAX)
    decoder.decode(with_indexing("a", "1") + with_indexing("b", "2") + with_indexing("c", "3"))

    decoder.decode(b"\x3f\x25")

    assert decoder.table == [("c", "3"), ("b", "2")]
    assert decoder.decode(b"\x20\x3f\xe1\x1f") == {}
    assert (decoder.table, decoder.table_bytes) == ([], 0)


def test_4_4_a_field_larger_than_the_table_empties_it() -> None:
    decoder = HeaderDecoder(LIST_BYTES_MAX)
    decoder.decode(with_indexing("a", "1"))

    assert decoder.decode(with_indexing("b", "x" * 4096))["b"] == "x" * 4096

    assert decoder.table == []


def test_4_4_a_field_may_take_its_name_from_the_field_that_it_evicts() -> None:
    decoder = HeaderDecoder(LIST_BYTES_MAX)
    decoder.decode(b"\x3f\x02" + with_indexing("a", "1"))
    assert len(decoder.table) == 0
    decoder.decode(b"\x3f\x03" + with_indexing("a", "1"))

    # Index 62 with incremental indexing.
    assert decoder.decode(b"\x7e\x012") == {"a": "2"}

    assert decoder.table == [("a", "2")]


def test_a_list_above_its_limit_is_malformed_and_the_table_stays_valid() -> None:
    decoder = HeaderDecoder(200)
    block = with_indexing("big", "x" * 100) + b"\xbe" * 1000 + with_indexing("last", "1")

    headers = decoder.decode(block)

    assert decoder.malformed == "the header list is larger than 200 bytes"
    assert decoder.list_bytes > 100_000
    assert sum(map(len, headers.values())) <= 200
    assert decoder.decode(b"\xbe") == {"last": "1"}
    assert decoder.malformed == ""


def test_our_own_fields_are_read_by_another_library() -> None:
    block = (
        hpack.indexed_field(8)
        + hpack.literal_of(31, "application/grpc")
        + hpack.literal_of(8, "415")
        + hpack.literal("grpc-message", "x" * 300)
        + hpack.literal("n" * 127, "")
    )

    decoded: list[Any] = list(library.Decoder().decode(block))
    assert decoded == [
        (":status", "200"),
        ("content-type", "application/grpc"),
        (":status", "415"),
        ("grpc-message", "x" * 300),
        ("n" * 127, ""),
    ]


names = st.sampled_from(["x-mq-client-id", "te", "content-type", "a", ":path", "x" * 40])
values = st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=60)
fields = st.lists(st.tuples(names, values, st.booleans()), max_size=12)


@settings(max_examples=60)
@given(st.lists(st.tuples(fields, st.booleans(), st.none() | st.integers(0, 4096)), max_size=20))
def test_another_librarys_blocks_are_read_correctly(blocks: list[Any]) -> None:
    encoder, decoder, other = library.Encoder(), HeaderDecoder(1 << 20), library.Decoder()
    for listed, is_huffman, table_size in blocks:
        if table_size is not None:
            encoder.header_table_size = table_size
        block = encoder.encode(
            [
                (library.NeverIndexedHeaderTuple if is_secret else library.HeaderTuple)(*field)
                for *field, is_secret in listed
            ],
            huffman=is_huffman,
        )

        headers = decoder.decode(block)

        joined: dict[str, str] = {}
        for raw in other.decode(block, raw=True):
            name, value = (part.decode("latin-1") for part in raw)
            is_pseudo = name.startswith(":")
            joined[name] = f"{joined[name]},{value}" if name in joined and not is_pseudo else value
        if not decoder.malformed:
            assert headers == joined


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_are_decompressed_or_a_compression_error(blocks: list[bytes]) -> None:
    decoder = HeaderDecoder(LIST_BYTES_MAX)

    with contextlib.suppress(Http2ConnectionError):
        for block in blocks:
            decoder.decode(block)
            sizes = [len(name) + len(value) + 32 for name, value in decoder.table]
            assert decoder.table_bytes == sum(sizes) <= hpack.TABLE_BYTES
