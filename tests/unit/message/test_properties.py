"""Properties as text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from broker_core.errors import PropertiesError
from broker_core.message import properties
from broker_core.message.properties import decode, encode, without


def test_encoded_data_can_be_decoded() -> None:
    table = {"TAGS": "TagA", "KEYS": "k1 k2", "名": "值"}

    assert decode(encode(table)) == table


def test_encoding_ends_without_a_separator() -> None:
    assert encode({"WAIT": "true", "TAGS": "d"}) == "WAIT\x01true\x02TAGS\x01d"


WELL_FORMED = [
    ("", {}),
    ("a\x01b", {"a": "b"}),
    ("a\x01b\x02c\x01d\x02", {"a": "b", "c": "d"}),
    ("\x02\x02a\x01b\x02\x02\x02", {"a": "b"}),
    ("a\x01b\x02a\x01c", {"a": "c"}),
    ("a\x01\x02c\x01d\x02e\x01", {"c": "d"}),
    ("a\x01\x02", {}),
]
BROKEN = [
    ("a\x01b\x01c", "the property 'a' contains U+0001, which separates names from values. "),
    ("x\x01y\x02a\x01b\x01", "the property 'a' contains U+0001, "),
    ("a\x01b\x02c", "its properties hold 'c' without a value; a property contains U+0002, "),
    ("c\x02a\x01b", "its properties hold 'c' without a value; a property contains U+0002, "),
    ("a\x01b\x01c\x02d", "the property 'a' contains U+0001, "),
    ("no separator", "its properties hold 'no separator' without a value; "),
    ("x" * 99, f"its properties hold '{'x' * 64}'... without a value; "),
    ("\x01b", "a property has no name"),
    ("a\x01b\x02\x01", "a property has no name"),
]


@pytest.mark.parametrize(("text", "expected"), WELL_FORMED)
def test_a_clients_input_is_read_the_same_by_all_readers(
    text: str, expected: dict[str, str]
) -> None:
    assert properties.decode_client_properties(text) == properties.decode(text) == expected


@pytest.mark.parametrize(("text", "reason"), BROKEN)
def test_a_message_that_no_reader_gets_unchanged_is_rejected_with_the_reason(
    text: str, reason: str
) -> None:
    with pytest.raises(PropertiesError, match="^" + re.escape(reason)):
        properties.decode_client_properties(text)


@given(
    st.dictionaries(
        st.text(st.sampled_from("ab\0\1\2"), max_size=3), st.text("ab\0\1\2", max_size=3)
    )
)
def test_sendable_properties_are_read_back_unchanged(table: dict[str, str]) -> None:
    try:
        properties.require_sendable(table)
    except PropertiesError:
        assert "" in table or any(
            c in name + value for name, value in table.items() for c in "\0\1\2"
        )
    else:
        text = properties.encode(table)
        properties.require_no_nul(text)
        assert properties.decode_client_properties(text) == {
            name: value for name, value in table.items() if value
        }


def test_a_nul_is_named_with_its_property() -> None:
    with pytest.raises(
        PropertiesError, match=r"^the property 'c' contains U\+0000, which the broker"
    ):
        properties.require_no_nul("a\x01b\x02c\x01d\0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01\x02b\x01c", {"b": "c"}),
        ("\x01x\x02b\x01c", {"b": "c"}),
        ("alone\x02b\x01c", {"b": "c"}),
        ("a\x011\x02a\x012", {"a": "2"}),
    ],
)
def test_entries_without_a_key_or_a_value_are_dropped(text: str, expected: dict[str, str]) -> None:
    assert decode(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x011", ""),
        ("a\x011\x02", ""),
        ("a\x011\x02b\x012", "b\x012\x02"),
        ("b\x012\x02a\x011", "b\x012\x02"),
        ("a\x011\x02a\x011\x02b\x012", "b\x012\x02"),
        ("b\x012\x02a\x011\x02a\x011\x02a\x011\x02", "b\x012\x02"),
        ("aa\x011\x02a\x0111\x02a\x012\x02", "aa\x011\x02a\x0111\x02a\x012\x02"),
    ],
)
def test_every_name_value_pair_is_removed_and_no_other(text: str, expected: str) -> None:
    assert without(text, "a", "1") == expected


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("a\x01b\x02c\x01d\x02", ()),
        ("a\x01b\x02a\x01c", (("a", "b"),)),
        ("a\x01b\x02a\x01b", (("a", "b"),)),
        ("a\x01b\x02a\x01", (("a", ""),)),
        ("a\x01\x02a", (("a", ""), ("a", ""))),
        ("\x01b\x02\x02", (("", "b"),)),
    ],
)
def test_pairs_that_clients_skip_are_kept_in_stored_order(
    text: str, skipped: tuple[tuple[str, str], ...]
) -> None:
    assert properties.skipped(text) == skipped
