"""Properties in bulk: what decoding them one by one says."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from analytics.store.properties import Properties
from broker_core.message import properties

TEXTS = st.text(alphabet="ab\x01\x02 é", max_size=30)


@given(st.lists(TEXTS, max_size=20), st.integers(0, 5))
def test_they_equal_the_decoder_of_one(texts: list[str], skipped: int) -> None:
    array = pa.array([text.encode() for text in texts], type=pa.binary()).slice(skipped)

    found = Properties(array)

    expected = [properties.decode(text) for text in texts[skipped:]]
    assert [dict(each) for each in found.as_map().to_pylist()] == expected
    assert found.value("a").to_pylist() == [each.get("a") for each in expected]


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
def test_keys_are_the_words_of_their_property(keys: bytes, expected: list[str] | None) -> None:
    assert Properties(pa.array([b"x\x01y", keys])).keys().to_pylist() == [None, expected]


def test_bytes_that_are_no_text_are_replaced() -> None:
    found = Properties(pa.array([b"TAGS\x01\xff\x02k\xfe\x01v", b"TAGS\x01fine"]))

    assert found.value("TAGS").to_pylist() == ["\ufffd", "fine"]
    assert found.as_map().to_pylist()[0] == [("TAGS", "\ufffd"), ("k\ufffd", "v")]
