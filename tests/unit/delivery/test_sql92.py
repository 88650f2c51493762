from __future__ import annotations

import json
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


def compiled(text: str) -> Expression | None:
    try:
        return compile_expression(text)
    except ValueError:
        return None


def result(expression: Expression, properties: dict[str, str]) -> str:
    try:
        value = expression.evaluate(properties.get)
    except EvaluationError:
        return "ERROR"
    return "NULL" if value is None else str(value).upper()


@pytest.mark.parametrize(("text", "results"), TABLE["rows"], ids=range(len(TABLE["rows"])))
def test_an_expression_is_what_rocketmq_makes_of_it(text: str, results: list[str] | None) -> None:
    expression = compiled(text)

    found = expression and [result(expression, each) for each in TABLE["properties"]]

    assert found == results, text


def test_only_true_matches() -> None:
    rows: list[Any] = [row for row in TABLE["rows"] if row[1] is not None]

    for text, results in rows:
        expression = compile_expression(text)
        found = [expression.matches(each.get) for each in TABLE["properties"]]
        assert found == [each == "TRUE" for each in results], text


def test_a_refusal_says_where() -> None:
    with pytest.raises(ValueError, match=r"^'!' at character 3 begins nothing known$"):
        compile_expression("a != 5")
    with pytest.raises(ValueError, match=r"^the end at character 12, where 'AND' is expected$"):
        compile_expression("a between 1")


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


def test_a_chain_of_equals_has_a_limit() -> None:
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


def test_a_property_of_a_million_digits_is_no_number() -> None:
    properties = {"a": "9" * 1_000_000}

    assert not compile_expression("a > 1").matches(properties.get)
    assert not compile_expression("a > 1.5").matches(properties.get)
    assert compile_expression("a IS NOT NULL").matches(properties.get)
