"""Properties as text."""

from __future__ import annotations

import pytest

from broker_core.message.properties import decode, encode, without


def test_what_is_encoded_is_decoded() -> None:
    properties = {"TAGS": "TagA", "KEYS": "k1 k2", "名": "值"}

    assert decode(encode(properties)) == properties


def test_encoding_ends_without_a_separator() -> None:
    assert encode({"WAIT": "true", "TAGS": "d"}) == "WAIT\x01true\x02TAGS\x01d"


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
def test_what_lacks_a_key_or_a_value_is_dropped(text: str, expected: dict[str, str]) -> None:
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
def test_every_pair_of_a_name_and_value_is_taken_out_and_no_other(text: str, expected: str) -> None:
    assert without(text, "a", "1") == expected
