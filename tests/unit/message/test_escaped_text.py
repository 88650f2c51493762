"""Escaped text: escapes are decoded, in every notation and nesting."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given, settings, strategies as st

from broker_core.message.escaped_text import mask_matches, readings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SECRET = "+49 170/55"


def find_secret(text: str) -> Iterable[tuple[int, int]]:
    return [each.span() for each in re.finditer(re.escape(SECRET), text)]


def as_json(text: str) -> str:
    return "".join(f"\\u{ord(each):04x}" for each in text)


WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "json": as_json,
    "json, simple": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "percent": lambda text: quote(text, safe=""),
    "percent, all": lambda text: "".join(f"%{each:02x}" for each in text.encode()),
    "old percent": lambda text: "".join(f"%u{ord(each):04X}" for each in text),
    "references": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "hex references": lambda text: "".join(f"&#x{ord(each):X};" for each in text),
    "html": lambda text: html.escape(text).replace("+", "&plus;"),
    "quoted-printable": lambda text: "".join(f"={each:02X}" for each in text.encode()),
    "hex": lambda text: "".join(f"\\x{ord(each):02x}" for each in text),
    "braces": lambda text: "".join(f"\\u{{{ord(each):x}}}" for each in text),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_a_secret_is_found_in_each_notation(way) -> None:
    text = f"before {way(SECRET)} after"

    assert mask_matches(text, find_secret, "***") == "before *** after"


@pytest.mark.parametrize("inner", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("outer", WAYS.values(), ids=list(WAYS))
def test_a_secret_is_found_in_nested_escapes(outer, inner) -> None:
    assert mask_matches(outer(inner(SECRET)), find_secret, "***") == "***"


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=20),
    st.lists(st.sampled_from(["as it is", "json", "percent", "references"]), max_size=3),
    st.text(max_size=20),
)
def test_a_secret_is_found_in_any_context(before, ways, after) -> None:
    secret = SECRET
    for way in ways:
        secret = WAYS[way](secret)
    after = f" {after}"

    shown = mask_matches(before + secret + after, find_secret, "***")

    assert secret not in shown or shown == "***"
    assert "***" in shown
    readings, is_whole = readings_of(shown)
    assert not is_whole or all(SECRET not in each.text for each in readings)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='ab\\u002B%&#;="{}49x', max_size=60))
def test_a_text_without_the_secret_is_unchanged(text) -> None:
    _readings, is_whole = readings_of(text)

    assert mask_matches(text, find_secret, "***") == (text if is_whole else "***")


def test_json_values_are_lines_for_anchored_patterns() -> None:
    def find(text: str) -> list[tuple[int, int]]:
        return [each.span() for each in re.finditer(r"^4111$", text, re.MULTILINE)]

    text = '{"a": "4111", "b": [4111, "\\u0034111", "x4111"], "c": "{\\"d\\": \\"4111\\"}"}'

    assert mask_matches(text, list_of_none, "***", find) == (
        '{"a": "***", "b": [***, "***", "x4111"], "c": "{\\"d\\": \\"***\\"}"}'
    )


def list_of_none(_text: str) -> list[tuple[int, int]]:
    return []


@pytest.mark.parametrize("piece", ['\\"', "%41", "&amp;", "=41", '"', "\\", "\\u0041"])
def test_the_work_grows_linearly_with_the_length(piece) -> None:
    """A body of 64 KiB takes the time of sixteen of 4 KiB, whatever its content."""
    short, long = piece * (4_096 // len(piece)), piece * (65_536 // len(piece))

    assert steps_of(long) <= 40 * steps_of(short)


def steps_of(text: str) -> int:
    """Return the total length of all readings of a text and their values."""
    looked_at = 0

    def look(each: str) -> list[tuple[int, int]]:
        nonlocal looked_at
        looked_at += len(each)
        return []

    mask_matches(text, look, "***", look)
    return looked_at
