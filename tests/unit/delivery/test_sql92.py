from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.delivery.sql92.java_values import EvaluationError
from broker_core.delivery.sql92.lexer import EXPRESSION_CHARS_MAX
from broker_core.delivery.sql92.parser import COMPARISONS_MAX, DEPTH_MAX, compile_expression

if TYPE_CHECKING:
    from broker_core.delivery.sql92.expression import Expression

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "sql92" / "table-4.9.7.json"
TABLE = json.loads(GOLDEN.read_text())
WITH_TEXT_CONDITIONS = ("a CONTAINS 'b'", "a STARTSWITH 'b'")
"""4.9.7 parses these as the property `a`."""


def compiled(text: str) -> Expression | None:
    try:
        return compile_expression(text)
    except ValueError:
        return None


def whole_part(text: str) -> str:
    """Return the text before the position where an expression is rejected."""
    with pytest.raises(ValueError, match=" at character ") as caught:
        compile_expression(text)
    place = re.findall(r" at character ([0-9]+): ", str(caught.value))[0]
    return text[: int(place) - 1].removesuffix("NOT ").removesuffix("IS ")


def result(expression: Expression, properties: dict[str, str]) -> str:
    try:
        value = expression.evaluate(properties.get)
    except EvaluationError:
        return "ERROR"
    return "NULL" if value is None else str(value).upper()


@pytest.mark.parametrize(("text", "results"), TABLE["rows"], ids=range(len(TABLE["rows"])))
def test_an_expression_means_the_same_as_in_rocketmq(text: str, results: list[str] | None) -> None:
    if text in WITH_TEXT_CONDITIONS:
        return
    # RocketMQ ignores text after a complete expression.
    expression = compiled(text) or (compiled(whole_part(text)) if results is not None else None)

    found = expression and [result(expression, each) for each in TABLE["properties"]]

    assert found == results, text


def test_only_true_matches() -> None:
    rows: list[Any] = [row for row in TABLE["rows"] if row[1] is not None]

    for text, results in rows:
        expression = compiled(text)
        if expression is None or text in WITH_TEXT_CONDITIONS:
            continue
        found = [expression.matches(each.get) for each in TABLE["properties"]]
        assert found == [each == "TRUE" for each in results], text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a != 5", "unexpected '!= 5' at character 3: write <> instead of !="),
        ("a between 1", "unexpected end at character 12: expected AND"),
        ("a = 'x", 'unexpected "\'x" at character 5: the closing quote is missing'),
        ("a ? 1", "unexpected '? 1' at character 3: not a word, number or sign"),
    ],
)
def test_a_rejection_names_the_position_and_the_text(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        compile_expression(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a > 1 garbage here", "unexpected 'garbage here' at character 7: expected "),
        ("a > 1 b = 'x'", "unexpected \"b = 'x'\" at character 7: expected "),
        ("a > 1)", "unexpected ')' at character 6: expected "),
        ("a > 1 /* c */ 7", "unexpected '7' at character 15: expected "),
        ("a = 1 - 1", "unexpected '- 1' at character 7: expected "),
        ("a like 'x%'", "unexpected \"like 'x%'\" at character 3: LIKE isn't supported; use "),
        ("a NOT LIKE 'x%'", "unexpected \"LIKE 'x%'\" at character 7: LIKE isn't supported; use "),
        ("a == 5", "unexpected '= 5' at character 4: write = instead of =="),
        ("a = 5 && b = 5", "unexpected '&& b = 5' at character 7: write AND instead of &&"),
        ("a > 1 " + "x" * 99, f"unexpected '{'x' * 40}'... at character 7: expected "),
    ],
)
def test_text_after_a_whole_expression_is_rejected_with_its_position(
    text: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        compile_expression(text)


@pytest.mark.parametrize(
    "end", [" ", "\n", " -- a comment\n", " -- no line ends it", " /* c */ --"]
)
def test_blanks_and_comments_may_follow_an_expression(end: str) -> None:
    assert compile_expression("a = 5" + end).matches({"a": "5"}.get)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        # For a missing property, the empty text, "abc" and "xabcx".
        ("a CONTAINS 'abc'", "FFTT"),
        ("a NOT CONTAINS 'abc'", "FTFF"),
        ("a STARTSWITH 'ab'", "FFTF"),
        ("a NOT STARTSWITH 'ab'", "FTFT"),
        ("a endswith 'bc'", "FFTF"),
        ("a Not EndsWith 'bc'", "FTFT"),
        ("NOT (a STARTSWITH 'ab')", "TTFT"),
        # NOT binds more tightly: this tests whether the condition `NOT a` starts with it.
        ("NOT a STARTSWITH 'ab'", "FFFF"),
        ("a CONTAINS ''", "FFFF"),
        ("a NOT CONTAINS ''", "FFFF"),
        ("a CONTAINS 'ABC'", "FFFF"),
        ("'xabc' CONTAINS 'abc'", "TTTT"),
        ("5 NOT CONTAINS '4'", "FFFF"),
        ("NULL NOT CONTAINS '4'", "FFFF"),
        ("a CONTAINS 'a' CONTAINS 'TRUE'", "FFFF"),
        ("a CONTAINS 'b' = TRUE AND a STARTSWITH 'a'", "FFTF"),
    ],
)
def test_text_conditions_are_never_unknown(text: str, values: str) -> None:
    expression = compile_expression(text)

    rows: list[dict[str, str]] = [{}, {"a": ""}, {"a": "abc"}, {"a": "xabcx"}]
    assert "".join(result(expression, each)[0] for each in rows) == values


