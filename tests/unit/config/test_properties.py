from __future__ import annotations

import pytest

from broker_core.config.properties import edited, parse_properties


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
def test_properties_are_read_as_java_reads_them(text: str, table: dict[str, str]) -> None:
    assert parse_properties(text) == table


def test_a_changed_key_is_changed_in_the_files_text_and_nothing_else_is() -> None:
    text = "# mine\nlistenPort = 1\n\n! note\ntraceOn=true\ntraceOn: true\n"

    changed = edited(text, {"traceOn": "false", "deleteWhen": "05"})

    assert changed == "# mine\nlistenPort = 1\n\n! note\ntraceOn=false\ndeleteWhen=05\n"
