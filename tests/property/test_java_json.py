"""fastjson's dialect reads back as it was written; anything else is rejected."""

from __future__ import annotations

import contextlib

from hypothesis import given, strategies as st

from broker_core.protocol import java_json

INT = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    lambda text: "$ref" not in text
)
KEY = TEXT | INT | st.builds(java_json.message_queue_key, TEXT, TEXT, st.integers(-1, 9))
VALUE = st.recursive(
    st.booleans() | INT | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY, inner, max_size=4),
    max_leaves=20,
)


def with_text_keys(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


def has_twin_keys(value: object) -> bool:
    if isinstance(value, dict):
        names = [str(key) for key in value]
        return len(set(names)) < len(names) or any(map(has_twin_keys, value.values()))
    return isinstance(value, list) and any(map(has_twin_keys, value))


@given(VALUE.filter(lambda value: not has_twin_keys(value)))
def test_written_data_is_read_back(value: object) -> None:
    assert java_json.decode(java_json.encode(value)) == with_text_keys(value)
    assert java_json.decode(java_json.encode_pretty(value)) == with_text_keys(value)


@given(st.text(st.sampled_from('{}[]":,\\0a $ref.\n'), max_size=80))
def test_the_reader_only_rejects_invalid_text(text: str) -> None:
    with contextlib.suppress(ValueError):
        java_json.decode(text)


@given(st.binary(max_size=80))
def test_a_reader_only_rejects_invalid_bytes(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        java_json.decode(data)
