from __future__ import annotations

import time

import pytest

from broker_core.config.properties import parse_properties, replace_values


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("a=1\nb = 2", {"a": "1", "b": "2"}),
        ("# note\n! note\n\n a:1", {"a": "1"}),
        ("a=1\\\n  2", {"a": "12"}),
        ("a=b=c", {"a": "b=c"}),
        (r"a=C\:\\x", {"a": r"C:\x"}),
        (r"a=\u0041\t.", {"a": "A\t."}),
        ("a", {"a": ""}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
    ],
)
def test_properties_are_read_like_in_java(text: str, table: dict[str, str]) -> None:
    assert parse_properties(text) == table


def test_changing_a_key_leaves_the_rest_of_the_files_text_alone() -> None:
    text = "# mine\nlistenPort = 1\n\n! note\ntraceOn=true\ntraceOn: true\n"

    changed = replace_values(text, {"traceOn": "false", "deleteWhen": "05"})

    assert changed == "# mine\nlistenPort = 1\n\n! note\ntraceOn=false\ndeleteWhen=05\n"


def test_a_line_truncated_by_the_files_end_counts() -> None:
    assert parse_properties("a=1\nb=2\\") == {"a": "1", "b": "2"}


def test_a_character_beyond_16_bits_needs_two_escapes_and_half_of_one_is_invalid() -> None:
    assert parse_properties(r"a=\ud83d\udca5") == {"a": "💥"}
    parse_properties(r"a=\ud83d")["a"].encode()


@pytest.mark.parametrize(
    "text",
    [
        "a=1\\\n  2\nb=3\n",
        "b=3\na=1\\",
        "# note\\\na=1\nb=2",
        "\\\n#x\na=1\nb=2",
        "a = 1\nb\\ c = 2\n",
        "",
    ],
)
@pytest.mark.parametrize("key", ["a", "b", "b c", "fresh", "d=e", "#f"])
@pytest.mark.parametrize("value", ["9", r"C:\x", "1\nother=2", "1\u20282", "1\\", "💥\x85.", "ü"])
def test_a_changed_value_is_read_literally_and_no_other_value_changes(
    text: str, key: str, value: str
) -> None:
    changed = replace_values(text, {key: value})

    assert parse_properties(changed) == {**parse_properties(text), key: value}


def test_the_time_for_a_line_of_many_parts_grows_with_its_length() -> None:
    parts = 1_500_000
    began = time.process_time()

    assert parse_properties("k=" + "a\\\n" * parts + "b") == {"k": "a" * parts + "b"}

    # Quadratic time would take more than a minute.
    assert time.process_time() - began < 20
