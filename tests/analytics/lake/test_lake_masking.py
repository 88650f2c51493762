"""Masking in the lake equals masking on the console's pages, one by one and in bulk."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from analytics.lake.hiding import (
    MARKS,
    MAY_BE_ESCAPED,
    each_without_matches,
    spans_of,
    without_matches,
)
from broker_core.message.escaped_text import readings_of
from console.people.masking import engine

TEXTS = st.text(alphabet='ab4 9+\\u002B%&#;="{}:,[]\n\u00e9\U0001f600', max_size=40)
PATTERNS = ["[0-9]{2}", r"\+49", "^4", "9$", r"\A[a-z]+\z", "(?i)B+", "\u00e9|\U0001f600"]


@settings(max_examples=500, deadline=None)
@given(TEXTS, st.sampled_from(PATTERNS))
def test_the_lake_hides_the_same_data_as_pages(text: str, pattern: str) -> None:
    assert without_matches(pattern, text) == engine.without_matches(pattern, text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | TEXTS, max_size=5), st.sampled_from(PATTERNS))
@example(["\\B"], "(?i)B+")
def test_many_at_once_are_hidden_like_one_by_one(texts: list[str | None], pattern: str) -> None:
    given = pa.array(texts, pa.string())

    found = each_without_matches(given, pa.array([pattern] * len(texts), pa.string()))

    assert found.to_pylist() == [
        None if text is None else without_matches(pattern, text) for text in texts
    ]


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_the_quick_check_misses_no_escape(text: str) -> None:
    if len(readings_of(text)[0]) > 1:
        assert re.search(MAY_BE_ESCAPED, text)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", []),
        ("none", []),
        ("12", [(0, 2)]),
        ("\u00e9 12 \U0001f600 345", [(2, 4), (7, 10)]),
        ("".join(MARKS) + "12", [(0, len(MARKS) + 2)]),
        (MARKS[0] + "12", [(1, 3)]),
    ],
)
def test_spans_are_counted_in_characters(text: str, spans: list[tuple[int, int]]) -> None:
    assert spans_of("[0-9]+", text) == spans