def test_text_conditions_need_text_in_quotes() -> None:
    for text in ("a CONTAINS b", "a CONTAINS 5", "a STARTSWITH", "a NOT ENDSWITH NULL"):
        with pytest.raises(ValueError, match="expected text in single quotes"):
            compile_expression(text)


def test_a_property_may_be_named_like_a_text_condition() -> None:
    properties = {"contains": "x", "EndsWith": "y"}

    assert compile_expression("contains = 'x' AND EndsWith ENDSWITH 'y'").matches(properties.get)
    assert compile_expression("contains CONTAINS 'x'").matches(properties.get)


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: "(" * depth + "a" + ")" * depth,
        lambda depth: "NOT " * depth + "a",
        lambda depth: "a = " + "- " * depth + "1",
        lambda depth: "a = " + "+" * depth + "1",
    ],
)
def test_nesting_has_a_limit(nested: Any) -> None:
    compile_expression(nested(DEPTH_MAX - 1)).matches({"a": "1"}.get)

    with pytest.raises(ValueError, match="nests deeper"):
        compile_expression(nested(DEPTH_MAX))
    with pytest.raises(ValueError, match="nests deeper"):
        compile_expression(nested(EXPRESSION_CHARS_MAX // 8))


def test_a_chain_of_equal_entries_has_a_limit() -> None:
    compile_expression("a = 1" + " = TRUE" * DEPTH_MAX)

    with pytest.raises(ValueError, match="nests deeper"):
        compile_expression("a = 1" + " = TRUE" * COMPARISONS_MAX)


def test_the_number_of_comparisons_has_a_limit() -> None:
    compile_expression(" OR ".join(["a = 1"] * COMPARISONS_MAX))

    with pytest.raises(ValueError, match="more than 256 comparisons"):
        compile_expression(" OR ".join(["a = 1"] * (COMPARISONS_MAX + 1)))


def test_the_length_has_a_limit() -> None:
    blanks = " " * (EXPRESSION_CHARS_MAX - 1)
    compile_expression("a" + blanks)

    with pytest.raises(ValueError, match="more than 8192"):
        compile_expression("a " + blanks)


def test_a_long_list_of_values_is_one_comparison() -> None:
    values = ", ".join(f"'order-{i:04}'" for i in range(500))
    expression = compile_expression(f"id IN ({values})")

    assert expression.matches({"id": "order-0499"}.get)
    assert not expression.matches({"id": "order-0500"}.get)


def test_a_property_with_a_million_digits_is_not_a_number() -> None:
    properties = {"a": "9" * 1_000_000}

    assert not compile_expression("a > 1").matches(properties.get)
    assert not compile_expression("a > 1.5").matches(properties.get)
    assert compile_expression("a IS NOT NULL").matches(properties.get)
