from __future__ import annotations

import json
import logging
import re

import pytest

from broker_core.log_lines import INDENT, JsonFormatter, LineFormatter, escape, formatter

FORGED = "2026-11-22 03:00:00,000 INFO broker_core - all is well"


def record_of(
    message: str, *values: object, error: BaseException | None = None
) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("b", logging.WARNING, __file__, 1, message, values, info)


def line_of(message: str, *values: object, error: BaseException | None = None) -> str:
    form = LineFormatter("%(levelname)s %(name)s - %(message)s")
    return form.format(record_of(message, *values, error=error))


def raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("char", "shown"),
    [
        ("\n", r"\n"),
        ("\r", r"\r"),
        ("\t", r"\t"),
        ("\0", r"\x00"),
        ("\x0b", r"\x0b"),
        ("\x1b", r"\x1b"),
        ("\x7f", r"\x7f"),
        ("\x85", r"\x85"),
        ("\x9b", r"\x9b"),
        ("\u2028", r"\u2028"),
        ("\u2029", r"\u2029"),
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\u200f", r"\u200f"),
        ("\u200b", r"\u200b"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_unprintable_characters_are_escaped(char: str, shown: str) -> None:
    assert line_of("new group: group=%s", f"a{char}b") == rf"WARNING b - new group: group=a{shown}b"


@pytest.mark.parametrize("text", ["订单 grüße 🚀 %RETRY%g", r"C:\new", "", 'it\'s "quoted"'])
def test_printed_output_is_stable(text: str) -> None:
    assert line_of("%s", text) == f"WARNING b - {text}"


def test_escaped_text_is_not_escaped_again() -> None:
    once = escape("a\nb\x1b[2J")

    assert escape(once) == once
    assert line_of("%r", "a\nb") == r"WARNING b - 'a\nb'"


def test_a_traceback_is_readable_line_by_line_and_cannot_fake_a_log_line() -> None:
    error = raised(f"no group\n{FORGED}\x1b[2J")

    first, *below = line_of("failed", error=error).split("\n")

    assert first == "WARNING b - failed"
    assert below[0] == f"{INDENT}Traceback (most recent call last):"
    assert below[1].startswith(f'{INDENT}  File "{__file__}", line ')
    assert below[-2] == f"{INDENT}ValueError: no group"
    assert below[-1] == rf"{INDENT}{FORGED}\x1b[2J"
    assert all(line.startswith(INDENT) for line in below)


def test_another_handlers_unescaped_traceback_is_not_used() -> None:
    record = record_of("failed", error=raised("bad\x1b]0;name"))
    assert "\x1b" in logging.Formatter().format(record)

    assert "\x1b" not in LineFormatter().format(record)


def test_a_stack_trace_is_also_indented() -> None:
    record = record_of("here")
    record.stack_info = f"Stack\n{FORGED}\x07"

    assert (
        LineFormatter().format(record)
        == rf"here{chr(10)}{INDENT}Stack{chr(10)}{INDENT}{FORGED}\x07"
    )


def test_a_loggers_name_is_escaped_with_the_line() -> None:
    record = record_of("x")
    record.name = "a\nb"

    assert LineFormatter("%(name)s %(message)s").format(record) == r"a\nb x"


def test_a_log_record_is_one_json_object_per_line_whatever_a_peer_sends() -> None:
    made = formatter("", {"TREBUCHET_LOG_FORMAT": "json"})
    assert isinstance(made, JsonFormatter)

    line = made.format(record_of("group=%s", f"x\n{FORGED}\u202e", error=raised("broken\nhere")))

    assert line.isprintable()
    assert line.isascii()
    document = json.loads(line)
    assert list(document)[:2] == ["time", "level"]
    assert (document["level"], document["logger"]) == ("WARNING", "b")
    assert document["message"] == f"group=x\n{FORGED}\u202e"
    assert document["error"].endswith("ValueError: broken\nhere")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", document["time"])


@pytest.mark.parametrize("environment", [{}, {"TREBUCHET_LOG_FORMAT": "lines"}])
def test_the_line_format_is_the_default(environment: dict[str, str]) -> None:
    assert isinstance(formatter("%(message)s", environment), LineFormatter)


def test_another_format_is_rejected() -> None:
    with pytest.raises(ValueError, match="TREBUCHET_LOG_FORMAT is lines or json, not 'xml'"):
        formatter("", {"TREBUCHET_LOG_FORMAT": "xml"})
