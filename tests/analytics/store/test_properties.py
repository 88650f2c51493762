"""Properties in bulk: the same result as decoding them one by one, by either twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from analytics.store.bulk import NumpyBulk, chosen
from analytics.store.properties import Properties
from broker_core.message import properties

TEXTS = st.text(alphabet="ab\x01\x02 é", max_size=30)
TWINS = pytest.mark.parametrize("bulk", [NumpyBulk(), chosen()], ids=["numpy", "chosen"])


def properties_of(texts: list[bytes], bulk, before: bytes = b"") -> Properties:
    sizes = np.array([len(before), *map(len, texts)], dtype=np.int64)
    edges = np.cumsum(sizes)
    data = np.frombuffer(before + b"".join(texts), dtype=np.uint8)
    return Properties(bulk, data, edges[:-1], edges[1:])


@TWINS
@given(texts=st.lists(TEXTS, max_size=20), before=TEXTS)
def test_bulk_properties_equal_the_single_decoders_result(
    texts: list[str], before: str, bulk
) -> None:
    found = properties_of([text.encode() for text in texts], bulk, before.encode())

    expected = [properties.decode(text) for text in texts]
    assert [dict(each) for each in found.as_map().to_pylist()] == expected
    assert found.value("a").to_pylist() == [each.get("a") for each in expected]


@TWINS
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (b"KEYS\x01one two\x02", ["one", "two"]),
        (b"TAGS\x01t\x02KEYS\x01 one  two ", ["one", "two"]),
        (b"KEYS\x01   \x02", None),
        (b"KEYS\x01\x02", None),
        (b"KEYS", None),
        (b"", None),
    ],
)
def test_keys_are_the_words_of_their_property(
    keys: bytes, expected: list[str] | None, bulk
) -> None:
    assert properties_of([b"x\x01y", keys], bulk).keys().to_pylist() == [None, expected]


@TWINS
def test_non_text_bytes_are_replaced(bulk) -> None:
    found = properties_of([b"TAGS\x01\xff\x02k\xfe\x01v", b"TAGS\x01fine"], bulk)

    assert found.value("TAGS").to_pylist() == ["\ufffd", "fine"]
    assert found.as_map().to_pylist()[0] == [("TAGS", "\ufffd"), ("k\ufffd", "v")]


@TWINS
def test_the_last_value_of_a_repeated_name_counts(bulk) -> None:
    found = properties_of([b"a\x011\x02b\x012\x02a\x013", b"a\x014"], bulk)

    assert found.as_map().to_pylist() == [[("b", "2"), ("a", "3")], [("a", "4")]]
    assert found.value("a").to_pylist() == ["3", "4"]


@TWINS
@pytest.mark.parametrize("white", [" ", "\t", "\n", "\v", "\f", "\r"])
def test_any_white_space_separates_keys(white: str, bulk) -> None:
    texts = [f"KEYS\x01{white}one{white}two", "KEYS\x01three\x08\x0e\x1f\u00a0four"]

    found = properties_of([text.encode() for text in texts], bulk).keys()
    alone = properties_of([texts[1].encode()], bulk).keys()

    assert found.to_pylist() == [["one", "two"], ["three\x08\x0e\x1f\u00a0four"]]
    assert alone.equals(found.slice(1))
