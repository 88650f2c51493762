from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings, strategies as st

from broker_core.delivery.sql92.java_values import EvaluationError, Number
from broker_core.delivery.sql92.parser import compile_expression

NAMES = ["a", "b", "A_$1"]
TOKENS = [
    *("NOT", "AND", "OR", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE", "(", ")", ",", "+", "-"),
    *("=", "<>", "<", ">", "<=", ">=", "'x'", "''", "1", "2.5", "9e300", "3000000000", "--", "/*"),
    *("*/", "\n", "!", "'", "CONTAINS", "STARTSWITH", "ENDSWITH", "LIKE", ";"),
    *NAMES,
]
texts = st.one_of(
    st.text(max_size=60), st.lists(st.sampled_from(TOKENS), max_size=14).map(" ".join)
)
numbers = st.one_of(st.integers().map(str), st.floats().map(str), st.floats().map(float.hex))
properties = st.dictionaries(st.sampled_from(NAMES), st.one_of(st.text(max_size=8), numbers))


def compiled(text: str) -> Any:
    try:
        return compile_expression(text)
    except ValueError:
        return None


@given(texts, properties)
@example("(" * 5000, {})
@example("'" * 8191, {})
@example("/*" * 4000, {})
@example("a = 1 -- " * 900, {"a": "1"})
@settings(max_examples=400)
def test_any_text_compiles_to_three_values_or_is_rejected(text: str, table: dict[str, str]) -> None:
    expression = compiled(text)

    if expression is not None:
        try:
            value = expression.evaluate(table.get)
        except EvaluationError:
            value = None
        assert value in (True, False, None)
        assert not isinstance(value, Number)
        assert expression.matches(table.get) is (value is True)


@given(
    st.lists(st.sampled_from(["a = 1", "b > 2", "a IS NULL", "NULL", "TRUE"]), min_size=3),
    properties,
)
def test_negation_of_a_disjunction_is_the_conjunction_of_negations(
    parts: list[str], table: dict[str, str]
) -> None:
    one = compile_expression(f"NOT ({' OR '.join(parts)})")
    other = compile_expression(" AND ".join(f"NOT ({part})" for part in parts))

    assert one.matches(table.get) is other.matches(table.get)
